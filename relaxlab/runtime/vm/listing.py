"""The bytecode word by word: each 64-bit word in hexadecimal, with what it means.

The disassembly says what an instruction does; the listing says how it is written down. Counterpart:
``objdump -d`` for other machines; TVM has none.

Examples
--------
>>> from relaxlab.runtime.vm.bytecode import VMFuncInfo
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> identity = VMExecutable([VMFuncInfo(1, "f", 0, 1, 1, 1, ("x",))], (), {}, [0], [2, 0])
>>> print(listing(identity).rstrip())
@f: instructions 0 to 0, parameters x, 1 register
    0  ret   %0
           0  0000000000000002  Ret
           1  0000000000000000  result %0
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relaxlab.runtime.vm.bytecode import (
    Call,
    Goto,
    If,
    Instruction,
    Ret,
    VMFuncInfo,
    VMFuncKind,
    register_name,
)
from relaxlab.runtime.vm.disassemble import TextBudget, arg_text, function_name, lines_of

if TYPE_CHECKING:
    from relaxlab.runtime.vm.executable import VMExecutable

__all__ = ["Word", "listing", "words_of"]


@dataclass(frozen=True, slots=True)
class Word:
    """One word of an instruction.

    Attributes
    ----------
    pc
        Index of the instruction.
    at
        Index of the word in the instruction data.
    value
        The signed number.
    meaning
        What it says.
    """

    pc: int
    at: int
    value: int
    meaning: str

    @property
    def hex(self) -> str:
        """The word as 16 digits."""
        return f"{self.value & (2**64 - 1):016x}"


def listing(ex: "VMExecutable") -> str:
    """Return all functions with all words.

    Raises
    ------
    InternalError
        For an unknown opcode or argument kind, or a text far longer than the program.
    """
    budget = TextBudget(ex)
    lines: list[str] = []
    for info in ex.func_table:
        if info.kind != VMFuncKind.VM_FUNC:
            lines.append(f"@{info.name}: {_kind(info)}\n\n")
            continue
        lines.append(f"@{info.name}: {_shape(info)}\n")
        for pc, (instruction, text) in enumerate(
            lines_of(ex, info, budget=budget), info.start_instr
        ):
            lines.append(f"{pc:5}  {text.rstrip()}\n")
            lines += [
                f"{word.at:12}  {word.hex}  {word.meaning}\n"
                for word in words_of(ex, pc, instruction)
            ]
        lines.append("\n")
    return "".join(lines)


def words_of(ex: "VMExecutable", pc: int, instruction: Instruction) -> Iterator[Word]:
    """Yield the words of one instruction."""
    first = int(ex.instr_offset[pc])
    for at, meaning in enumerate(_meanings(ex, pc, instruction), first):
        yield Word(pc, at, int(ex.instr_data[at]), meaning)


def _meanings(ex: "VMExecutable", pc: int, instruction: Instruction) -> Iterator[str]:
    match instruction:
        case Call(dst, func_idx, args):
            yield "Call"
            yield f"dst {register_name(dst)}"
            yield f"function {func_idx}: {function_name(ex, func_idx)}"
            yield f"{len(args)} argument{'' if len(args) == 1 else 's'}"
            for arg in args:
                yield f"{arg.kind.name.lower().replace('_idx', '')} {arg_text(ex, arg)}"
        case Ret(result):
            yield "Ret"
            yield f"result {register_name(result)}"
        case Goto(offset):
            yield "Goto"
            yield f"{offset:+} to instruction {pc + offset}"
        case If(cond, offset):
            yield "If"
            yield f"condition {register_name(cond)}"
            yield f"if 0: {offset:+} to instruction {pc + offset}"


def _kind(info: VMFuncInfo) -> str:
    match info.kind:
        case VMFuncKind.PACKED_FUNC:
            return "host function, found by name"
        case VMFuncKind.VMTIR_FUNC:
            return f"compiled function of {info.num_args} parameters"
        case kind:
            return f"entry of unknown kind {kind}"


def _shape(info: VMFuncInfo) -> str:
    names = ", ".join(info.param_names)
    parameters = f"parameters {names}" if names else f"{info.num_args} parameters"
    plural = "" if info.register_file_size == 1 else "s"
    return (
        f"instructions {info.start_instr} to {info.end_instr - 1}, {parameters}, "
        f"{info.register_file_size} register{plural}"
    )
