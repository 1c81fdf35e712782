"""From words to what the loop runs, once per machine.

Reading packed words at every step costs more than executing them. So each function is decoded
once: every argument becomes an index into the frame's list of slots, every callee an object, and
every jump an index into the function's own code. Constants, immediates, ``%vm`` and ``%void`` get
slots behind the registers, which is why nothing needs to be told apart while running.

Mistakes that TVM finds when it reaches them (an unknown callee, a register out of range, a jump
out of the program) become traps at the same place, so a broken function does no harm until it is
called, and a path that is never taken may be broken. There is no TVM counterpart.

A linked instruction is ``(operation, target, read, slot)``:

=========  ====================  =================  ==================================
operation  target                read               slot
=========  ====================  =================  ==================================
CALL       host function         arguments          destination, or None
ENTER      ``LinkedFunction``    arguments          destination, or None
INVOKE     the builtin           machine, closure,  destination, or None
           ``invoke_closure``    arguments
IF         where to go if false                     condition
GOTO       where to go
RET                                                 result
TRAP       error, message                           the instruction that led here
=========  ====================  =================  ==================================

Examples
--------
>>> from relaxlab.runtime.vm.bytecode import VMFuncInfo
>>> identity = VMExecutable([VMFuncInfo(1, "f", 0, 1, 1, 1)], (), {}, [0], [2, 0])
>>> link(identity, identity.constants).functions["f"].function.code[0] == (RET, None, None, 0)
True
"""

import difflib
import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import itemgetter
from typing import Any, Final

from relaxlab.errors import InternalError
from relaxlab.runtime.packed_func import GLOBAL_FUNCTIONS, PackedFunc
from relaxlab.runtime.values import PLAIN_TYPES, as_value
from relaxlab.runtime.vm.builtin.table import BUILTINS
from relaxlab.runtime.vm.bytecode import (
    FIRST_SPECIAL_REGISTER,
    VM_REGISTER,
    VOID_REGISTER,
    ArgKind,
    Opcode,
    VMFuncInfo,
    VMFuncKind,
    kind_number,
    value_of,
)
from relaxlab.runtime.vm.executable import VMExecutable
from relaxlab.runtime.vm.frame import Closure, LinkedFunction, LinkedInstruction
from relaxlab.runtime.vm.function_body import find_in_library, with_instructions

__all__ = ["CALL", "ENTER", "GOTO", "IF", "INVOKE", "Program", "RET", "TRAP", "find_host", "link"]

# in the order in which the loop asks for them
CALL: Final = 0
IF: Final = 1
GOTO: Final = 2
RET: Final = 3
ENTER: Final = 4
INVOKE: Final = 5
TRAP: Final = 6

# members of an enumeration would be looked up, and compared slowly, at every instruction
_CALL, _RET, _GOTO, _IF = (
    int(opcode) for opcode in (Opcode.CALL, Opcode.RET, Opcode.GOTO, Opcode.IF)
)
_INVOKE_CLOSURE: Final = "vm.builtin.invoke_closure"
_MAX_REGISTERS: Final = 1_000_000


class Program:
    """A linked executable.

    Attributes
    ----------
    executable
        What was linked; its compiled functions have become bytecode, see ``function_body.py``.
    constants
        Its constant pool as register values.
    pool
        One value per entry of the function table: a closure or a host function.
    functions
        The same by name; of two entries with one name the later wins. What only compiled
        functions call is not among them.
    entries
        The entries of ``functions`` in the function table.
    """

    def __init__(
        self,
        executable: VMExecutable,
        constants: list[Any],
        pool: list[Closure | PackedFunc],
        visible: int,
    ) -> None:
        self.executable = executable
        self.constants = constants
        self.pool = pool
        self.functions: dict[str, Any] = {
            info.name: value
            for info, value in zip(executable.func_table[:visible], pool[:visible], strict=True)
        }
        self.entries = {info.name: info for info in executable.func_table[:visible]}

    @cached_property
    def kernels(self) -> frozenset[int]:
        """Identities of the host functions that keep no argument when they have returned."""
        return frozenset(
            id(value)
            for info, value in zip(self.executable.func_table, self.pool, strict=True)
            if info.kind == VMFuncKind.PACKED_FUNC
            and _forgets_arguments(self.executable, info.name)
        )


def link(executable: VMExecutable, constants: Iterable[Any]) -> Program:
    """Link every function of ``executable``.

    Parameters
    ----------
    executable
        What to link; it is not changed.
    constants
        Its pool, with tensors already on the device.

    Raises
    ------
    InternalError
        If a host function is found neither in the imported libraries nor among the global
        functions, or an entry is of a kind that this machine cannot run.
    """
    visible, own_constants = len(executable.func_table), len(executable.constants)
    executable = with_instructions(executable)
    pool: list[Closure | PackedFunc] = []
    for info in executable.func_table:
        if info.kind == VMFuncKind.VM_FUNC:
            pool.append(Closure(_shell(info, executable)))
        elif info.kind == VMFuncKind.PACKED_FUNC:
            pool.append(_require_host(executable, info.name))
        else:
            raise InternalError(
                f"function {info.name!r} is of unknown kind {info.kind}: "
                "expected 0 (packed), 1 (bytecode) or 2 (compiled)"
            )
    values = [*map(as_value, constants), *executable.constants[own_constants:]]
    program = Program(executable, values, pool, visible)
    linker = _Linker(program)
    with _without_collection():
        for info, value in zip(executable.func_table, pool, strict=True):
            if isinstance(value, Closure):
                value.function.home = program
                linker.link_function(value.function, info)
    return program


@contextmanager
def _without_collection() -> Iterator[None]:
    """Keep the garbage collector from visiting, again and again, tuples that stay."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def find_host(executable: VMExecutable, name: str) -> PackedFunc | None:
    """Return the host function ``name``: from the imports, else a global function."""
    for library in executable.imports:
        found: PackedFunc | None = find_in_library(library, name)
        if found is not None:
            return found
    return GLOBAL_FUNCTIONS.find(name)


def _forgets_arguments(executable: VMExecutable, name: str) -> bool:
    """Whether the first library that has ``name`` says that it keeps none of its arguments."""
    for library in executable.imports:
        if library.get_function(name) is not None:
            forgets = getattr(library, "forgets_arguments", None)
            return forgets is not None and bool(forgets(name))
        if find_in_library(library, name) is not None:
            return False
    return False


def _require_host(executable: VMExecutable, name: str) -> PackedFunc:
    found = find_host(executable, name)
    if found is None:
        near = difflib.get_close_matches(name, GLOBAL_FUNCTIONS.names(), n=3)
        hint = f"; did you mean {', '.join(map(repr, near))}?" if near else ""
        kinds = ", ".join(library.kind for library in executable.imports) or "none"
        raise InternalError(
            f"cannot find the packed function {name!r}: expected it in an imported library "
            f"({kinds}) or among the global functions{hint}"
        )
    return found


def _shell(info: VMFuncInfo, executable: VMExecutable) -> LinkedFunction:
    """Return the function without code: others may refer to it before it is linked."""
    size = max(info.register_file_size, info.num_args, 0)
    if size > _MAX_REGISTERS:
        raise InternalError(
            f"function {info.name!r} wants {size} registers: expected at most {_MAX_REGISTERS}"
        )
    return LinkedFunction(info.name, info.num_args, size, tuple(info.param_names), executable)


class _BrokenOperandError(Exception):
    """A word that cannot be linked; it becomes a trap."""

    def __init__(self, error: type[Exception], message: str) -> None:
        super().__init__(message)
        self.error = error


class _Linker:
    """Links the functions of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.words: list[int] = program.executable.instr_data.tolist()
        self.offsets: list[int] = program.executable.instr_offset.tolist()
        self.table = program.executable.func_table
        self.targets = [
            value.function if isinstance(value, Closure) else _converting(value, info.name)
            for info, value in zip(self.table, program.pool, strict=True)
        ]
        self.slots: dict[tuple[int, int], int] = {}
        self.traps: list[LinkedInstruction] = []
        self.invoke_closure = BUILTINS.find(_INVOKE_CLOSURE)
        self.function = LinkedFunction("", 0, 0)

    def link_function(self, function: LinkedFunction, info: VMFuncInfo) -> None:
        """Fill ``function.code`` and ``function.template``."""
        self.function = function
        self.slots = {(ArgKind.REGISTER, VM_REGISTER): function.machine_slot}
        start, end = self._hull(info.start_instr, info.end_instr)
        # a range that lies outside of the program is empty
        function.base, function.entry = start, info.start_instr - start if start < end else 0
        function.length = end - start
        self.traps = []
        if start == end:
            self._trap_index(start, "it has no instructions")
        else:
            self._trap_index(end - 1, f"instruction {end} does not exist")
        code = [self._instruction(pc) for pc in range(start, end)]
        function.code = code + self.traps

    def _hull(self, start: int, end: int) -> tuple[int, int]:
        """Return the range of instructions that a function can reach.

        It is the function's own range, unless a jump leaves it or its last instruction lets
        control run on: the machine does not enforce ends, so what follows belongs to it too.
        """
        total = len(self.offsets)
        start, end = max(0, min(start, total)), max(0, min(end, total))
        if start >= end:
            return start, start
        seen_start, seen_end = start, start
        while (seen_start, seen_end) != (start, end):
            fresh = [*range(start, seen_start), *range(seen_end, end)]
            seen_start, seen_end = start, end
            for pc in fresh:
                for successor in self._successors(pc):
                    if 0 <= successor < total:
                        start, end = min(start, successor), max(end, successor + 1)
        return start, end

    def _successors(self, pc: int) -> Sequence[int]:
        at = self.offsets[pc]
        opcode = self._word(at)
        if opcode == _CALL:
            return (pc + 1,)
        if opcode == _GOTO:
            return (pc + self._word(at + 1),)
        if opcode == _IF:
            return (pc + 1, pc + self._word(at + 2))
        return ()

    def _word(self, at: int) -> int:
        return self.words[at] if 0 <= at < len(self.words) else 0

    def _trap_index(self, pc: int, message: str) -> int:
        """Append a trap behind the code and return its index; the first catches running on."""
        self.traps.append(self._trap(InternalError, message, pc))
        return self.function.length + len(self.traps) - 1

    def _instruction(self, pc: int) -> LinkedInstruction:
        at = self.offsets[pc]
        opcode = self._word(at)
        try:
            if opcode == _CALL:
                return self._call(at)
            if opcode == _RET:
                return (RET, None, None, self._register(self._word(at + 1)))
            if opcode == _GOTO:
                return (GOTO, self._jump(pc, self._word(at + 1)), None, None)
            if opcode == _IF:
                slot, offset = self._register(self._word(at + 1)), self._word(at + 2)
                if offset > 1:
                    return (IF, self._jump(pc, offset), None, slot)
                message = f"the If has false offset {offset}, expected > 1"
                return (IF, self._trap_index(pc, message), None, slot)
            raise _BrokenOperandError(InternalError, f"unknown opcode {opcode}")
        except _BrokenOperandError as broken:
            return self._trap(broken.error, str(broken), pc)

    def _jump(self, pc: int, offset: int) -> int:
        """Return the index in the function's code of a jump's target."""
        index = pc + offset - self.function.base
        if 0 <= index < self.function.length:
            return index
        return self._trap_index(pc, f"the jump leads to {pc + offset}, which does not exist")

    def _call(self, at: int) -> LinkedInstruction:
        words, registers = self.words, self.function.num_registers
        if 0 <= at <= len(words) - 4:
            dst, callee, count = words[at + 1 : at + 4]
        else:  # cut off
            dst, callee, count = self._word(at + 1), self._word(at + 2), self._word(at + 3)
        if not 0 <= callee < len(self.targets):
            raise _BrokenOperandError(
                InternalError,
                f"function index {callee} is out of range: the table has {len(self.targets)}",
            )
        if count < 0 or at + 4 + count > len(self.words):
            raise _BrokenOperandError(InternalError, f"a call cannot have {count} arguments")
        indices = [
            word if 0 <= word < registers else self._operand(word)
            for word in words[at + 4 : at + 4 + count]
        ]
        slot: int | None = None
        if dst < FIRST_SPECIAL_REGISTER:
            slot = self._register(dst)
        target = self.targets[callee]
        if isinstance(target, LinkedFunction):
            operation = ENTER
        else:
            invokes = target is self.invoke_closure and len(indices) > 1
            operation = INVOKE if invokes else CALL
        return (operation, target, _reader(indices), slot)

    def _operand(self, word: int) -> int:
        """Return the slot that holds the value of an argument word."""
        kind, value = kind_number(word), value_of(word)
        if kind == ArgKind.REGISTER:
            return self._register(value)
        key = (kind, value)
        slot = self.slots.get(key)
        if slot is None:
            slot = self.slots[key] = self._new_slot(self._constant(kind, value))
        return slot

    def _constant(self, kind: int, value: int) -> Any:
        match kind:
            case ArgKind.IMMEDIATE:
                return value
            case ArgKind.CONST_IDX:
                pool: Sequence[Any] = self.program.constants
                what = "constant"
            case ArgKind.FUNC_IDX:
                pool, what = self.program.pool, "function"
            case _:
                raise _BrokenOperandError(ValueError, f"unknown argument kind {kind}")
        if not 0 <= value < len(pool):
            raise _BrokenOperandError(
                InternalError, f"{what} index {value} is out of range: the pool has {len(pool)}"
            )
        return pool[value]

    def _register(self, number: int) -> int:
        if 0 <= number < self.function.num_registers:
            return number
        key = (int(ArgKind.REGISTER), number)
        slot = self.slots.get(key)
        if slot is not None:
            return slot
        if number == VOID_REGISTER:
            slot = self.slots[key] = self._new_slot(None)
            return slot
        raise _BrokenOperandError(
            InternalError,
            f"register {number} is out of range: the frame has {self.function.num_registers}",
        )

    def _new_slot(self, value: Any) -> int:
        self.function.template.append(value)
        return len(self.function.template) - 1

    def _trap(self, error: type[Exception], message: str, pc: int) -> LinkedInstruction:
        where = f"in @{self.function.name}, instruction {pc}"
        return (TRAP, (error, f"{where}: {message}"), None, pc - self.function.base)


def _reader(slots: list[int]) -> Callable[[list[Any]], Sequence[Any]]:
    """Return a function from a frame's slots to the values of the given ones."""
    match slots:
        case []:
            return itemgetter(slice(0, 0))
        case [slot]:
            return itemgetter(slice(slot, slot + 1))
        case _:
            return itemgetter(*slots)


def _converting(function: PackedFunc, name: str) -> PackedFunc:
    """Return ``function`` so that its result is a register value; builtins see to it themselves."""
    if function is BUILTINS.find(name):
        return function

    def call(*args: Any) -> Any:
        result = function(*args)
        return result if type(result) in PLAIN_TYPES else as_value(result)

    call.__name__ = name
    vars(call)["__wrapped__"] = function
    return call
