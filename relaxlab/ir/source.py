"""Where a node came from: a range of lines and columns in a named text.

The parser gives every function, binding and call of a program its place; whoever makes a new node
out of old ones hands the places on (:func:`merge_spans` for several), so that an instruction of
the machine can say which lines it runs. A place is no part of a node's meaning: it is neither
printed nor compared. Counterpart: ``tvm.ir.Span``.

Examples
--------
>>> a = Span(SourceName("demo.py"), 3, 3, 5, 9)
>>> b = Span(SourceName("demo.py"), 4, 4, 5, 12)
>>> print(a, merge_spans([b, None, a, b]), sep=" | ")
demo.py:3:5 | demo.py:4:5, demo.py:3:5
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["SequentialSpan", "SourceName", "Span", "merge_spans"]


@dataclass(frozen=True, slots=True)
class SourceName:
    """The name of a text, and the text itself where it is known.

    Attributes
    ----------
    name
        File it came from, or what errors call it.
    text
        Its content, so that a line can be shown later without asking the disk again.
    """

    name: str
    text: str = field(default="", repr=False, compare=False)

    def line(self, number: int) -> str:
        """Return a line, counted from 1; empty if there is none."""
        lines = self.text.split("\n")
        return lines[number - 1].rstrip() if 0 < number <= len(lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of source text; lines and columns count from 1."""

    source_name: SourceName
    line: int
    end_line: int
    column: int
    end_column: int

    def parts(self) -> "tuple[Span, ...]":
        """Return the ranges this consists of: itself."""
        return (self,)

    def __str__(self) -> str:
        return f"{self.source_name.name}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, init=False)
class SequentialSpan(Span):
    """Several ranges: where the parts of a node came from.

    The fields of a range are those of the first one.
    """

    spans: tuple[Span, ...]

    def __init__(self, spans: Iterable[Span]) -> None:
        spans = tuple(spans)
        first = spans[0]
        for name in ("source_name", "line", "end_line", "column", "end_column"):
            object.__setattr__(self, name, getattr(first, name))
        object.__setattr__(self, "spans", spans)

    def parts(self) -> tuple[Span, ...]:
        """Return the ranges this consists of."""
        return self.spans

    def __str__(self) -> str:
        return ", ".join(map(str, self.spans))


def merge_spans(spans: Iterable[Span | None]) -> Span | None:
    """Return one place for what came from several; None when none of them is known."""
    distinct = dict.fromkeys(part for span in spans if span is not None for part in span.parts())
    match len(distinct):
        case 0:
            return None
        case 1:
            return next(iter(distinct))
        case _:
            return SequentialSpan(distinct)
