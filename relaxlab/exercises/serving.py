"""Chapter 14, a language model end to end.

Examples
--------
>>> from relaxlab.exercises import WrongAnswer, check
>>> try:
...     check("14.q1", 9)
... except WrongAnswer as wrong:
...     print(wrong.found.got)
9, as if every answer had a prompt of its own
"""

from typing import Any, Final

from relaxlab.exercises.exercise import Wrong, exercise, shown

_PROMPT: Final = 24
_PAGE: Final = 8
_ANSWERS: Final = 3


@exercise("14.q1")
def shared_prompt(answer: Any) -> None:
    """Judge how many pages hold a prompt that several answers share."""
    if isinstance(answer, bool) or not isinstance(answer, int):
        raise Wrong("a number of pages", shown(answer), "tokens of the prompt, and of a page")
    pages = _PROMPT // _PAGE
    if answer == pages:
        return
    if answer == pages * _ANSWERS:
        raise Wrong(
            "pages that are shared counted once",
            f"{answer}, as if every answer had a prompt of its own",
            "what does a fork copy, when the last page is full?",
        )
    raise Wrong("the pages of the prompt", shown(answer), "how many pages do its tokens fill?")
