"""A text to be parsed, where its parts are, and how an error shows its place.

A text comes from a string (``from_source``) or from the file of a decorated object. Errors are
:class:`~relaxlab.errors.DiagnosticError`: what is wrong, file, line and column, the line itself
and a caret under the part that is wrong.

Examples
--------
>>> source = Source("x = 1 +", "demo.py")
>>> try:
...     source.parse()
... except DiagnosticError as error:
...     print(error)
error: invalid syntax
 --> demo.py:1:8
   |
 1 |  x = 1 +
   |         ^
"""

import ast
import linecache
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeVar

from relaxlab.errors import DiagnosticError
from relaxlab.ir.source import SourceName, Span

__all__ = ["FAILURES", "Source"]

D = TypeVar("D", ast.ClassDef, ast.FunctionDef)

#: What the functions that build a program raise when they refuse; shown at the place of the call.
FAILURES: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
)
_GENERIC = re.compile(r"(?m)^([ \t]*def[ \t]+\w+[ \t]*)(\[[^\]\n]*\])")


@lru_cache(maxsize=4)
def _tree(text: str) -> ast.Module:
    # every decorator of a file asks for the tree of the whole file; what Python warns about
    # (``1if``) is of no concern in a program that Python does not run
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return ast.parse(text)


@dataclass(slots=True)
class Source:
    """Text with its origin.

    Attributes
    ----------
    text
        What is parsed.
    name
        File it came from, or ``<str>``.
    type_params
        Names between the brackets of ``def main[n](...)``, by line.
    """

    text: str
    name: str = "<str>"
    type_params: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _origin: SourceName = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._origin = SourceName(self.name, self.text)

    @staticmethod
    def of_file(filename: str, names: Mapping[str, Any]) -> "Source":
        """Return the text of a file, or of a notebook's cell, that is being executed.

        Parameters
        ----------
        filename
            What the code that is executed calls its file.
        names
            The globals of that code, which may know how to load it.

        Raises
        ------
        DiagnosticError
            If there is no such text, as for what was given to ``exec``.
        """
        lines = linecache.getlines(filename, dict(names))
        if not lines:
            raise DiagnosticError(
                f"error: cannot find the source text of {filename}\n"
                "A decorator parses the file it stands in; for a program in a string use "
                "relaxlab.script.from_source(text)."
            )
        return Source("".join(lines), filename)

    def definition(self, kind: type[D], name: str, line: int) -> D:
        """Return the class or function of that name that has a line among its first ones."""
        for node in ast.walk(self.parse()):
            if isinstance(node, kind) and node.name == name:
                first = min((d.lineno for d in node.decorator_list), default=node.lineno)
                if first <= line <= node.lineno:
                    return node
        raise DiagnosticError(
            f"error: the definition of {name} is not at line {line} of {self.name}; has the file "
            "changed since it was loaded?"
        )

    def parse(self) -> ast.Module:
        """Return the syntax tree.

        Raises
        ------
        DiagnosticError
            If the text is not Python.
        """
        try:
            return _tree(_GENERIC.sub(self._strip, self.text))
        except SyntaxError as error:
            line, column = error.lineno or 1, max(error.offset or 1, 1)
            end = error.end_offset if error.end_lineno == error.lineno else None
            raise self._error(error.msg, line, column, max(end or 0, column + 1)) from None
        except (RecursionError, MemoryError, ValueError) as error:
            raise self._error(f"the text cannot be parsed: {error}", 1, 1, 2) from None

    def _strip(self, match: re.Match[str]) -> str:
        """Blank out ``[n]`` behind a function's name, which Python reads from 3.12 on only."""
        head, brackets = match.group(1), match.group(2)
        line = self.text.count("\n", 0, match.start(1)) + 1
        names = (part.partition(":")[0].strip() for part in brackets[1:-1].split(","))
        self.type_params[line] = tuple(filter(None, names))
        return head + " " * len(brackets)

    def span(self, node: ast.AST) -> Span:
        """Return the place of a syntax node, in lines and columns of the file."""
        place: Any = node
        start, end = place.col_offset + 1, place.end_col_offset + 1
        return Span(self._origin, place.lineno, place.end_lineno, start, end)

    def error(self, node: ast.AST, message: str, advice: str = "") -> DiagnosticError:
        """Return an error at a syntax node; ``advice`` says what to do about it."""
        place: Any = node
        start, end = place.col_offset, place.end_col_offset
        line = self._line(place.lineno)
        # columns of the syntax tree count bytes of UTF-8
        start = len(line.encode()[:start].decode(errors="ignore"))
        end = len(line.encode()[:end].decode(errors="ignore"))
        if place.end_lineno != place.lineno:
            end = len(line)
        return self._error(message, place.lineno, start + 1, max(end, start + 1) + 1, advice)

    def _error(
        self, message: str, line: int, column: int, end_column: int, advice: str = ""
    ) -> DiagnosticError:
        text = self._line(line)
        margin = " " * len(str(line))
        place = f"{self.name}:{line}:{column}"
        caret = " " * (column - 1) + "^" * max(end_column - column, 1)
        return DiagnosticError(
            f"error: {message}\n"
            f" --> {place}\n"
            f" {margin} |\n"
            f" {line} |  {text}\n"
            f" {margin} |  {caret}" + (f"\n {margin} = help: {advice}" if advice else "")
        )

    def _line(self, line: int) -> str:
        lines = self.text.split("\n")
        return lines[line - 1].rstrip() if 0 < line <= len(lines) else ""
