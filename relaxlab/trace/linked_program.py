"""One program in four languages, with links: source lines, bindings, instructions, kernels.

From a line of the script to the instructions that run it, to the kernels they call, and back: what
a linked view shows, as data and as text. Built of an executable's ``source_map``; a program loaded
from TVM has no lines, but instructions and names of kernels all the same. There is no TVM
counterpart.

Examples
--------
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> link_program(VMExecutable()).lines
()
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from relaxlab.codegen.interface import Library
from relaxlab.runtime.vm.bytecode import Call, VMFuncKind
from relaxlab.runtime.vm.disassemble import TextBudget, function_name, lines_of
from relaxlab.runtime.vm.executable import VMExecutable
from relaxlab.runtime.vm.saved_kernels import SavedLibrary

__all__ = ["LinkedInstruction", "LinkedKernel", "LinkedLine", "LinkedProgram", "link_program"]


@dataclass(frozen=True, slots=True)
class LinkedLine:
    """A line of the script.

    Attributes
    ----------
    source, line, text
        Its file, number and content.
    pcs
        The instructions that run it, alone or fused with others.
    kernels
        The kernels that these call.
    """

    source: str
    line: int
    text: str
    pcs: tuple[int, ...]
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LinkedInstruction:
    """An instruction.

    Attributes
    ----------
    pc, function, text
        Its index, the function it is in, and its disassembly.
    binding
        The binding of the lowered program that it was made of; empty when not known.
    lines
        Indices into the program's lines.
    kernel
        The kernel it calls; None when it calls none.
    """

    pc: int
    function: str
    text: str
    binding: str
    lines: tuple[int, ...]
    kernel: str | None


@dataclass(frozen=True, slots=True)
class LinkedKernel:
    """A kernel.

    Attributes
    ----------
    name, script
        Its name, and its text in TVMScript; empty when only machine code is there.
    pcs
        The instructions that call it.
    lines
        Indices into the program's lines.
    """

    name: str
    script: str
    pcs: tuple[int, ...]
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LinkedProgram:
    """All of it; ``print`` shows each line with its instructions below it."""

    lines: tuple[LinkedLine, ...]
    instructions: tuple[LinkedInstruction, ...]
    kernels: tuple[LinkedKernel, ...]

    def line(self, number: int, source: str | None = None) -> LinkedLine:
        """Return a line by its number.

        Raises
        ------
        KeyError
            If no instruction runs it; the message lists those that are run.
        """
        for line in self.lines:
            if line.line == number and source in (None, line.source):
                return line
        known = ", ".join(str(line.line) for line in self.lines) or "none"
        raise KeyError(f"no instruction runs line {number}; there are: {known}")

    def kernel(self, name: str) -> LinkedKernel:
        """Return a kernel by its name; KeyError naming what there is if there is none."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        known = ", ".join(kernel.name for kernel in self.kernels) or "none"
        raise KeyError(f"there is no kernel {name!r}; there are: {known}")

    def to_data(self) -> dict[str, Any]:
        """Return everything as plain data, for views."""
        return asdict(self)

    def __str__(self) -> str:
        """Return each line with its instructions; one of several lines stands at the last."""
        below: dict[int, list[LinkedInstruction]] = {}
        rest = []
        for instruction in self.instructions:
            if instruction.lines:
                below.setdefault(max(instruction.lines), []).append(instruction)
            else:
                rest.append(instruction)
        width = len(str(len(self.instructions)))
        parts: list[str] = []
        for index, line in enumerate(self.lines):
            parts.append(f"{line.source}:{line.line}  {line.text}")
            for one in below.get(index, ()):
                others = [self.lines[i].line for i in one.lines if i != index]
                more = f"   (with line {', '.join(map(str, others))})" if others else ""
                parts.append(f"  {one.pc:>{width}}  {one.text}{more}")
        if rest:
            parts.append("of no line")
            parts += [f"  {one.pc:>{width}}  {one.text}" for one in rest]
        return "\n".join(parts)


def link_program(ex: VMExecutable) -> LinkedProgram:
    """Return the lines, instructions and kernels of an executable, with links.

    Parameters
    ----------
    ex
        An executable, built here or loaded.
    """
    numbers = _number_lines(ex)
    pcs_of: dict[tuple[str, int], list[int]] = {}
    instructions = []
    callers: dict[str, list[int]] = {}
    scripts = dict(_kernel_scripts(ex))
    bodies = [info for info in ex.func_table if info.kind == VMFuncKind.VM_FUNC]
    budget = TextBudget(ex)  # a hostile file may repeat a very long name
    for info in sorted(bodies, key=lambda info: info.start_instr):
        disassembly = lines_of(ex, info, budget=budget)
        for pc, (instruction, text) in enumerate(disassembly, info.start_instr):
            origin = ex.source_map.get(pc)
            kernel = None
            if isinstance(instruction, Call):
                name = function_name(ex, instruction.func_idx)
                kernel = name if name in scripts else None
            places = dict.fromkeys(
                (place.source, place.line) for place in (origin.places if origin else ())
            )
            for place in places:
                pcs_of.setdefault(place, []).append(pc)
            if kernel is not None:
                callers.setdefault(kernel, []).append(pc)
            instructions.append(
                LinkedInstruction(
                    pc,
                    info.name,
                    " ".join(text.split()),
                    "" if origin is None else origin.binding,
                    tuple(sorted(numbers[place][0] for place in places)),
                    kernel,
                )
            )
    by_pc = {one.pc: one for one in instructions}
    lines = tuple(
        LinkedLine(
            *place,
            text,
            tuple(pcs_of[place]),
            tuple(dict.fromkeys(k for pc in pcs_of[place] if (k := by_pc[pc].kernel))),
        )
        for place, (_, text) in numbers.items()
    )
    kernels = tuple(
        LinkedKernel(
            name,
            script,
            tuple(callers.get(name, ())),
            tuple(sorted({i for pc in callers.get(name, ()) for i in by_pc[pc].lines})),
        )
        for name, script in scripts.items()
    )
    return LinkedProgram(lines, tuple(instructions), kernels)


def _number_lines(ex: VMExecutable) -> dict[tuple[str, int], tuple[int, str]]:
    """Return the lines that instructions run, in the order of the text, with number and text."""
    texts = {
        (place.source, place.line): place.text
        for origin in ex.source_map.values()
        for place in origin.places
    }
    return {place: (i, texts[place]) for i, place in enumerate(sorted(texts))}


def _kernel_scripts(ex: VMExecutable) -> Iterator[tuple[str, str]]:
    """Yield the kernels of an executable, with their text where it is known."""
    pending: list[Any] = list(ex.imports)
    for library in pending:
        pending += library.imports
        if isinstance(library, SavedLibrary) and library.names:
            library = library.compiled(library.names[0])
        if isinstance(library, Library):
            for name, kernel in library.kernels.items():
                yield name, kernel.script()
        else:
            for name in getattr(library, "names", ()) or ():
                yield str(name), ""
