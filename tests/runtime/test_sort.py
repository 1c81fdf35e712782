"""Sorting as kernels call it, on its own and from compiled programs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import relaxlab
from relaxlab import runtime
from relaxlab.relax import VirtualMachine
from relaxlab.runtime import Tensor, empty, get_global_func, tensor
from relaxlab.script import from_source

DTYPES = ["float32", "float16", "float64", "int8", "uint8", "int32", "int64", "bool"]


def call(name: str, *args: Any) -> None:
    get_global_func(f"tvm.contrib.sort.{name}")(*args)


@st.composite
def rows(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], int]:
    shape = draw(arrays.array_shapes(max_dims=3, max_side=6))
    # few values, so that many are equal
    array = draw(arrays.arrays("int64", shape, elements=st.integers(0, 4)))
    array = array.astype(draw(st.sampled_from(DTYPES)))
    return array, draw(st.integers(-len(shape), len(shape) - 1))


@given(rows(), st.booleans())
def test_sort_and_argsort_are_stable(given_rows: tuple[Any, int], is_ascend: bool) -> None:
    array, axis = given_rows
    values, order = empty(array.shape, str(array.dtype)), empty(array.shape, "int64")
    call("sort", tensor(array), values, axis, is_ascend)
    call("argsort", tensor(array), order, axis, is_ascend)
    along = np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])
    expected = [
        sorted(range(len(row)), key=lambda i: row[i] if is_ascend else -float(row[i]))
        for row in along
    ]
    got = np.moveaxis(order.array, axis, -1).reshape(-1, array.shape[axis])
    assert got.tolist() == expected
    np.testing.assert_array_equal(values.array, np.take_along_axis(array, order.array, axis))


@given(rows(), st.booleans(), st.integers(-1, 8), st.sampled_from(["both", "values", "indices"]))
def test_topk(given_rows: tuple[Any, int], is_ascend: bool, k: int, ret_type: str) -> None:
    array, axis = given_rows
    length = array.shape[axis]
    shape = list(array.shape)
    shape[axis] = k if k >= 1 else length
    outs: list[Tensor] = []
    if ret_type != "indices":
        outs.append(empty(shape, str(array.dtype)))
    if ret_type != "values":
        outs.append(empty(shape, "int32"))
    if k > length:
        with pytest.raises(ValueError, match=f"cannot pick {k} of {length} element"):
            call("topk", tensor(array), *outs, k, axis, ret_type, is_ascend)
        return
    call("topk", tensor(array), *outs, k, axis, ret_type, is_ascend)
    order = empty(array.shape, "int64")
    call("argsort", tensor(array), order, axis, is_ascend)
    first = np.take(order.array, range(shape[axis]), axis=axis)
    if ret_type != "values":
        np.testing.assert_array_equal(outs[-1].array, first)
    if ret_type != "indices":
        np.testing.assert_array_equal(outs[0].array, np.take_along_axis(array, first, axis))


def test_nan_is_the_largest() -> None:
    x, out = tensor(np.array([2.0, np.nan, 1.0], "float32")), empty((3,), "int32")
    call("argsort", x, out, 0, True)
    assert out.array.tolist() == [2, 0, 1]
    call("argsort", x, out, 0, False)
    assert out.array.tolist() == [1, 0, 2]


def test_wrong_calls_are_explained() -> None:
    x = tensor(np.zeros((2, 3), "float32"))
    with pytest.raises(ValueError, match=r"tvm.contrib.sort.sort: axis 2 is out of range"):
        call("sort", x, empty((2, 3)), 2, True)
    with pytest.raises(ValueError, match=r"expected an output of shape \(2, 3\), got \(3, 2\)"):
        call("argsort", x, empty((3, 2), "int32"), 0, True)
    with pytest.raises(ValueError, match="ret_type must be both, values or indices"):
        call("topk", x, empty((2, 1)), 1, -1, "all", True)
    with pytest.raises(ValueError, match=r"'both' needs 2 output\(s\), got 1"):
        call("topk", x, empty((2, 1)), 1, -1, "both", True)


# --- from a compiled program ----------------------------------------------------------------------

X = np.array([[3, 1, 2, 1], [0, 5, 5, 4], [7, 7, 0, 2]], "float32")
ORDER = np.argsort(-X, axis=1, kind="stable")


def run(call_text: str, target: str, *inputs: Any, params: str | None = None) -> Any:
    params = params or 'x: R.Tensor((3, 4), "float32")'
    mod = from_source(
        "@I.ir_module\nclass Module:\n    @R.function\n"
        f"    def main({params}):\n        gv = {call_text}\n        return gv\n"
    )
    machine = VirtualMachine(relaxlab.compile(mod, target), runtime.cpu())
    found = machine["main"](*(tensor(x) for x in (inputs or (X,))))
    return [part.numpy() for part in found] if isinstance(found, tuple | list) else found.numpy()


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("R.sort(x, axis=0)", np.sort(X, 0)),
        ("R.sort(x, descending=True)", -np.sort(-X, -1)),
        ("R.argsort(x, axis=1, descending=True)", ORDER.astype("int32")),
        ('R.argsort(x, dtype="int64")', np.argsort(X, -1, kind="stable")),
        ('R.topk(x, k=2, ret_type="values")', np.take_along_axis(X, ORDER[:, :2], 1)),
        ('R.topk(x, k=2, ret_type="indices")', ORDER[:, :2].astype("int32")),
        ('R.topk(x, k=1, axis=0, ret_type="values", largest=False)', X.min(0, keepdims=True)),
        ("R.cumsum(x, axis=1)", np.cumsum(X, 1)),
        ('R.cumprod(x, dtype="float64")', np.cumprod(X.astype("float64"))),
        ("R.nonzero(x)", np.array(np.nonzero(X))),
        ("R.unique(x)", np.unique(X)),
        ("R.unique(x, sorted=True)", np.unique(X)),
    ],
)
def test_compiled(text: str, expected: Any, target: str) -> None:
    found = run(text, target)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_compiled_with_several_results(target: str) -> None:
    values, indices = run("R.topk(x, k=3)", target)
    np.testing.assert_array_equal(indices, ORDER[:, :3])
    np.testing.assert_array_equal(values, np.take_along_axis(X, ORDER[:, :3], 1))
    middle, where = run("R.median(x, axis=1)", target)
    np.testing.assert_array_equal(middle, [1, 4, 2])
    np.testing.assert_array_equal(np.take_along_axis(X, where[:, None], 1)[:, 0], middle)
    found = run("R.unique(x, return_index=True, return_inverse=True, return_counts=True)", target)
    for ours, numpys in zip(found, np.unique(X, True, True, True), strict=True):
        np.testing.assert_array_equal(ours, numpys.reshape(ours.shape))


def test_more_than_there_are_gives_all() -> None:
    """TVM's kernel writes as many elements as were asked for, into a smaller tensor."""
    values, indices = run("R.topk(x, k=9)", "llvm")
    assert values.shape == indices.shape == (3, 4)
    np.testing.assert_array_equal(indices, ORDER)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_symbolic_length(n: int) -> None:
    x = np.random.default_rng(n).permutation(3 * n).reshape(3, n).astype("float32")
    params = 'x: R.Tensor((3, "n"), "float32")'
    np.testing.assert_array_equal(run("R.sort(x)", "llvm", x, params=params), np.sort(x, -1))
    text = 'R.topk(x, k=2, ret_type="values")'
    if n < 2:
        with pytest.raises(ValueError, match="cannot pick 2 of 1 element"):
            run(text, "llvm", x, params=params)
    else:
        found = run(text, "llvm", x, params=params)
        np.testing.assert_array_equal(found, -np.sort(-x, -1)[:, :2])
