"""Build an executable instruction by instruction.

The code generator of the compiler uses it, and so do people who write bytecode by hand: in tests,
in notebooks, to see what four opcodes can do. Counterpart: ``tvm.relax.ExecBuilder``, same method
names, same renumbering of registers, same checks in ``get()``.

Examples
--------
>>> ib = ExecBuilder()
>>> with ib.function("twice", num_inputs=1):
...     ib.emit_call("demo.add", args=[ib.r(0), ib.r(0)], dst=ib.r(1))
...     ib.emit_ret(ib.r(1))
>>> print(ib.get().as_text(), end="")
@twice:
  call  demo.add         in: %0, %0       dst: %1
  ret   %1
<BLANKLINE>
@demo.add packed_func;
<BLANKLINE>
"""

import operator
import struct
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from enum import IntEnum
from types import TracebackType
from typing import Any, Self

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.runtime.container import Array, ShapeTuple
from relaxlab.runtime.device import Device
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor, tensor
from relaxlab.runtime.vm.bytecode import (
    FIRST_SPECIAL_REGISTER,
    INT64_MAX,
    INT64_MIN,
    UNDEFINED_NUM_ARGS,
    VALUE_LIMIT,
    VM_REGISTER,
    VOID_REGISTER,
    ArgKind,
    Opcode,
    VMFuncInfo,
    VMFuncKind,
    kind_number,
    pack,
    register_name,
    value_of,
)
from relaxlab.runtime.vm.executable import VMExecutable
from relaxlab.runtime.vm.source_map import Origin, SourceMap

__all__ = ["ExecBuilder", "SpecialReg", "VMFuncKind", "VMFuncScope"]


class SpecialReg(IntEnum):
    """Register numbers with a meaning of their own."""

    VOID_ARG = VOID_REGISTER
    VM_STATE = VM_REGISTER


class VMFuncScope:
    """The ``with`` block of one function under construction; leaving it ends the function."""

    def __init__(self, builder: "ExecBuilder", name: str) -> None:
        self._builder = builder
        self.name = name

    def __enter__(self) -> Self:
        self._builder._scopes.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._builder._scopes.remove(self)
        self._builder._end_function(self.name)


class ExecBuilder:
    """Collects functions, constants and instructions; ``get()`` returns the executable."""

    def __init__(self) -> None:
        self._ex = VMExecutable()
        self._table: list[VMFuncInfo] = []
        self._index: dict[str, int] = {}
        self._implicit: set[str] = set()
        self._constants: list[Any] = []
        self._known: dict[Hashable, int] = {}
        self._memory_scopes: dict[int, str] = {}
        self._offsets: list[int] = []
        self._words: list[int] = []
        self._open: set[str] = set()
        self._scopes: list[VMFuncScope] = []
        #: Where instructions come from; what a code generator notes ends up in ``ex.source_map``.
        self.origins: dict[int, Origin | Callable[[], Origin]] = {}

    # ---- operands ---------------------------------------------------------------------------

    def r(self, idx: int) -> int:
        """Return the argument word of register ``idx``."""
        return pack(ArgKind.REGISTER, idx)

    def imm(self, value: int) -> int:
        """Return the argument word of an integer; beyond ±(2**55-1) is an ``InternalError``."""
        return pack(ArgKind.IMMEDIATE, value)

    def c(self, idx: int) -> int:
        """Return the argument word of constant ``idx``."""
        return pack(ArgKind.CONST_IDX, idx)

    def f(self, name: str) -> int:
        """Return the argument word of a declared function; otherwise an ``InternalError``."""
        return self.get_function(name)

    def void_arg(self) -> int:
        """Return the argument word of ``%void``, which reads as None."""
        return self.r(SpecialReg.VOID_ARG)

    def vm_state(self) -> int:
        """Return the argument word of ``%vm``, the running machine."""
        return self.r(SpecialReg.VM_STATE)

    def convert_constant(self, const: Any) -> int:
        """Return the argument word of a value, putting it in the pool unless it is there.

        A plain integer of at most 2**55-1 in magnitude becomes an immediate. Two values share an
        entry if kind and content are equal: dtype, shape and bytes of tensors; all NaN are one
        value; 0.0, -0.0, 0 and False are four.

        Raises
        ------
        TypeError
            For a value without content to compare, such as a function.
        """
        value = _plain(const)
        if type(value) is int and -VALUE_LIMIT <= value <= VALUE_LIMIT:
            return self.imm(value)
        key = _content(value)
        index = self._known.get(key)
        if index is None:
            index = self._known[key] = len(self._constants)
            self._constants.append(value)
        return self.c(index)

    # ---- functions --------------------------------------------------------------------------

    def declare_function(self, func_name: str, kind: int = VMFuncKind.PACKED_FUNC) -> None:
        """Add an entry to the function table, or nothing if it is there with the same kind.

        Declare a bytecode function that is called before it is defined with
        ``kind=VMFuncKind.VM_FUNC``.

        Raises
        ------
        InternalError
            If the name is declared with another kind.
        """
        index = self._index.get(func_name)
        if index is None:
            self._index[func_name] = len(self._table)
            self._table.append(VMFuncInfo(int(kind), func_name))
            return
        info = self._table[index]
        if info.kind == kind:
            self._implicit.discard(func_name)
        elif func_name in self._implicit and kind == VMFuncKind.VM_FUNC:
            self._promote(index)
        else:
            raise InternalError(
                f"function {func_name!r} is declared with kind {info.kind}, "
                f"it cannot also have kind {int(kind)}"
            )

    def function(
        self, func_name: str, num_inputs: int = 0, param_names: Sequence[str] | None = None
    ) -> VMFuncScope:
        """Start a bytecode function; use the result in a ``with`` statement, which ends it.

        Raises
        ------
        InternalError
            If the function is defined already or declared as packed, or the number of
            ``param_names`` is not ``num_inputs``.
        TypeError
            If ``num_inputs`` is no integer.
        """
        try:
            count = operator.index(num_inputs)
        except TypeError:
            raise TypeError(
                f"num_inputs of {func_name!r}: expected an integer, got {num_inputs!r}"
            ) from None
        names = tuple(param_names or ())
        if param_names is not None and len(names) != count:
            raise InternalError(
                f"function {func_name!r} has {count} inputs, but {len(names)} parameter names"
            )
        index = self._index.get(func_name)
        if index is not None and self._table[index].num_args != UNDEFINED_NUM_ARGS:
            raise InternalError(f"function {func_name!r} is defined already")
        self.declare_function(func_name, VMFuncKind.VM_FUNC)
        index = self._index[func_name]
        self._table[index] = replace(
            self._table[index],
            start_instr=len(self._offsets),
            num_args=count,
            param_names=names,
        )
        self._open.add(func_name)
        return VMFuncScope(self, func_name)

    def declare_tir_function(
        self,
        func_name: str,
        num_inputs: int,
        register_file_size: int,
        param_names: Sequence[str] = (),
    ) -> None:
        """Define a function compiled to ``__vmtir__<name>``; it has no instructions."""
        self.declare_function(func_name, VMFuncKind.VMTIR_FUNC)
        index = self._index[func_name]
        self._table[index] = replace(
            self._table[index],
            num_args=num_inputs,
            register_file_size=register_file_size,
            param_names=tuple(param_names),
        )

    def _promote(self, index: int) -> None:
        """Turn an entry made by an earlier call into a bytecode function."""
        self._table[index] = replace(self._table[index], kind=int(VMFuncKind.VM_FUNC))
        self._implicit.discard(self._table[index].name)

    def _end_function(self, name: str) -> None:
        if name not in self._open:
            raise InternalError(f"function {name!r} has ended already")
        self._open.remove(name)
        index = self._index[name]
        self._table[index] = replace(self._table[index], end_instr=len(self._offsets))

    # ---- instructions -----------------------------------------------------------------------

    def emit_call(
        self, name: str, args: Sequence[Any] | None = None, dst: int | None = None
    ) -> None:
        """Append a Call.

        Parameters
        ----------
        name
            Callee; an unknown name is declared as packed.
        args
            Argument words. A tensor, an array, a dtype or a shape (also a plain tuple) becomes a
            constant; any other value must be a packed word, so 5 means register 5.
        dst
            Register number, or ``ib.r(n)``; None drops the result.

        Raises
        ------
        InternalError
            If ``dst`` is no register.
        TypeError
            If an argument is no word, for example a str, a list or a float.
        ValueError
            Outside any ``function`` scope.
        """
        self._require_scope("emit_call")
        words = [self._argument(name, position, arg) for position, arg in enumerate(args or ())]
        target = SpecialReg.VOID_ARG if dst is None else operator.index(dst)
        pack(ArgKind.REGISTER, target)  # refuses a constant or function word
        if name not in self._index:
            self.declare_function(name)
            self._implicit.add(name)
        self._append(Opcode.CALL, int(target), self._index[name], len(words), *words)

    def _argument(self, name: str, position: int, arg: Any) -> int:
        if isinstance(arg, tuple) and not isinstance(arg, ShapeTuple):
            return self.convert_constant(ShapeTuple(arg))
        if isinstance(arg, Tensor | DataType | ShapeTuple | np.ndarray):
            return self.convert_constant(arg)
        try:
            word = operator.index(arg)
        except TypeError:
            word = INT64_MAX + 1
        if not INT64_MIN <= word <= INT64_MAX:
            raise TypeError(
                f"argument {position} of the call of {name!r}: expected an argument word, "
                f"a tensor, a dtype or a shape, got {arg!r}; use convert_constant for other values"
            )
        return word

    def emit_ret(self, result: int) -> None:
        """Append a Ret of a register word; another kind of word is an ``InternalError``."""
        self._require_scope("emit_ret")
        self._append(Opcode.RET, _register(result, "Ret"))

    def emit_goto(self, pc_offset: int) -> None:
        """Append a jump of ``pc_offset`` instructions; 1 is the next one, 0 is refused later."""
        self._require_scope("emit_goto")
        self._append(Opcode.GOTO, operator.index(pc_offset))

    def emit_if(self, cond: int, false_offset: int) -> None:
        """Append an If: go on if register ``cond`` is not 0, else ``false_offset`` further."""
        self._require_scope("emit_if")
        self._append(Opcode.IF, _register(cond, "If"), operator.index(false_offset))

    def _append(self, *words: int) -> None:
        self._offsets.append(len(self._words))
        self._words.extend(words)

    def _require_scope(self, method: str) -> None:
        if not self._scopes:
            raise ValueError(f"{method} must be called inside `with ib.function(...):`")

    # ---- for code generators ----------------------------------------------------------------

    @property
    def num_instructions(self) -> int:
        """Index that the next instruction will get."""
        return len(self._offsets)

    def get_function(self, name: str) -> int:
        """Return the argument word of a declared function; otherwise an ``InternalError``."""
        index = self._index.get(name)
        if index is None:
            raise InternalError(f"function {name!r} is not declared; call declare_function first")
        return pack(ArgKind.FUNC_IDX, index)

    def has_function(self, name: str) -> bool:
        """Whether the function table has that name."""
        return name in self._index

    def save_memory_scope(self, word: int, scope: str) -> None:
        """Record the memory scope of a constant, given its argument word.

        Raises
        ------
        InternalError
            If the word is no constant's.
        """
        if kind_number(word) != ArgKind.CONST_IDX:
            raise InternalError("a memory scope belongs to a constant, not to another operand")
        self._memory_scopes[value_of(word)] = scope

    def set_word(self, instruction: int, word: int, value: int) -> None:
        """Replace word ``word`` of an instruction: how jump offsets are filled in afterwards.

        Raises
        ------
        InternalError
            If there is no such instruction, or it has no such word.
        """
        if not 0 <= instruction < len(self._offsets):
            raise InternalError(
                f"instruction {instruction} does not exist: {len(self._offsets)} were emitted"
            )
        ends = self._offsets[instruction + 1 : instruction + 2] or [len(self._words)]
        length = ends[0] - self._offsets[instruction]
        if not 0 <= word < length:
            raise InternalError(
                f"word {word} of instruction {instruction} does not exist: it has {length}"
            )
        self._words[self._offsets[instruction] + word] = operator.index(value)

    # ---- finishing --------------------------------------------------------------------------

    def get(self) -> VMExecutable:
        """Renumber registers, check, and return the executable (always the same object).

        More functions may be added and ``get`` called again.

        Raises
        ------
        InternalError
            For an empty function, an operand out of range, a register read before any instruction
            wrote it, a Goto by 0, or an If whose offset is below 2.
        """
        for index, info in enumerate(self._table):
            if info.kind == VMFuncKind.VM_FUNC:
                self._formalize(index)
        # TVM keeps the scopes in a hash map, which it writes last inserted first
        scopes = dict(reversed(self._memory_scopes.items()))
        candidate = VMExecutable(self._table, self._constants, scopes, self._offsets, self._words)
        for info in self._table:
            self._check(info, candidate)
        # only a program that passed replaces the one that earlier calls returned
        self._ex.func_table = candidate.func_table
        self._ex.constants = candidate.constants
        self._ex.memory_scopes = candidate.memory_scopes
        self._ex.instr_offset = candidate.instr_offset
        self._ex.instr_data = candidate.instr_data
        self._ex.source_map = SourceMap(self.origins)
        return self._ex

    def _formalize(self, index: int) -> None:
        """Give registers the numbers of their first appearance as a destination."""
        info, words = self._table[index], self._words
        renamed: dict[int, int] = {}
        following = info.num_args
        for at in self._offsets[info.start_instr : info.end_instr]:
            match words[at]:
                case Opcode.CALL:
                    for position in range(at + 4, at + 4 + words[at + 3]):
                        word = words[position]
                        # the kind of a register is 0, so its word is its number
                        if word in renamed:
                            words[position] = renamed[word]
                    dst = words[at + 1]
                    if info.num_args <= dst < FIRST_SPECIAL_REGISTER:
                        if dst not in renamed:
                            renamed[dst] = following
                            following += 1
                        words[at + 1] = renamed[dst]
                case Opcode.RET | Opcode.IF:
                    words[at + 1] = renamed.get(words[at + 1], words[at + 1])
                case _:
                    pass
        self._table[index] = replace(info, register_file_size=following)

    def _check(self, info: VMFuncInfo, candidate: VMExecutable) -> None:
        if info.kind == VMFuncKind.PACKED_FUNC:
            return
        if info.kind == VMFuncKind.VMTIR_FUNC:
            if info.register_file_size < info.num_args + 1:
                raise InternalError(
                    f"function {info.name!r}: expected at least {info.num_args + 1} registers, "
                    f"got {info.register_file_size}"
                )
            return
        if not info.start_instr < info.end_instr:
            raise InternalError(
                f"function {info.name!r} has no instructions: it is empty, not ended, "
                "or declared but never defined"
            )
        defined: set[int] = set()
        for pc in range(info.start_instr, info.end_instr):
            problem = self._problem(info, pc, defined)
            if problem is not None:
                where = f"function {info.name!r}, instruction {pc - info.start_instr}"
                raise InternalError(f"{where}: {problem}\n{_dump(candidate)}")

    def _problem(self, info: VMFuncInfo, pc: int, defined: set[int]) -> str | None:
        """Say what is wrong with an instruction; add what it writes to ``defined``."""
        words, at = self._words, self._offsets[pc]
        opcode = words[at]
        if opcode == Opcode.GOTO:
            return "a Goto by 0 would never end" if words[at + 1] == 0 else None
        if opcode != Opcode.CALL:
            if opcode == Opcode.IF and words[at + 2] <= 1:
                return f"the false offset of an If must be above 1, got {words[at + 2]}"
            return _undefined(info, words[at + 1], defined)
        if not 0 <= words[at + 2] < len(self._table):
            return f"function index {words[at + 2]} is outside the table"
        for word in words[at + 4 : at + 4 + words[at + 3]]:
            problem = self._argument_problem(info, word, defined)
            if problem is not None:
                return problem
        defined.add(words[at + 1])
        return None

    def _argument_problem(self, info: VMFuncInfo, word: int, defined: set[int]) -> str | None:
        kind, value = kind_number(word), value_of(word)
        if kind == ArgKind.REGISTER:
            return _undefined(info, value, defined)
        if kind == ArgKind.CONST_IDX and not 0 <= value < len(self._constants):
            return f"constant {value} does not exist, the pool has {len(self._constants)}"
        if kind == ArgKind.FUNC_IDX and not 0 <= value < len(self._table):
            return f"function index {value} is outside the table"
        return f"unknown argument kind {kind}" if kind > ArgKind.FUNC_IDX else None

    def __repr__(self) -> str:
        return (
            f"ExecBuilder({len(self._table)} functions, {len(self._constants)} constants, "
            f"{len(self._offsets)} instructions)"
        )


def _undefined(info: VMFuncInfo, number: int, defined: set[int]) -> str | None:
    # TVM's test: a parameter, special, or written earlier in the text (also on another path);
    # the verifier of a loaded file is stricter
    if number < info.num_args or number >= FIRST_SPECIAL_REGISTER or number in defined:
        return None
    return f"register {register_name(number)} is used before any instruction wrote it"


def _dump(candidate: VMExecutable) -> str:
    try:
        return candidate.as_text()
    except InternalError as error:  # the text form has no name for an unknown argument kind
        return f"(no text form: {error})"


def _register(word: int, opcode: str) -> int:
    word = operator.index(word)
    if kind_number(word) != ArgKind.REGISTER:
        raise InternalError(
            f"{opcode} takes a register, got an argument word of kind {kind_number(word)}"
        )
    return value_of(word)


def _plain(value: Any) -> Any:
    """Return the runtime value of a Python or NumPy one."""
    match value:
        case np.ndarray():
            return tensor(value)
        case np.bool_():
            return bool(value)
        case np.integer():
            return int(value)
        case np.floating():
            return float(value)
        case IntEnum():
            return int(value)
        case Array() | ShapeTuple():
            return value
        case tuple() | list():
            return Array(map(_plain, value))
        case _:
            return value


def _content(value: Any) -> Hashable:
    """Return a key that is equal exactly for values of one kind and content."""
    match value:
        case None:
            return ("none",)
        case bool() | int() | str() | bytes():
            return (type(value).__name__, value)
        case float():
            return ("float", "nan" if value != value else struct.pack("<d", value))
        case DataType():
            return ("dtype", value.code, value.bits, value.lanes)
        case Device():
            return ("device", str(value))
        case Tensor():
            return ("tensor", str(value.dtype), tuple(value.shape), value.array.tobytes())
        case ShapeTuple():
            return ("shape", tuple(value))
        case tuple() | list():
            return ("tuple", tuple(_content(_plain(one)) for one in value))
        case dict():
            return ("map", frozenset((_content(k), _content(v)) for k, v in value.items()))
        case _:
            raise TypeError(
                f"a constant needs content that can be compared, got {type(value).__name__}"
            )
