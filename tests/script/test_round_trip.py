"""Random programs: what is printed reads back as the same program, and prints the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.ir import (
    EQ,
    GE,
    LT,
    NE,
    Add,
    And,
    Call,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Op,
    Or,
    Select,
    Sub,
    Var,
    structural_equal,
)
from relaxlab.script import from_source
from relaxlab.script.printer import script
from relaxlab.tirx import Bind, Evaluate, PrimFunc, SeqStmt

M, N, B = Var("m", "int32"), Var("n", "int64"), Var("b", "bool")


@st.composite
def integers(draw, dtype, var, depth=4):
    """Return an expression that no parser folds: a literal meets only variables."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from([var, Max(var, IntImm(dtype, 3)), Min(IntImm(dtype, -2), var)]))
    inner = integers(dtype, var, depth - 1)
    match draw(st.integers(0, 3)):
        case 0:
            kind = draw(st.sampled_from([Add, Sub, Mul, FloorDiv, FloorMod]))
            return kind(draw(inner), draw(inner))
        case 1:
            names = ["bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"]
            op = Op.get(f"tirx.{draw(st.sampled_from(names))}")
            return Call(op, (draw(inner), draw(inner)), ty=var.ty)
        case 2:
            return Call(Op.get("tirx.bitwise_not"), (draw(inner),), ty=var.ty)
        case _:
            return Select(draw(booleans(dtype, var, depth - 1)), draw(inner), draw(inner))


@st.composite
def booleans(draw, dtype, var, depth=4):
    """Return a condition."""
    if depth == 0 or draw(st.integers(0, 2)) == 0:
        kind = draw(st.sampled_from([EQ, NE, LT, GE]))
        numbers = integers(dtype, var, max(depth - 1, 0))
        return kind(draw(numbers), draw(numbers)) if draw(st.booleans()) else B
    inner = booleans(dtype, var, depth - 1)
    if draw(st.booleans()):
        return Not(draw(inner))
    kind = draw(st.sampled_from([And, Or, EQ, NE]))
    return kind(draw(inner), draw(inner))


@st.composite
def expressions(draw):
    """Return a scalar expression of one of several dtypes."""
    match draw(st.integers(0, 4)):
        case 0:
            return draw(integers("int32", M))
        case 1:
            return draw(integers("int64", N))
        case 2:
            return draw(booleans("int32", M))
        case 3:
            return Cast("int32", draw(integers("int64", N)))
        case _:
            return Cast("float32", draw(integers("int32", M)))


@given(st.lists(expressions(), min_size=1, max_size=4))
def test_scalar_expressions(values):
    binds = [Bind(Var("v", value.ty), value) for value in values]
    func = PrimFunc((M, N, B), SeqStmt((*binds, Evaluate(binds[-1].var))))
    text = script(func)
    again = from_source(text)
    assert structural_equal(func, again)
    assert script(again) == text


def test_long_sums_do_not_exhaust_the_stack():
    total = M
    for _ in range(5000):
        total = Add(total, M)
    text = script(PrimFunc((M,), Evaluate(total)))
    assert text.endswith("m + " * 5000 + "m)")


@pytest.mark.parametrize("count", [5000])
def test_long_functions(count):
    body = "    y = R.add(y, x)\n" * count
    text = (
        f'@R.function\ndef main(x: R.Tensor(("n",), "float32")):\n    y = x\n{body}    return y\n'
    )
    printed = script(from_source(text))
    assert printed.endswith(
        f'y_{count}: R.Tensor((n,), dtype="float32") = R.add('
        f"y_{count - 1}, x)\n    return y_{count}"
    )
    assert script(from_source(printed)) == printed
