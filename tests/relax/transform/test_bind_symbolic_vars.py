"""BindSymbolicVars: sizes become numbers, in types, shapes and values."""

import pytest

from relaxlab.errors import InternalError
from relaxlab.ir import Var
from relaxlab.relax.analysis import check_well_formed
from relaxlab.relax.transform import BindSymbolicVars
from relaxlab.relax.transform.bind_symbolic_vars import bind_symbolic_vars
from tests.relax.transform.checks import assert_becomes, module

PROGRAM = """
@R.function
def main(x: R.Tensor(("n", "m"), "float32"), s: R.Shape(["k"]), p: R.Prim("int64")):
    n = T.int64()
    m = T.int64()
    k = T.int64()
    z = R.zeros(R.shape([n, k, p]), "float32")
    y = R.broadcast_to(x, R.shape([n * 2, n, m]))
    return (y, z)

@R.function
def aux(x: R.Tensor(("n", "q"), "float32")):
    n = T.int64()
    q = T.int64()
    w = R.match_cast(x, R.Tensor((n, q), "float32"))
    return w
"""


def test_every_function_that_has_the_size():
    result = assert_becomes(
        BindSymbolicVars({"n": 4}),
        PROGRAM,
        PROGRAM.replace('"n"', "4")
        .replace("    n = T.int64()\n", "")
        .replace("n * 2, n,", "8, 4,")
        .replace("[n, k", "[4, k")
        .replace("(n, q)", "(4, q)"),
        once=True,
    )
    assert check_well_formed(result)


def test_one_function_and_a_scalar_parameter():
    mod = module(PROGRAM)
    result = BindSymbolicVars({"p": 3, "k": 5}, "main")(mod)
    assert result["aux"] is mod["aux"]
    assert [param.name for param in result["main"].params] == ["x", "s"]
    assert "R.zeros(R.shape([n, 5, 3])" in result.script()


def test_by_variable_and_to_another_variable():
    func = module(PROGRAM)["main"]
    size = func.params[0].ty.get_shape()[0]
    other = Var("rows", "int64")
    text = bind_symbolic_vars(func, {size: other}).script()
    assert 'x: R.Tensor((rows, m), dtype="float32")' in text
    assert "R.shape([rows * 2, rows, m])" in text


@pytest.mark.parametrize(
    ("pass_", "error", "message"),
    [
        (BindSymbolicVars({"zz": 3}), InternalError, r"keys \(zz\), which did not correspond"),
        (BindSymbolicVars({"zz": 3}, "main"), InternalError, 'with name "zz".*n, m, k, p'),
        (BindSymbolicVars({Var("n", "int64"): 3}, "main"), InternalError, "not use variable n"),
        (BindSymbolicVars({"n": 3}, "nope"), ValueError, "nope"),
    ],
    ids=["nowhere", "not in main", "another variable", "no function"],
)
def test_refusals(pass_, error, message):
    with pytest.raises(error, match=message):
        pass_(module(PROGRAM))


def test_a_size_given_twice():
    func = module(PROGRAM)["main"]
    size = func.params[0].ty.get_shape()[0]
    with pytest.raises(InternalError, match="Remap of variable n was defined multiple times"):
        bind_symbolic_vars(func, {size: 4, "n": 5})
