"""Expressions over registers: what they mean, and what they refuse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.runtime.vm.observer import (
    ObjectValue,
    ScalarValue,
    StorageValue,
    TensorValue,
    TupleValue,
)
from relaxlab.trace import Expression, ExpressionError


def tensor_value(*head, **changes):
    fields = {
        "dtype": "float32",
        "shape": (len(head),),
        "device": "cpu:0",
        "storage": 4,
        "offset": 8,
        "head": head,
        "tail": (),
        "minimum": min(head),
        "maximum": max(head),
        "nan_count": 0,
        "checksum": 1,
    }
    return TensorValue(**(fields | changes))


REGISTERS = (
    ScalarValue("int", "3"),
    ScalarValue("float", "inf"),
    ScalarValue("bool", "True"),
    ScalarValue("none", "None"),
    ScalarValue("str", "'text'"),
    ScalarValue("shape", "(2, 3)"),
    tensor_value(5.0),
    tensor_value(1.0, 2.0, 4.0, tail=(9.0,), maximum="nan", nan_count=2),
    TupleValue((ScalarValue("int", "7"), tensor_value(1, 2)), 2),
    StorageValue(6, 1, 4096, "cpu:0"),
    ScalarValue("dtype", "int8"),
    ObjectValue("vm", "%vm"),
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("%0", 3),
        ("r0 + 1", 4),
        ("%0 % 2", 1),
        ("-%0 * 2 // 4", -2),
        ("n == 3 and %0 < 4 <= 4", True),
        ("n == 4 or not %2", False),
        ("%1", float("inf")),
        ("%2 is True", True),
        ("%3 is None", True),
        ("%4 == 'text'", True),
        ("%4[0]", "t"),
        ("%5 == (2, 3)", True),
        ("%5[1]", 3),
        ("3 in [n, 4]", True),
        ("n not in (4, 5)", True),
        ("%6 * 2", 10.0),
        ("%7.shape", (3,)),
        ("%7.dtype == 'float32'", True),
        ("%7.min", 1.0),
        ("%7.max != %7.max", True),
        ("%7.nan + %7.storage + %7.offset", 14),
        ("%7[1] + %7[-1]", 6.0),
        ("%8[0]", 7),
        ("%8[1][1]", 2),
        ("%8[1].storage", 4),
        ("%9", 6),
        ("%10 == 'int8'", True),
        ("step * 100 + depth", 501),
    ],
)
def test_values(text, value):
    assert Expression(text)(REGISTERS, ("n",), step=5, depth=1) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read"),
        ("1 +", "cannot read"),
        ("x = 1", "cannot read"),
        ("f(1)", "Call is not allowed"),
        ("2 ** 99", "Pow is not allowed"),
        ("[x for x in n]", "ListComp is not allowed"),
        ("lambda: 1", "Lambda is not allowed"),
        ("n[0:1]", "Slice is not allowed"),
        ("1 if n else 2", "IfExp is not allowed"),
        ("1" * 500, "at most 400 characters"),
    ],
)
def test_what_is_no_expression(text, message):
    with pytest.raises(ExpressionError, match=message):
        Expression(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m", "unknown name 'm': expected a register such as %0, or n"),
        ("%12", "no register %12: the frame has 12"),
        ("%3 < 1", "not supported between"),
        ("%4 * 9", "expected a number, got 'text'"),
        ("1 // 0", "division"),
        ("%7", "a tensor is no number"),
        ("%8 + 1", "a tuple is no number"),
        ("%7[3]", "element 3 is not recorded, only the first 3"),
        ("%8[2]", "index out of range"),
        ("%0[0]", "only a tensor, a tuple, a shape or a text has elements"),
        ("%7['a']", "expected an integer index"),
        ("%0.shape", "only a tensor has .shape"),
        ("%7.__class__", "a tensor has no .__class__"),
    ],
)
def test_what_has_no_value_here(text, message):
    expression = Expression(text)
    with pytest.raises(ExpressionError) as caught:
        expression(REGISTERS, ("n",))
    assert message in str(caught.value)
    assert repr(text) in str(caught.value)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text):
    try:
        expression = Expression(text)
        expression(REGISTERS, ("n",))
    except ExpressionError:
        return
    assert repr(expression)
