"""The three text forms of an executable: disassembly, builder program, statistics.

The texts are TVM's to the byte (``as_text``, ``as_python``, ``stats`` of ``VMExecutable``), so that
a program can be compared across the two by comparing strings. One thing is ours: ``stats`` prints
constants on which TVM's fails (floats, None, bool, tuples). A program that is not verified can have
functions that overlap, or names that are repeated without end: a text much longer than the program
is refused.

Examples
--------
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> print(stats(VMExecutable()), end="")
Relax VM executable statistics:
  Constant pool (# 0): []
  Globals (#0): []
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.vm.bytecode import (
    VM_REGISTER,
    VOID_REGISTER,
    Arg,
    ArgKind,
    Call,
    Goto,
    If,
    Instruction,
    Ret,
    VMFuncInfo,
    VMFuncKind,
    register_name,
)

if TYPE_CHECKING:
    from relaxlab.runtime.vm.executable import VMExecutable

__all__ = [
    "TextBudget",
    "arg_text",
    "as_python",
    "as_text",
    "call_text",
    "constant_text",
    "function_name",
    "instruction_text",
    "lines_of",
    "stats",
]

_FREE_CHARACTERS: Final = 2**22
_CHARACTERS_PER_WORD: Final = 128  # a usual call takes 16


def as_text(ex: "VMExecutable") -> str:
    """Return the disassembly: every table entry in order, its instructions below it.

    Raises
    ------
    InternalError
        For an unknown opcode or argument kind, or a text far longer than the program.
    """
    parts = []
    budget = TextBudget(ex)
    for info in ex.func_table:
        match info.kind:
            case VMFuncKind.PACKED_FUNC:
                parts.append(f"@{info.name} packed_func;\n\n")
            case VMFuncKind.VM_FUNC:
                lines = [f"  {line}\n" for _, line in lines_of(ex, info, budget=budget)]
                parts.append(f"@{info.name}:\n{''.join(lines)}\n")
            case VMFuncKind.VMTIR_FUNC:
                parts.append(f"@{info.name} num_inputs={info.num_args} vm_tir_func;\n\n")
            case _:
                pass  # TVM prints nothing for a kind it does not know
    return "".join(parts)


class TextBudget:
    """How many characters the text of an executable may still have."""

    def __init__(self, ex: "VMExecutable") -> None:
        self.left = _FREE_CHARACTERS + _CHARACTERS_PER_WORD * len(ex.instr_data)
        self.longest_name = max((len(info.name) for info in ex.func_table), default=0)

    def spend(self, characters: int, info: VMFuncInfo, pc: int) -> None:
        """Take characters for instruction ``pc``, or refuse."""
        self.left -= characters
        if self.left < 0:
            raise InternalError(
                f"the text of function {info.name[:80]!r}, instruction {pc}, is far longer than "
                "the program: functions overlap, or a very long name is repeated"
            )


def lines_of(
    ex: "VMExecutable",
    info: VMFuncInfo,
    write: "Callable[[VMExecutable, Instruction], str] | None" = None,
    *,
    budget: TextBudget | None = None,
) -> Iterator[tuple[Instruction, str]]:
    """Yield the instructions of a bytecode function, each with its text.

    Parameters
    ----------
    ex, info
        The executable and the entry of its table.
    write
        What makes the text; :func:`instruction_text` when omitted.
    budget
        What the text of the whole executable may still need.

    Raises
    ------
    InternalError
        As :func:`as_text`.
    """
    write, budget = write or instruction_text, budget or TextBudget(ex)
    for pc in range(info.start_instr, info.end_instr):
        instruction = ex.instruction(pc)
        if isinstance(instruction, Call):
            # names can make one line longer than memory, so look before it is written
            most = (len(instruction.args) + 1) * (budget.longest_name + 24)
            budget.spend(max(0, most - _FREE_CHARACTERS), info, pc)
        line = write(ex, instruction)
        budget.spend(len(line), info, pc)
        yield instruction, line


def instruction_text(ex: "VMExecutable", instruction: Instruction) -> str:
    """Return one line of the disassembly, without its indentation."""
    match instruction:
        case Call(args=args):
            return call_text(ex, instruction, [arg_text(ex, arg) for arg in args])
        case Ret(result):
            return f"ret   {register_name(result)}"
        case Goto(pc_offset):
            return f"goto  {pc_offset}"
        case If(cond, false_offset):
            return f"If    {register_name(cond)}, {false_offset}"


def call_text(ex: "VMExecutable", call: Call, operands: list[str]) -> str:
    """Return the line of a call whose operands are texts already."""
    callee = _pad(function_name(ex, call.func_idx), 16)
    return f"call  {callee} in: {_pad(', '.join(operands), 12)} dst: {register_name(call.dst)}"


def arg_text(ex: "VMExecutable", arg: Arg) -> str:
    """Return an operand as the disassembly writes it: ``%1``, ``i-3``, ``c[0]``, ``f[name]``."""
    match arg.kind:
        case ArgKind.REGISTER:
            return register_name(arg.value)
        case ArgKind.IMMEDIATE:
            return f"i{arg.value}"
        case ArgKind.CONST_IDX:
            return f"c[{arg.value}]"
        case ArgKind.FUNC_IDX:
            return f"f[{function_name(ex, arg.value)}]"


def function_name(ex: "VMExecutable", index: int) -> str:
    """Return the name of a table entry; TVM's stand-in for an index outside the table."""
    if 0 <= index < len(ex.func_table):
        return ex.func_table[index].name
    return f"unknown_func_index({index})"


def as_python(ex: "VMExecutable") -> str:
    """Return a program that builds the bytecode functions with an ``ExecBuilder``.

    Raises
    ------
    InternalError
        For an unknown opcode or argument kind, or a text far longer than the program.
    """
    budget = TextBudget(ex)
    lines = ["ib = rx.Builder()\n"]
    for info in ex.func_table:
        if info.kind == VMFuncKind.VM_FUNC:
            lines.append(f'with ib.function("{info.name}", num_inputs={info.num_args}):\n')
            body = lines_of(ex, info, _python_line, budget=budget)
            lines += [f"    {line}\n" for _, line in body]
    return "".join(lines)


def _python_line(ex: "VMExecutable", instruction: Instruction) -> str:
    match instruction:
        case Call(dst, func_idx, args):
            operands = ", ".join(_python_arg(ex, arg) for arg in args)
            target = "" if dst == VOID_REGISTER else f", dst=ib.r({dst})"
            return f"ib.emit_call({_python_function(ex, func_idx)}, args=[{operands}]{target})"
        case Ret(result):
            return f"ib.emit_ret(ib.r({result}))"
        case Goto(pc_offset):
            return f"ib.emit_goto({pc_offset})"
        case If(cond, false_offset):
            return f"ib.emit_if(ib.r({cond}), {false_offset})"


def _python_arg(ex: "VMExecutable", arg: Arg) -> str:
    match arg.kind:
        case ArgKind.REGISTER:
            return "ib.r(vm)" if arg.value == VM_REGISTER else f"ib.r({arg.value})"
        case ArgKind.IMMEDIATE:
            return f"ib.imm({arg.value})"
        case ArgKind.CONST_IDX:
            return f"ib.c({arg.value})"
        case ArgKind.FUNC_IDX:
            return f"ib.f({_python_function(ex, arg.value)})"


def _python_function(ex: "VMExecutable", index: int) -> str:
    if 0 <= index < len(ex.func_table):
        return f'"{ex.func_table[index].name}"'
    return f"ib.unknown_func_index({index})"


def stats(ex: "VMExecutable") -> str:
    """Return three lines: a title, the constants and the names of the function table."""
    constants = ", ".join(constant_text(value) for value in ex.constants)
    names = ", ".join(info.name for info in ex.func_table)
    return (
        "Relax VM executable statistics:\n"
        f"  Constant pool (# {len(ex.constants)}): [{constants}]\n"
        f"  Globals (#{len(ex.func_table)}): [{names}]\n"
    )


def constant_text(value: Any) -> str:
    """Return a constant as the statistics write it."""
    match value:
        case Tensor():
            return _bracketed(value.shape) if len(value.shape) else "scalar"
        case ShapeTuple():
            # TVM writes ", " after every extent and steps back by two before the bracket; without
            # an extent the step eats into the word. Its users compare this text, so we keep it.
            return f"shapetuple{_bracketed(value)}" if len(value) else "shapetupl]"
        case str():
            return f'"{value}"'
        case DataType():
            return str(value)
        case tuple() | list():
            return f"({', '.join(map(constant_text, value))})"
        case _:
            return repr(value)


def _bracketed(extents: Any) -> str:
    return f"[{', '.join(str(int(extent)) for extent in extents)}]"


def _pad(text: str, width: int) -> str:
    # widths count bytes, as in C++; names may hold any letters
    return text + " " * (width - len(text.encode("utf-8", "surrogateescape")))
