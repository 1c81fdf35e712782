"""Words and instructions: packing, unpacking, decoding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.runtime.vm.bytecode import (
    INT64_MAX,
    VALUE_LIMIT,
    VM_REGISTER,
    VOID_REGISTER,
    Arg,
    ArgKind,
    Call,
    Goto,
    If,
    Ret,
    decode,
    kind_number,
    pack,
    register_name,
    unpack,
    value_of,
)


@pytest.mark.parametrize(
    ("kind", "value", "word"),
    [
        (ArgKind.IMMEDIATE, 0, 0x0100000000000000),
        (ArgKind.IMMEDIATE, -1, 0x01FFFFFFFFFFFFFF),
        (ArgKind.IMMEDIATE, -3, 0x01FFFFFFFFFFFFFD),
        (ArgKind.IMMEDIATE, VALUE_LIMIT, 0x017FFFFFFFFFFFFF),
        (ArgKind.IMMEDIATE, -VALUE_LIMIT, 0x0180000000000001),
        (ArgKind.CONST_IDX, 5, 0x0200000000000005),
        (ArgKind.FUNC_IDX, 1, 0x0300000000000001),
        (ArgKind.REGISTER, 5, 5),
        (ArgKind.REGISTER, VOID_REGISTER, 0x40000000000000),
        (ArgKind.REGISTER, VM_REGISTER, 0x40000000000001),
    ],
)
def test_packing_gives_the_words_of_tvm(kind, value, word):
    assert pack(kind, value) == word
    assert unpack(word) == Arg(kind, value)


@given(st.sampled_from(ArgKind), st.integers(-VALUE_LIMIT, VALUE_LIMIT))
def test_packing_and_unpacking_are_inverse(kind, value):
    word = pack(kind, value)
    assert kind_number(word) == kind
    assert value_of(word) == value
    assert unpack(word) == Arg(kind, value)


@pytest.mark.parametrize("value", [VALUE_LIMIT + 1, -VALUE_LIMIT - 1, INT64_MAX])
def test_a_value_beyond_56_bits_is_refused_with_value_and_limit(value):
    with pytest.raises(InternalError, match=rf"{value}.*{VALUE_LIMIT}"):
        pack(ArgKind.IMMEDIATE, value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 1.0, "1", None])
def test_what_is_no_64_bit_integer_is_a_type_error(value):
    with pytest.raises(TypeError):
        pack(ArgKind.IMMEDIATE, value)


def test_an_unknown_kind_byte_is_refused():
    with pytest.raises(InternalError, match="argument kind 255"):
        unpack(-1)


def test_decoding_each_opcode():
    words = [1, 3, 0, 2, 7, pack(ArgKind.IMMEDIATE, -2), 4, 3, 2, 3, -5, 2, VOID_REGISTER]
    for form in (words, np.array(words, dtype=np.int64)):
        assert decode(form, 0) == Call(3, 0, (Arg(ArgKind.REGISTER, 7), Arg(ArgKind.IMMEDIATE, -2)))
        assert decode(form, 6) == If(3, 2)
        assert decode(form, 9) == Goto(-5)
        assert decode(form, 11) == Ret(VOID_REGISTER)


@pytest.mark.parametrize(
    "words",
    [[], [9], [0, 0], [1], [1, 0, 0], [1, 0, 0, 2, 5], [1, 0, 0, -1], [2], [3], [4, 0], [-1]],
)
def test_decoding_nonsense_says_where(words):
    with pytest.raises(InternalError, match=r"word|offset"):
        decode(words, 0)


def test_register_names():
    assert [register_name(n) for n in (0, -1, VOID_REGISTER, VM_REGISTER, VM_REGISTER + 1)] == [
        "%0",
        "%-1",
        "%void",
        "%vm",
        f"%{VM_REGISTER + 1}",
    ]
