"""Functions that were compiled to bodies instead of bytecode, brought back to bytecode.

An executable built with ``exec_mode="compiled"`` has entries without instructions; what they do
stands in an imported library under ``__vmtir__<name>``. A :class:`FunctionBody` is that as data.
The machine puts the bodies of an executable together into bytecode once, so that they are
verified, stepped, observed and compiled like any other. Counterpart: TVM calls them as machine
code, which nobody can look into.

Examples
--------
>>> from relaxlab.runtime.vm.bytecode import VMFuncInfo
>>> class Bodies:
...     kind, imports = "demo", []
...     def get_function(self, name):
...         call = BodyCall(1, "vm.builtin.copy", (Arg(ArgKind.REGISTER, 0),))
...         return FunctionBody((call,)) if name == "__vmtir__f" else None
>>> ex = VMExecutable([VMFuncInfo(2, "f", num_args=1, register_file_size=2)], imports=[Bodies()])
>>> print(with_instructions(ex).as_text().splitlines()[1])
  call  vm.builtin.copy  in: %0           dst: %1
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from relaxlab.errors import InternalError
from relaxlab.runtime.vm.bytecode import (
    VALUE_LIMIT,
    Arg,
    ArgKind,
    Goto,
    If,
    Opcode,
    VMFuncInfo,
    VMFuncKind,
    pack,
)
from relaxlab.runtime.vm.executable import KernelLibrary, VMExecutable
from relaxlab.runtime.vm.verify import verify_executable

__all__ = [
    "BODY_PREFIX",
    "BodyCall",
    "BodyInstruction",
    "FunctionBody",
    "Literal",
    "find_in_library",
    "with_instructions",
]

BODY_PREFIX: Final = "__vmtir__"


@dataclass(frozen=True, slots=True)
class Literal:
    """An operand that stands in the body itself: an int, a float, a bool or a string."""

    value: int | float | str


@dataclass(frozen=True, slots=True)
class BodyCall:
    """Call the packed function ``callee``, put the result in register ``dst``.

    Operands of kind constant and function index the pools of the executable.
    """

    dst: int
    callee: str
    args: tuple[Arg | Literal, ...]


BodyInstruction = BodyCall | Goto | If


@dataclass(frozen=True, slots=True)
class FunctionBody:
    """What a compiled function does.

    Attributes
    ----------
    instructions
        Calls and jumps; running past the last one returns the register behind the parameters.
    """

    instructions: tuple[BodyInstruction, ...]

    def __call__(self, *_: Any) -> Any:
        """Refuse: a body needs the pools of its executable."""
        raise TypeError(
            "the body of a compiled function cannot be called by itself: make a VirtualMachine "
            "of the executable that imports it"
        )

    def __repr__(self) -> str:
        return f"FunctionBody({len(self.instructions)} instructions)"


def with_instructions(executable: VMExecutable) -> VMExecutable:
    """Return an executable in which every function is bytecode.

    It is the same object if it has no compiled function. Otherwise entries keep their indices,
    and packed functions that bodies call by name are added behind them.

    Raises
    ------
    InternalError
        If a body is missing, is machine code, or would not be safe to run.
    """
    if all(info.kind != VMFuncKind.VMTIR_FUNC for info in executable.func_table):
        return executable
    assembled = _Assembly(executable).result()
    verify_executable(assembled)
    return assembled


def find_in_library(library: KernelLibrary, name: str) -> Any:
    """Return the function of a library or of what it imports, or None."""
    found = library.get_function(name)
    if found is not None:
        return found
    for nested in library.imports:
        found = find_in_library(nested, name)
        if found is not None:
            return found
    return None


class _Assembly:
    """Puts the words of one executable together."""

    def __init__(self, executable: VMExecutable) -> None:
        self.executable = executable
        self.table: list[VMFuncInfo] = list(executable.func_table)
        self.constants: list[Any] = list(executable.constants)
        self.words: list[int] = executable.instr_data.tolist()
        self.offsets: list[int] = executable.instr_offset.tolist()
        self.callees = {
            info.name: index
            for index, info in enumerate(self.table)
            if info.kind == VMFuncKind.PACKED_FUNC
        }

    def result(self) -> VMExecutable:
        for index, info in enumerate(self.executable.func_table):
            if info.kind == VMFuncKind.VMTIR_FUNC:
                self.table[index] = self.assembled(info)
        ex = self.executable
        return VMExecutable(
            self.table, self.constants, ex.memory_scopes, self.offsets, self.words, ex.imports
        )

    def assembled(self, info: VMFuncInfo) -> VMFuncInfo:
        start = len(self.offsets)
        body = self.body(info.name)
        registers = max(info.register_file_size, info.num_args + 1)
        for instruction in body.instructions:
            match instruction:
                case BodyCall():
                    args = [self.operand(arg) for arg in instruction.args]
                    callee = self.callee(instruction.callee)
                    self.append(Opcode.CALL, instruction.dst, callee, len(args), *args)
                case If():
                    # a condition has a register of its own, which the entry does not count
                    registers = max(registers, instruction.cond + 1)
                    self.append(Opcode.IF, instruction.cond, instruction.false_offset)
                case Goto():
                    self.append(Opcode.GOTO, instruction.pc_offset)
        self.append(Opcode.RET, info.num_args)
        return replace(
            info,
            kind=int(VMFuncKind.VM_FUNC),
            start_instr=start,
            end_instr=len(self.offsets),
            register_file_size=registers,
        )

    def body(self, name: str) -> FunctionBody:
        symbol = BODY_PREFIX + name
        for library in self.executable.imports:
            found = find_in_library(library, symbol)
            if isinstance(found, FunctionBody):
                return found
            if found is not None:
                raise InternalError(
                    f"function {name!r} was compiled for exec_mode='compiled' of another system: "
                    f"its code, {symbol}, is in no form that this machine can run; "
                    "build the module with exec_mode='bytecode'"
                )
        kinds = ", ".join(library.kind for library in self.executable.imports) or "none"
        raise InternalError(
            f"function {name!r} was compiled with exec_mode='compiled', but its code, {symbol}, "
            f"is in no imported library ({kinds}): save the program with export_library, "
            "which keeps it, or build it with exec_mode='bytecode'"
        )

    def append(self, *words: int) -> None:
        self.offsets.append(len(self.words))
        self.words.extend(map(int, words))

    def callee(self, name: str) -> int:
        index = self.callees.get(name)
        if index is None:
            index = self.callees[name] = len(self.table)
            self.table.append(VMFuncInfo(int(VMFuncKind.PACKED_FUNC), name))
        return index

    def operand(self, operand: Arg | Literal) -> int:
        if isinstance(operand, Arg):
            return pack(operand.kind, operand.value)
        value = operand.value
        if type(value) is int and -VALUE_LIMIT <= value <= VALUE_LIMIT:
            return pack(ArgKind.IMMEDIATE, value)
        self.constants.append(value)
        return pack(ArgKind.CONST_IDX, len(self.constants) - 1)
