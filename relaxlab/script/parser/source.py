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
import inspect
import re
import textwrap
from dataclasses import dataclass, field
from typing import Any

from relaxlab.errors import DiagnosticError
from relaxlab.ir.source import Span

__all__ = ["Source"]

_GENERIC = re.compile(r"(?m)^([ \t]*def[ \t]+\w+[ \t]*)(\[[^\]\n]*\])")


@dataclass(slots=True)
class Source:
    """Text with its origin.

    Attributes
    ----------
    text
        What is parsed; its first line is not indented.
    name
        File it came from, or ``<str>``.
    first_line
        Line of the file where the text begins.
    indent
        Columns by which the text was moved to the left.
    type_params
        Names between the brackets of ``def main[n](...)``, by line.
    """

    text: str
    name: str = "<str>"
    first_line: int = 1
    indent: int = 0
    type_params: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def of(program: Any) -> "Source":
        """Return the source of a decorated class or function.

        Raises
        ------
        DiagnosticError
            If Python cannot find it, as for what was typed into ``exec``.
        """
        try:
            lines, first = inspect.getsourcelines(program)
            name = inspect.getsourcefile(program) or "<unknown>"
        except (OSError, TypeError) as error:
            raise DiagnosticError(
                f"error: cannot find the source of {getattr(program, '__name__', program)!r}: "
                f"{error}\nA decorator parses the file it stands in; for a program in a string "
                "use relaxlab.script.from_source(text)."
            ) from None
        text = "".join(lines)
        dedented = textwrap.dedent(text)
        indent = len(text.partition("\n")[0]) - len(dedented.partition("\n")[0])
        # getsourcelines counts a module's first line as 0
        return Source(dedented, name, max(first, 1), indent)

    def parse(self) -> ast.Module:
        """Return the syntax tree.

        Raises
        ------
        DiagnosticError
            If the text is not Python.
        """
        try:
            return ast.parse(_GENERIC.sub(self._strip, self.text), filename=self.name)
        except SyntaxError as error:
            line, column = error.lineno or 1, max(error.offset or 1, 1)
            end = error.end_offset if error.end_lineno == error.lineno else None
            raise self._error(error.msg, line, column, max(end or 0, column + 1)) from None
        except (RecursionError, MemoryError, ValueError) as error:
            raise DiagnosticError(f"error: {self.name} cannot be parsed: {error}") from None

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
        offset = self.first_line - 1
        return Span(
            self.name,
            place.lineno + offset,
            place.end_lineno + offset,
            place.col_offset + 1 + self.indent,
            place.end_col_offset + 1 + self.indent,
        )

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
        number = line + self.first_line - 1
        text = self._line(line)
        margin = " " * len(str(number))
        place = f"{self.name}:{number}:{column + self.indent}"
        caret = " " * (column - 1) + "^" * max(end_column - column, 1)
        pad = " " * self.indent
        return DiagnosticError(
            f"error: {message}\n"
            f" --> {place}\n"
            f" {margin} |\n"
            f" {number} |  {pad}{text}\n"
            f" {margin} |  {pad}{caret}" + (f"\n {margin} = help: {advice}" if advice else "")
        )

    def _line(self, line: int) -> str:
        lines = self.text.split("\n")
        return lines[line - 1].rstrip() if 0 < line <= len(lines) else ""
