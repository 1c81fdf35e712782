"""Where a node came from: a range of lines and columns in a named text.

Counterpart: ``tvm.ir.Span``.

Examples
--------
>>> Span("demo.py", 3, 3, 5, 9)
Span(source_name='demo.py', line=3, end_line=3, column=5, end_column=9)
"""

from dataclasses import dataclass

__all__ = ["Span"]


@dataclass(frozen=True, slots=True)
class Span:
    """A range of source text; lines and columns count from 1."""

    source_name: str
    line: int
    end_line: int
    column: int
    end_column: int
