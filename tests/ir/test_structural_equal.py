"""Modules and nodes are compared by meaning, and a difference is shown."""

import pytest

from relaxlab import relax
from relaxlab.ir import IRModule, PrimType, Var, assert_structural_equal, structural_equal
from relaxlab.script import from_source

SCRIPT = """
@I.ir_module
class Program:
    @R.function
    def main({x}: R.Tensor(("{n}", 4), "float32")):
        {y} = R.{op}({x})
        return {y}
"""


def program(**names) -> IRModule:
    return from_source(SCRIPT.format(**{"x": "x", "y": "y", "n": "n", "op": "exp"} | names))


def test_modules_that_differ_in_names_only_are_equal():
    one, other = program(), program(x="a", y="b", n="k")
    assert structural_equal(one, other)
    assert structural_equal(one, other, True)
    assert_structural_equal(one, other)


def test_a_difference_is_shown_with_its_line():
    one, other = program(), program(op="tanh")
    assert not structural_equal(one, other)
    with pytest.raises(
        ValueError, match=r"line 10 of the texts differs:\n  lhs: .*R\.exp.*\n.*tanh"
    ):
        assert_structural_equal(one, other)


def test_a_module_is_no_function():
    mod = program()
    assert not structural_equal(mod, mod["main"])
    assert not structural_equal(mod["main"], mod)


def test_what_differs_in_nothing_that_is_printed_is_explained():
    one, other = (relax.op.exp(relax.Var("x", relax.TensorType([2], "float32"))) for _ in "ab")
    assert structural_equal(one, other, map_free_vars=True)
    with pytest.raises(ValueError, match="map_free_vars"):
        assert_structural_equal(one, other)
    n = Var("n", PrimType("int64"))
    assert_structural_equal(n + 1, n + 1)
