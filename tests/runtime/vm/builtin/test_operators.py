"""relax.run.*: operators that are host functions."""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.script import from_source


def call(name, *args):
    return runtime.get_global_func(f"relax.run.{name}")(*args)


def test_print(capsys):
    call("print", "", 1, "two", (3, runtime.ShapeTuple([4])))
    call("print", "{}!", runtime.tensor(np.array([1, 2], "float32")))
    assert capsys.readouterr().out == "1 two (3, (4,))\n[1. 2.]!\n"  # as TVM prints them (run)


@pytest.mark.parametrize("condition", [True, 1, runtime.tensor(np.array(True))])
def test_an_assertion_that_holds(condition):
    call("assert_op", condition, "")


@pytest.mark.parametrize("condition", [False, 0, runtime.tensor(np.array(False))])
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("",), "Assertion Failed"),
        (("", 1, 2), "1, 2"),
        (("got {}", 5), "got 5"),
        (("plain",), "plain"),
    ],
)
def test_an_assertion_that_fails(condition, args, message):
    with pytest.raises(AssertionError) as caught:
        call("assert_op", condition, *args)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("condition", "text", "message"),
    [
        (True, 1, "must be a string"),
        (runtime.tensor(np.array(1.0)), "", "must be a bool scalar, but given a float64"),
        (runtime.tensor(np.array([True])), "", "must be a scalar"),
        ("yes", "", "must be a bool, int, or Tensor"),
    ],
)
def test_what_no_assertion_can_be(condition, text, message):
    with pytest.raises(ValueError, match=message):
        call("assert_op", condition, text)


def test_shape_to_tensor():
    result = call("shape_to_tensor", runtime.ShapeTuple([2, 5]))
    assert result.dtype == "int64"
    assert result.numpy().tolist() == [2, 5]
    assert call("shape_to_tensor", runtime.ShapeTuple([])).numpy().shape == (0,)


def test_nonzero():
    x = np.array([[0, 3], [4, 0]])
    assert call("nonzero", runtime.tensor(x)).numpy().tolist() == [[0, 1], [1, 0]]
    assert call("nonzero", runtime.tensor(np.array(7.0))).numpy().tolist() == [[0]]


X = np.array([[3, 1], [3, 1], [2, 1]], "float32")


def test_unique_of_the_elements():
    assert call("unique", runtime.tensor(X)).numpy().tolist() == [1, 2, 3]
    assert call("unique", runtime.tensor(X), 0).numpy().tolist() == [3, 1, 2]


@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_unique_with_everything(is_sorted, axis):
    values, index, inverse, counts = (
        part.numpy() for part in call("unique", runtime.tensor(X), is_sorted, 1, 1, 1, axis)
    )
    slices = X.reshape(-1) if axis is None else np.moveaxis(X, axis, 0)
    found = values if axis is None else np.moveaxis(values, axis, 0)
    np.testing.assert_array_equal(found[inverse], slices)
    np.testing.assert_array_equal(slices[index], found)
    assert counts.tolist() == [sum(np.array_equal(s, f) for s in slices) for f in found]
    assert inverse.ndim == 1
    if not is_sorted:
        assert index.tolist() == sorted(index)


def test_a_program_that_prints_and_asserts(capsys):
    mod = from_source(
        """
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32"), ok: R.Tensor((), "bool")) -> R.Tensor(ndim=2, dtype="int64"):
        n = T.int64()
        R.print(R.shape([n]), format="n is {}")
        R.assert_op(ok, n, format="{} is wrong")
        return R.nonzero(x)
"""  # noqa: E501
    )
    vm = relax.VirtualMachine(relax.build(mod, "numpy"), runtime.cpu())
    x = np.array([0, 2, 0], "float32")
    assert vm["main"](x, np.array(True)).numpy().tolist() == [[1]]
    assert capsys.readouterr().out == "n is (3,)\n"
    with pytest.raises(AssertionError, match="3 is wrong"):
        vm["main"](x, np.array(False))
