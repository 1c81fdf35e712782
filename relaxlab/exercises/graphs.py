"""Chapter 13, capture and replay.

Examples
--------
>>> from relaxlab.exercises import WrongAnswer, check
>>> try:
...     check("13.q1", "none")
... except WrongAnswer as wrong:
...     print(wrong.found.expected)
a number of launches
"""

from typing import Any, Final

from relaxlab.exercises.exercise import Wrong, exercise, shown

_SIZES: Final = (1, 5, 1, 7, 5, 1)
_KERNELS: Final = 2


@exercise("13.q1")
def launches_saved(answer: Any) -> None:
    """Judge what replays save when each size is captured once."""
    if isinstance(answer, bool) or not isinstance(answer, int):
        raise Wrong("a number of launches", shown(answer), "the table of the view")
    replays = len(_SIZES) - len(set(_SIZES))
    if answer == replays * (_KERNELS - 1):
        return
    if answer == replays * _KERNELS:
        raise Wrong(
            "launches that are saved",
            f"{answer}, which is all kernels that were replayed",
            "a replay is a launch, too",
        )
    if answer == (len(_SIZES) - 1) * (_KERNELS - 1):
        raise Wrong(
            "a capture for each size",
            f"{answer}, as if one capture served all sizes",
            "the key holds the sizes",
        )
    raise Wrong(
        f"what {len(_SIZES)} calls save",
        shown(answer),
        "which of the calls find their key, and what does each of these save?",
    )
