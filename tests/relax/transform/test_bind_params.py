"""BindParams: weights become constants, their sizes too."""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.errors import InternalError
from relaxlab.relax.transform import BindParams
from tests.relax.transform.checks import module

PROGRAM = """
@R.function
def main(
    x: R.Tensor(("n",), "float32"), w: R.Tensor(("n",), "float32"), s: R.Tensor((3, 4), "float32")
) -> R.Tensor(("n",), "float32"):
    n = T.int64()
    z = R.zeros((n,), "float32")
    y = R.add(x, w)
    r = R.add(y, z)
    return r

@R.function
def other(x: R.Tensor((2,), "float32")):
    return x
"""
W = np.arange(5, dtype=np.float32)


def test_sizes_follow_and_values_are_right():
    mod = module(PROGRAM)
    text = mod.script()
    bound = BindParams("main", {"w": W, "s": np.ones((3, 4), "float32")})(mod)
    assert [p.name for p in bound["main"].params] == ["x"]
    assert [d.value for d in bound["main"].ret_ty.shape.values] == [5]
    assert "R.zeros(R.shape([5])" in bound.script()
    assert bound["other"] is mod["other"]
    assert mod.script() == text
    vm = relax.VirtualMachine(relax.build(bound, "numpy"), runtime.cpu())
    np.testing.assert_allclose(vm["main"](W).numpy(), 2 * W)


@pytest.mark.parametrize("make", [lambda a: a, runtime.tensor, relax.const], ids=str)
def test_arrays_tensors_and_constants_by_name_or_variable(make):
    mod = module(PROGRAM)
    for key in ("w", mod["main"].params[1]):
        assert len(BindParams("main", {key: make(W)})(mod)["main"].params) == 2


@pytest.mark.parametrize(
    ("params", "error", "words"),
    [
        ({"w": np.zeros((5, 2), "float32")}, ValueError, ["'w'", "rank 1", "rank 2"]),
        ({"w": np.zeros(5, "int32")}, TypeError, ["'w'", "float32", "int32", "convert"]),
        ({"s": np.zeros((3, 5), "float32")}, ValueError, ["'s'", "size 4", "dimension 1", "5"]),
        ({"w": W, "x": np.zeros(6, "float32")}, ValueError, ["'x'", "n = 5", "size 6"]),
        ({"nope": W}, InternalError, ['"nope"', '"w"']),
        ({"w": 5}, TypeError, ["'w'", "array", "int"]),
    ],
)
def test_refusals_say_what_was_expected(params, error, words):
    mod = module(PROGRAM)
    text = mod.script()
    with pytest.raises(error) as caught:
        BindParams("main", params)(mod)
    assert all(word in str(caught.value) for word in words)
    assert mod.script() == text


def test_a_variable_of_another_function():
    mod = module(PROGRAM)
    with pytest.raises(InternalError, match="does not use Relax variable x as a parameter"):
        BindParams("main", {mod["other"].params[0]: W})(mod)


def test_unknown_function():
    with pytest.raises(ValueError, match="no function 'nope'; it has: main, other"):
        BindParams("nope", {"w": W})(module(PROGRAM))


def test_no_params():
    mod = module(PROGRAM)
    assert BindParams("main", {})(mod) is mod
