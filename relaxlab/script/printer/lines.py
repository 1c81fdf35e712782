"""Lines of a page and their indentation.

Examples
--------
>>> indented(["a", "", "b"])
['    a', '', '    b']
"""

__all__ = ["INDENT", "INDENTED_BLANK", "indented"]

INDENT = "    "
#: A line of nothing but indentation; no text of a program holds this character.
INDENTED_BLANK = "\0"


def indented(lines: list[str]) -> list[str]:
    """Return lines one level further in; empty ones stay empty."""
    return [INDENT + line if line else "" for line in lines]
