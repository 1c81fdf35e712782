"""The file of an executable, field by field, and how it differs from another one.

Each row is a few bytes with what they mean; each word of an instruction is a row of its own, and
choosing it shows the instruction it belongs to. Sections and functions can be jumped to, and every
text searched. The text twin, ``print(view)``, says the same. Counterpart: a hex editor that knows
the format; TVM has none.

Examples
--------
>>> from relaxlab.relax.exec_builder import ExecBuilder
>>> ib = ExecBuilder()
>>> with ib.function("main", 1, ["x"]):
...     ib.emit_ret(ib.r(0))
>>> view = ExecutableView(ib.get())
>>> view
ExecutableView(program, 149 bytes, row 0 of 18)
>>> view.instruction(0).row
'     133  02 00 00 00 00 00 00 00  instruction data     Ret   | @main 0: ret   %0'
"""

import os
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import traitlets

from relaxlab.runtime.vm import VirtualMachine, VMExecutable
from relaxlab.runtime.vm.bytecode import VMFuncKind
from relaxlab.runtime.vm.compare import Difference, compare
from relaxlab.runtime.vm.disassemble import TextBudget, lines_of
from relaxlab.runtime.vm.field_map import Field, field_map
from relaxlab.runtime.vm.section_map import section_map
from relaxlab.widgets.bundle import bundle, stylesheet
from relaxlab.widgets.view import STATIC, View

__all__ = ["ExecutableView"]

_AROUND: Final = 6


class ExecutableView(View):
    """A view of the bytes of an executable.

    Parameters
    ----------
    program
        An executable, a machine that has one, or the path of a file of any form that
        ``VMExecutable.load_from_file`` reads. It is looked at, not judged and not run.
    other
        Another one to compare it with; the view then lists what differs in meaning.
    limit
        How many rows to keep at most; a view says when rows were left out.

    Attributes
    ----------
    position : int
        Index of the chosen row; changing it moves the view.
    fields : list of Field
        All fields of the file, those beyond ``limit`` included.

    Raises
    ------
    InternalError
        If a file holds no executable.
    TypeError
        If a program is none of these.
    """

    _esm = bundle(STATIC / "executable_view.js")
    _css = stylesheet(STATIC / "view.css", STATIC / "executable_view.css")
    _exported: ClassVar[tuple[str, ...]] = ("file", "position")

    file = traitlets.Dict().tag(sync=True)
    position = traitlets.Int().tag(sync=True)

    def __init__(
        self,
        program: VMExecutable | VirtualMachine | str | os.PathLike[str],
        other: VMExecutable | VirtualMachine | str | os.PathLike[str] | None = None,
        *,
        limit: int = 100_000,
    ) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        name, data, ex = _opened(program, "program")
        self.executable = ex
        self.fields: list[Field] = field_map(data, name)
        self._sections = section_map(data, name)
        self._instructions = _instructions(ex)
        self._compared: str | None = None
        self._differences: list[Difference] = []
        if other is not None:
            self._compared, _, another = _opened(other, "another program")
            self._differences = compare(ex, another)
        super().__init__(file=self._packed(name, len(data), limit), position=0)

    def _packed(self, name: str, size: int, limit: int) -> dict[str, Any]:
        names = [section.name for section in self._sections]
        kept = self.fields[:limit]
        return {
            "name": name,
            "size": size,
            "sections": [[one.name, one.offset, one.size, one.content] for one in self._sections],
            "rows": [
                [
                    names.index(field.section),
                    field.offset,
                    field.size,
                    field.hex,
                    field.meaning,
                    -1 if field.pc is None else field.pc,
                ]
                for field in kept
            ],
            "left_out": len(self.fields) - len(kept),
            "instructions": self._instructions,
            "functions": [
                [info.name, info.start_instr, info.end_instr]
                for info in self.executable.func_table
                if info.kind == VMFuncKind.VM_FUNC
            ],
            "compared": self._compared,
            "differences": [
                [one.what, one.name, one.summary, list(one.lines)] for one in self._differences
            ],
        }

    @traitlets.validate("position")
    def _inside(self, proposal: Any) -> int:
        position: int = proposal["value"]
        last = len(self.file["rows"]) - 1
        if not 0 <= position <= last:
            raise traitlets.TraitError(f"no row {position}: the view has 0 to {last}")
        return position

    # ---- moving from Python, as the keys do ---------------------------------------------------

    def goto(self, offset: int) -> Self:
        """Choose the row that holds a byte; one outside the rows is an ``IndexError``."""
        for index, (_, start, size, *_) in enumerate(self.file["rows"]):
            if start <= offset < start + size:
                self.position = index
                return self
        raise IndexError(f"no row holds byte {offset}")

    def section(self, name: str) -> Self:
        """Choose the first row of a section; an unknown name is a ``KeyError``."""
        for section in self._sections:
            if section.name == name:
                return self.goto(section.offset)
        known = ", ".join(section.name for section in self._sections)
        raise KeyError(f"no section {name!r}; the file has: {known}")

    def instruction(self, pc: int) -> Self:
        """Choose the first word of an instruction; one that is not there is an ``IndexError``."""
        names = [section.name for section in self._sections]
        for index, (section, *_, at) in enumerate(self.file["rows"]):
            if at == pc and names[section] == "instruction data":
                self.position = index
                return self
        raise IndexError(f"no row for instruction {pc}")

    def find(self, text: str) -> Self:
        """Choose the next row that contains a text, in bytes or words; ``LookupError`` if none.

        The search begins behind the chosen row and goes on at the start of the file.
        """
        rows = self.file["rows"]
        wanted = text.lower()
        for step in range(1, len(rows) + 1):
            index = (self.position + step) % len(rows)
            if wanted in self._words(index).lower():
                self.position = index
                return self
        raise LookupError(f"no row contains {text!r}")

    # ---- words --------------------------------------------------------------------------------

    @property
    def row(self) -> str:
        """The chosen row in one line."""
        return self._words(self.position)

    def _words(self, index: int) -> str:
        section, offset, _, head, meaning, pc = self.file["rows"][index]
        name = self._sections[section].name
        place = f"   | {self._instructions[pc]}" if pc >= 0 else ""
        return f"{offset:8}  {head:23}  {name:20} {meaning}{place}"

    @property
    def heading(self) -> str:
        """What an exported page is called."""
        return f"{self.file['name']}: {self.file['size']} bytes"

    def __str__(self) -> str:
        """Return sections, the rows around the chosen one, and the differences."""
        lines = [self.heading, "", "  offset    size  section              content"]
        lines += map(str, self._sections)
        first = max(0, self.position - _AROUND)
        last = min(len(self.file["rows"]), self.position + _AROUND + 1)
        lines += ["", f"rows {first} to {last - 1} of {len(self.file['rows'])}"]
        lines += [
            f"{'>' if index == self.position else ' '} {self._words(index)}"
            for index in range(first, last)
        ]
        if self.file["left_out"]:
            lines.append(f"the last {self.file['left_out']} rows of the file were left out")
        if self._compared is not None:
            lines += ["", f"compared with {self._compared}:"]
            lines += (
                map(str, self._differences) if self._differences else ["the programs are the same"]
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Return name, size and chosen row."""
        return (
            f"ExecutableView({self.file['name']}, {self.file['size']} bytes, "
            f"row {self.position} of {len(self.file['rows'])})"
        )


def _opened(program: Any, what: str) -> tuple[str, bytes, VMExecutable]:
    match program:
        case VirtualMachine():
            return _opened(program.executable, what)
        case VMExecutable():
            return what, program.save_to_bytes(), program
        case str() | os.PathLike():
            path = Path(program)
            data = path.read_bytes()
            ex = VMExecutable.load_from_bytes(data, verify=False, origin=path.name)
            return path.name, data, ex
        case _:
            raise TypeError(
                f"{what}: expected a VMExecutable, a machine or a path, "
                f"got {type(program).__name__}"
            )


def _instructions(ex: VMExecutable) -> list[str]:
    """Return, for each instruction, its function and text."""
    texts = [f"{pc}: in no function" for pc in range(ex.num_instructions)]
    budget = TextBudget(ex)
    for info in ex.func_table:
        if info.kind == VMFuncKind.VM_FUNC:
            for pc, (_, text) in enumerate(lines_of(ex, info, budget=budget), info.start_instr):
                texts[pc] = f"@{info.name} {pc}: {text.rstrip()}"
    return texts
