"""Sizes in types, as TVM lists them."""

import pytest

from relaxlab import relax
from relaxlab.ir import FuncType, PrimType, TupleType, Var
from relaxlab.relax.analysis import collect_non_negative_expressions

N, M = Var("n", "int64"), Var("m", "int64")


def tensor(*shape):
    return relax.TensorType(shape, "float32")


@pytest.mark.parametrize(
    ("ty", "wanted"),
    [
        (tensor(N, M), "[n, m]"),
        (tensor(N * 2 + 1, M - N, 3, N), "[n * T.int64(2) + T.int64(1), m - n, n]"),
        (relax.ShapeType([N, M * 4]), "[n, m * T.int64(4)]"),
        (TupleType((tensor(N), relax.ShapeType([M - 1, N]))), "[n, m - T.int64(1)]"),
        (tensor(N - 1, N - 1), "[n - T.int64(1)]"),
        (relax.TensorType(ndim=2), "[]"),
        (relax.ShapeType(ndim=2), "[]"),
        (FuncType((tensor(N),), tensor(M)), "[n, m]"),
        (PrimType("int64"), "[]"),
    ],
)
def test_sizes(ty, wanted):
    text = repr(collect_non_negative_expressions(ty)).replace("n = T.int64()\n", "")
    assert text.replace("m = T.int64()\n", "") == wanted
