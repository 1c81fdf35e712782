"""Loops whose iterations write to the same element: in order, whatever kind the loop is of."""

import numpy as np
import pytest

from relaxlab.script import from_source
from relaxlab.tirx import Interpreter, PrimFunc
from tests.codegen.llvm.support import compiled
from tests.codegen.llvm.test_kernels import recorded

SCATTER = """
@T.prim_func
def main(where: T.Buffer((100,), "int64"), given: T.Buffer((100, 8), "float32"),
         out: T.Buffer((5, 8), "float32")):
    for i in T.{kind}(100):
        for j in T.{kind}(8):
            out[where[i], j] = {value}
"""
VALUES = {
    "assigned": "given[i, j]",
    "added": "out[where[i], j] + given[i, j]",
    "largest": "T.max(out[where[i], j], given[i, j])",
}


def scatter(kind: str, how: str) -> PrimFunc:
    func = from_source(SCATTER.format(kind=kind, value=VALUES[how]))
    assert isinstance(func, PrimFunc)
    return func


@pytest.mark.parametrize("how", sorted(VALUES))
@pytest.mark.parametrize("kind", ["parallel", "vectorized", "serial", "unroll"])
def test_what_is_written_twice_is_written_in_order(kind: str, how: str) -> None:
    func = scatter(kind, how)
    random = np.random.default_rng(1)
    where = random.integers(0, 5, 100)
    given = random.standard_normal((100, 8)).astype(np.float32)
    expected, out = (np.zeros((5, 8), np.float32) for _ in range(2))
    Interpreter(func, "kernel")(where, given, expected)
    compiled(func)(where, given, out)
    np.testing.assert_array_equal(out, expected)


def test_the_recorded_kernels_that_scatter_are_compiled() -> None:
    kinds = {op for op, _ in recorded() if "scatter" in op or "index_put" in op}
    assert {"relax.index_put", "relax.scatter_elements", "relax.scatter_nd"} <= kinds
