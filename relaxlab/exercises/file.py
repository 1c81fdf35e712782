"""Chapter 07, the file.

Examples
--------
>>> from relaxlab.exercises import WrongAnswer, check
>>> try:
...     check("07.q1", 0)
... except WrongAnswer as wrong:
...     print(wrong.found.got)
0, which is in front of the executable
"""

from typing import Any, Final

from relaxlab.exercises.exercise import Wrong, exercise, shown

# Of the recorded library, which is data: a test compares these numbers with the file.
SECTIONS: Final = {
    "header": 21966,
    "version": 21974,
    "function table": 21986,
    "memory scopes": 23011,
    "constants": 23019,
    "instruction offsets": 23501,
    "instruction data": 23829,
}


@exercise("07.q1")
def constants_start(answer: Any) -> None:
    """Judge the offset of the section of constants."""
    if isinstance(answer, bool) or not isinstance(answer, int):
        raise Wrong("the number of a byte", shown(answer), "the table of sections")
    if answer == SECTIONS["constants"]:
        return
    inside = [name for name, start in SECTIONS.items() if start <= answer]
    where = f"in the section {inside[-1]!r}" if inside else "in front of the executable"
    raise Wrong(
        "the first byte of the section of constants",
        f"{answer}, which is {where}",
        "offsets count from the start of the library, not of the executable",
    )
