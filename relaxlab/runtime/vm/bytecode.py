"""Words, instructions and function entries: what a Relax executable is made of.

The instruction stream is a flat list of signed 64-bit words with four opcodes. Everything that
reads or writes bytecode (builder, loader, linker, printer, verifier) uses the definitions here, so
that the packing of an argument word is written down once. Counterpart: TVM's
``runtime/vm/bytecode.h`` and ``VMFuncInfo`` of ``executable.h``; the numbers are theirs.

Examples
--------
>>> hex(pack(ArgKind.IMMEDIATE, -3))
'0x1fffffffffffffd'
>>> unpack(pack(ArgKind.CONST_IDX, 5))
Arg(kind=<ArgKind.CONST_IDX: 2>, value=5)
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.errors import InternalError

__all__ = [
    "Arg",
    "ArgKind",
    "Call",
    "FIRST_SPECIAL_REGISTER",
    "Goto",
    "INT64_MAX",
    "INT64_MIN",
    "If",
    "Instruction",
    "Opcode",
    "Ret",
    "UNDEFINED_NUM_ARGS",
    "VALUE_LIMIT",
    "VMFuncInfo",
    "VMFuncKind",
    "VM_REGISTER",
    "VOID_REGISTER",
    "decode",
    "kind_number",
    "pack",
    "register_name",
    "unpack",
    "value_of",
]

VALUE_LIMIT: Final = 2**55 - 1
"""Largest magnitude of a packed value; TVM refuses ``-2**55`` although it would fit."""

FIRST_SPECIAL_REGISTER: Final = 2**54
"""Register numbers from here on are never renumbered and never written."""

VOID_REGISTER: Final = 2**54
"""``%void``: reads as None, swallows what is written to it."""

VM_REGISTER: Final = 2**54 + 1
"""``%vm``: reads as the running machine."""

UNDEFINED_NUM_ARGS: Final = -2
"""``num_args`` of a function that was declared but never defined; packed functions keep it."""

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

_VALUE_BITS: Final = 56
_VALUE_MASK: Final = 2**56 - 1
_SIGN_BIT: Final = 2**55


class Opcode(IntEnum):
    """The first word of an instruction."""

    CALL = 1
    RET = 2
    GOTO = 3
    IF = 4


class ArgKind(IntEnum):
    """What the value of an argument word means."""

    REGISTER = 0
    IMMEDIATE = 1
    CONST_IDX = 2
    FUNC_IDX = 3


class VMFuncKind(IntEnum):
    """How an entry of the function table is called."""

    PACKED_FUNC = 0
    VM_FUNC = 1
    VMTIR_FUNC = 2


@dataclass(frozen=True, slots=True)
class VMFuncInfo:
    """One entry of the function table.

    Attributes
    ----------
    kind
        A :class:`VMFuncKind` number; kept as an integer, because files may hold others.
    name
        Global symbol.
    start_instr, end_instr
        Half-open range of instruction indices; 0, 0 unless it is a bytecode function.
    num_args
        Number of parameters, or ``UNDEFINED_NUM_ARGS``.
    register_file_size
        Registers of one frame; the parameters are the first ones.
    param_names
        One name per parameter, or empty.
    """

    kind: int
    name: str
    start_instr: int = 0
    end_instr: int = 0
    num_args: int = UNDEFINED_NUM_ARGS
    register_file_size: int = 0
    param_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Arg:
    """A decoded argument word."""

    kind: ArgKind
    value: int


@dataclass(frozen=True, slots=True)
class Call:
    """Call entry ``func_idx`` of the function table, put the result in register ``dst``."""

    dst: int
    func_idx: int
    args: tuple[Arg, ...]


@dataclass(frozen=True, slots=True)
class Ret:
    """Leave the frame with the value of register ``result``."""

    result: int


@dataclass(frozen=True, slots=True)
class Goto:
    """Continue ``pc_offset`` instructions further (or earlier)."""

    pc_offset: int


@dataclass(frozen=True, slots=True)
class If:
    """Continue with the next instruction if ``cond`` is not 0, else ``false_offset`` further."""

    cond: int
    false_offset: int


Instruction = Call | Ret | Goto | If


def pack(kind: int, value: int) -> int:
    """Return the argument word of a kind and a value.

    Raises
    ------
    InternalError
        If ``value`` does not fit (its magnitude is above ``VALUE_LIMIT``).
    TypeError
        If ``value`` is no integer, or none of 64 bits.
    """
    value = operator.index(value)
    if not INT64_MIN <= value <= INT64_MAX:
        raise TypeError(f"expected a 64-bit integer in an argument word, got {value}")
    if not -VALUE_LIMIT <= value <= VALUE_LIMIT:
        raise InternalError(
            f"the value {value} does not fit an argument word: "
            f"expected at most {VALUE_LIMIT} in magnitude; put it in the constant pool instead"
        )
    return (kind << _VALUE_BITS) | (value & _VALUE_MASK)


def kind_number(word: int) -> int:
    """Return the kind byte of an argument word, which may be none of :class:`ArgKind`."""
    return (word >> _VALUE_BITS) & 0xFF


def value_of(word: int) -> int:
    """Return the signed 56-bit value of an argument word."""
    value = word & _VALUE_MASK
    return value - 2 * _SIGN_BIT if value & _SIGN_BIT else value


def unpack(word: int) -> Arg:
    """Decode an argument word.

    Raises
    ------
    InternalError
        If its kind byte is none of :class:`ArgKind`.
    """
    kind = kind_number(word)
    if kind > 3:
        raise InternalError(
            f"unknown argument kind {kind} in word {word & (2**64 - 1):#018x}: "
            "expected 0 (register), 1 (immediate), 2 (constant) or 3 (function)"
        )
    return Arg(ArgKind(kind), value_of(word))


def decode(words: Sequence[int] | NDArray[np.int64], offset: int) -> Instruction:
    """Decode the instruction that starts at word ``offset``.

    Raises
    ------
    InternalError
        If the opcode or an argument kind is unknown, or the words end too early.
    """
    if not 0 <= offset < len(words):
        raise InternalError(
            f"instruction offset {offset} lies outside the {len(words)} words of the program"
        )
    opcode = int(words[offset])
    try:
        if opcode == Opcode.CALL:
            dst, func_idx, count = map(int, words[offset + 1 : offset + 4])
            args = words[offset + 4 : offset + 4 + count] if count > 0 else ()
            if len(args) == count:
                return Call(dst, func_idx, tuple(unpack(int(word)) for word in args))
            raise InternalError(
                f"the Call at word {offset} says {count} arguments, {len(args)} words follow"
            )
        if opcode == Opcode.RET:
            (result,) = map(int, words[offset + 1 : offset + 2])
            return Ret(result)
        if opcode == Opcode.GOTO:
            (pc_offset,) = map(int, words[offset + 1 : offset + 2])
            return Goto(pc_offset)
        if opcode == Opcode.IF:
            cond, false_offset = map(int, words[offset + 1 : offset + 3])
            return If(cond, false_offset)
    except ValueError:
        name = Opcode(opcode).name.title()
        raise InternalError(
            f"the {name} at word {offset} is cut off: the program has {len(words)} words"
        ) from None
    raise InternalError(
        f"unknown opcode {opcode} at word {offset}: expected 1 (Call), 2 (Ret), 3 (Goto) or 4 (If)"
    )


def register_name(number: int) -> str:
    """Return how a register is written: ``%5``, ``%void`` or ``%vm``."""
    if number == VOID_REGISTER:
        return "%void"
    if number == VM_REGISTER:
        return "%vm"
    return f"%{number}"
