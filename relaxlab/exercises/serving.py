"""Chapters 14 and 15, a language model end to end, and in two processes.

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

_AWAY: Final = 200
_CACHED: Final = 48
_NUMBERS: Final = 30 * 2 * 3 * 64  # of a token: layers, keys and values, heads, head size
_WIDTH: Final = 4


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


@exercise("15.q1")
def bytes_that_travel(answer: Any) -> None:
    """Judge how many bytes of keys and values another process writes."""
    if isinstance(answer, bool) or not isinstance(answer, int):
        raise Wrong("a number of bytes", shown(answer), "tokens, and the bytes of one token")
    tokens = _AWAY - _CACHED - 1
    token = _NUMBERS * _WIDTH
    mistakes = {
        (tokens + 1) * token: (
            "only what the other side computes",
            "as if it computed the last token, too",
            "which side chooses the first token of the answer, and what does it need for that?",
        ),
        (_AWAY - 1) * token: (
            "only what is missing",
            "as if nothing were there yet",
            "which rows does the side that decodes have already?",
        ),
        _AWAY * token: (
            "only what is missing, and only what the other side computes",
            "as if the whole prompt travelled",
            "which rows are there already, and which token is computed where it is needed?",
        ),
        tokens * token // 2: (
            "keys and values",
            "as if it were one of the two",
            "what does attention need of each token?",
        ),
        tokens * _NUMBERS: ("bytes", "which is how many numbers", "how wide is a number?"),
    }
    if answer == tokens * token:
        return
    if answer in mistakes:
        expected, got, where = mistakes[answer]
        raise Wrong(expected, f"{answer}, {got}", where)
    raise Wrong(
        "the bytes of all rows that travel",
        shown(answer),
        "how many tokens travel, and how many bytes is one in all layers?",
    )
