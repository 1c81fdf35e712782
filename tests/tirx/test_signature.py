"""Arguments of kernels: what fits, and what the refusal says."""

from typing import Any

import numpy as np
import pytest

from relaxlab.ir import IntImm, Var, prim_ops
from relaxlab.ir.prim_ops import const
from relaxlab.runtime import tensor
from relaxlab.tirx import Evaluate, PrimFunc, decl_buffer
from relaxlab.tirx.signature import Signature

n, m = Var("n", "int64"), Var("m", "int64")
scale = Var("scale", "float32")
FUNC = PrimFunc(
    (
        decl_buffer((n, 4), "float32", "x"),
        decl_buffer((m, n), "float32", "y"),
        decl_buffer((n * 2 + m,), "int32", "z"),
        scale,
    ),
    Evaluate(IntImm("int32", 0)),
)


def arguments(**changes: Any) -> list[Any]:
    """Return fitting arguments, some of them replaced."""
    fitting = {
        "x": np.zeros((3, 4), "float32"),
        "y": np.zeros((2, 3), "float32"),
        "z": np.zeros(8, "int32"),
        "scale": 1.5,
    }
    return list((fitting | changes).values())


def test_sizes_are_bound_by_the_first_dimension_that_is_one() -> None:
    bound = Signature(FUNC, "f").bind(arguments())
    assert (bound.sizes[n], bound.sizes[m], bound.sizes[scale]) == (3, 2, 1.5)


def test_tensors_are_taken_like_arrays() -> None:
    bound = Signature(FUNC, "f").bind(arguments(x=tensor(np.ones((3, 4), "float32"))))
    assert bound.arrays[FUNC.params[0]].shape == (3, 4)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"y": np.zeros((2, 5), "float32")},
            ValueError,
            r"\(y\): dimension 1 is 5, but n is 3.*\(x\)",
        ),
        ({"z": np.zeros(9, "int32")}, ValueError, r"\(z\): dimension 0 must be 8"),
        ({"x": np.zeros((3, 5), "float32")}, ValueError, r"\(x\): dimension 1 must be 4"),
        ({"x": np.zeros(3, "float32")}, ValueError, r"\(x\) must have 2 dimensions"),
        (
            {"x": np.zeros((3, 4), "float64")},
            TypeError,
            r"\(x\) must have dtype float32, got float64",
        ),
        ({"x": [1.0]}, TypeError, r"\(x\) must be a tensor, got list"),
        ({"scale": "a"}, TypeError, r"\(scale\) must be a number of dtype float32, got str"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Signature(FUNC, "f").bind(arguments(**changes))


def test_the_number_of_arguments_is_checked() -> None:
    with pytest.raises(TypeError, match=r"'f' takes 4 arguments \(x, y, z, scale\), got 1"):
        Signature(FUNC, "f").bind([1])


def test_a_size_that_no_argument_binds_is_named() -> None:
    loose = PrimFunc((decl_buffer((n * 2,), "float32", "x"),), Evaluate(IntImm("int32", 0)))
    with pytest.raises(ValueError, match="binds the size 'n'"):
        Signature(loose, "f").bind([np.zeros(4, "float32")])


def test_dimensions_may_use_every_integer_operator() -> None:
    dims = (n, (n + 5) // 2 - n % 2, prim_ops.max(n, 4), prim_ops.min(n, 2))
    func = PrimFunc((decl_buffer(dims, "float32", "x"),), Evaluate(const(0)))
    Signature(func, "f").bind([np.zeros((3, 3, 4, 2), "float32")])
    with pytest.raises(ValueError, match="dimension 2 must be 4"):
        Signature(func, "f").bind([np.zeros((3, 3, 5, 2), "float32")])
