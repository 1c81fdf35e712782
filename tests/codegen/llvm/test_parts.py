"""Rows in parts: which sums are dealt out, and that each row's value stays what it was."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from relaxlab import te
from relaxlab.codegen.llvm.inline import inline
from relaxlab.codegen.llvm.lower import Lowered, lower
from relaxlab.codegen.llvm.parts import part_rows
from relaxlab.codegen.llvm.rows import fuse_rows
from relaxlab.ir import prim_ops
from relaxlab.script import from_source
from relaxlab.tirx import PrimFunc
from tests.codegen.compare import assert_same
from tests.codegen.llvm.support import (
    AVX2,
    SSE2,
    floats,
    placeholder,
    prim_func,
)
from tests.codegen.llvm.support import kernel_of as made

n = te.var("n", "int64")


def kernel_of(func: PrimFunc, *args: Any, **options: Any) -> Any:
    """Return a kernel as what is called with arrays."""
    return made(func, *args, **options).function


def prepared(func: PrimFunc) -> Lowered:
    kernel = lower(func)
    inline(kernel)
    fuse_rows(kernel)
    return kernel


def is_parted(func: PrimFunc) -> bool:
    kernel = prepared(func)
    before = list(kernel.body)
    part_rows(kernel)
    return any(a is not b for a, b in zip(before, kernel.body, strict=True))


def product(rows: Any, inner: Any, dtype: str = "float32", after: Any = None) -> PrimFunc:
    """``y[i, j] = sum over k of x[i, k] * w[j, k]`` for one i; then what ``after`` makes of it."""
    x = placeholder(1, inner, dtype=dtype)
    w = placeholder(rows, inner, name="w", dtype=dtype)
    bias = placeholder(rows, name="bias", dtype=dtype)
    k = te.reduce_axis((0, inner), "k")
    y = te.compute((1, rows), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="y")
    if after is None:
        return prim_func(x, w, y)
    z = te.compute((1, rows), lambda i, j: after(y[i, j] + bias[j]), name="z")
    return prim_func(x, w, bias, z)


# ------------------------------------------------------------------ values


@pytest.mark.parametrize("host", [None, AVX2, SSE2], ids=["here", "avx2", "sse2"])
@pytest.mark.parametrize(("rows", "inner"), [(1536, 576), (1537, 100), (1539, 77), (4, 40_001)])
def test_a_vector_times_a_matrix(rows, inner, host):
    func = product(rows, inner)
    assert is_parted(func)
    x, w = floats(1, inner), floats(rows, inner, seed=1)
    y = np.full((1, rows), np.nan, np.float32)
    kernel_of(func, host)(x, w, y)
    np.testing.assert_allclose(y, x @ w.T, rtol=1e-4, atol=2e-3)


def test_a_row_does_not_depend_on_the_part_it_is_in():
    w = np.repeat(floats(1, 333), 1027, axis=0)
    x, y = floats(1, 333, seed=1), np.empty((1, 1027), np.float32)
    kernel_of(product(1027, 333))(x, w, y)
    # 1027 = 4 * 256 + 3: the last rows are summed in more lanes
    assert len(set(y[0, :1024].tolist())) == 1
    np.testing.assert_allclose(y[0, 1024:], y[0, 0], rtol=1e-4)


@pytest.mark.parametrize(
    ("after", "numpy"),
    [(lambda v: v * 2.0, lambda y: y * 2), (prim_ops.tanh, np.tanh)],
    ids=["double", "tanh"],
)
def test_what_is_done_with_a_sum_is_done_in_every_part(after, numpy):
    func = product(1030, 65, after=after)
    assert is_parted(func)
    x, w, bias = floats(1, 65), floats(1030, 65, seed=1), floats(1030, seed=2)
    z = np.full((1, 1030), np.nan, np.float32)
    kernel_of(func)(x, w, bias, z)
    np.testing.assert_allclose(z, numpy(x @ w.T + bias), rtol=1e-4, atol=1e-4)


def test_integers_are_summed_exactly():
    func = product(515, 130, "int32")
    assert is_parted(func)
    random = np.random.default_rng(0)
    x, w = (random.integers(-(2**31), 2**31, s, np.int32) for s in ((1, 130), (515, 130)))
    y = np.zeros((1, 515), np.int32)
    kernel_of(func)(x, w, y)
    assert (y == x @ w.T).all()


def test_several_vectors_and_a_matrix_of_their_own_each():
    x, w = placeholder(3, 50), placeholder(3, 512, 50, name="w")
    k = te.reduce_axis((0, 50), "k")
    y = te.compute((3, 512), lambda b, j: te.sum(x[b, k] * w[b, j, k], axis=k), name="y")
    func = prim_func(x, w, y)
    assert is_parted(func)
    arrays = floats(3, 50), floats(3, 512, 50, seed=1)
    out = np.full((3, 512), np.nan, np.float32)
    kernel_of(func)(*arrays, out)
    np.testing.assert_allclose(out, np.einsum("bk,bjk->bj", *arrays), rtol=1e-4, atol=1e-4)


def test_largest_values_and_their_nan():
    x = placeholder(600, 64)
    k = te.reduce_axis((0, 64), "k")
    func = prim_func(x, te.compute((600,), lambda i: te.max(x[i, k], axis=k), name="y"))
    assert is_parted(func)
    array, out = floats(600, 64), np.zeros(600, np.float32)
    array[[0, 150, 599], [3, 0, 63]] = np.nan
    kernel, plain = kernel_of(func), kernel_of(func, plain=True)
    kernel(array, out)
    expected = np.zeros_like(out)
    plain(array, expected)
    np.testing.assert_array_equal(out, expected)


def test_arguments_that_overlap_are_done_in_order():
    func = product(300, 300)
    memory = floats(300, 300)
    expected = memory.copy()
    for j in range(300):
        expected[0, j] = 0
        expected[0, j] = expected[1] @ expected[j]
    kernel_of(func)(memory[1:2], memory, memory[0:1])
    np.testing.assert_allclose(memory, expected, rtol=1e-3, atol=1e-3)


@st.composite
def sums(draw: Any) -> PrimFunc:
    """Return sums of rows and what may stand around them, for a few rows."""
    rows, inner, batch = draw(st.integers(4, 19)), draw(st.integers(4, 40)), draw(st.integers(1, 3))
    dtype = draw(st.sampled_from(["float32", "float64", "int32", "uint8"]))
    w = placeholder(batch, rows, inner, name="w", dtype=dtype)
    x, more = placeholder(inner, dtype=dtype), placeholder(batch, rows, name="more", dtype=dtype)
    k = te.reduce_axis((0, inner), "k")
    fold = draw(st.sampled_from([te.sum, te.max, te.min]))
    term = draw(
        st.sampled_from(
            [
                lambda b, i: w[b, i, k],
                lambda b, i: w[b, i, k] * x[k],
                lambda b, i: w[b, i, k] + x[k] * more[b, i],
                lambda b, i: prim_ops.max(w[b, i, k], more[b, i]),
            ]
        )
    )
    y = te.compute((batch, rows), lambda b, i: fold(term(b, i), axis=k), name="y")
    after = draw(
        st.sampled_from(
            [
                None,
                lambda b, i: y[b, i] + more[b, i],
                lambda b, i: y[b, i] * y[b, i],
                lambda b, i: y[b, rows - 1 - i],
            ]
        )
    )
    outs = [y]
    if after is not None:
        z = te.compute((batch, rows), after, name="z")
        outs = [y, z] if draw(st.booleans()) else [z]
    return prim_func(w, x, more, *outs)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sums(), st.sampled_from([None, AVX2, SSE2]))
def test_any_sum_agrees_with_the_interpreter(func, host):
    with patch("relaxlab.codegen.llvm.parts._LEAST", 0):
        event(f"in parts: {is_parted(func)}")
        assert_same(func, made(func, host))


# ------------------------------------------------------------------ what is left alone


def gathered() -> PrimFunc:
    """A matrix whose rows are picked by an argument, so that a subscript may be wrong."""
    w, rows = placeholder(1000, 64, name="w"), placeholder(512, name="rows", dtype="int64")
    k = te.reduce_axis((0, 64), "k")
    return prim_func(w, rows, te.compute((512,), lambda i: te.sum(w[rows[i], k], axis=k), name="y"))


def matmul(rows: int) -> PrimFunc:
    x, w = placeholder(rows, 512), placeholder(512, 512, name="w")
    k = te.reduce_axis((0, 512), "k")
    y = te.compute((rows, 512), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="y")
    return prim_func(x, w, y)


def written(target: str, term: str, more: str = "") -> PrimFunc:
    source = f"""
@T.prim_func(s_tir=True)
def f(x: T.Buffer((512, 128), "float32"), y: T.Buffer((1024,), "float32")):
    for i, k in T.grid(512, 128):
        with T.sblock("y"):
            vi = T.axis.spatial(512, i)
            vk = T.axis.reduce(128, k)
            with T.init():
                y[{target}] = T.float32(0)
            y[{target}] = y[{target}] + {term}
{more}"""
    func = from_source(source)
    assert isinstance(func, PrimFunc)
    return func


def sum_of(make: Any, shape: tuple[Any, ...] = (512, 128)) -> PrimFunc:
    x = placeholder(*shape)
    k = te.reduce_axis((0, shape[1]), "k")
    return prim_func(x, te.compute(shape[:1], lambda i: te.sum(make(x, i, k), axis=k), name="y"))


@pytest.mark.parametrize(
    ("make", "parted"),
    [
        (lambda: sum_of(lambda x, i, k: x[i, k]), True),
        (lambda: sum_of(lambda x, i, k: x[i, k], (32, 128)), False),
        (lambda: sum_of(lambda x, i, k: x[i, k], (n, 128)), False),
        (lambda: sum_of(lambda x, i, k: x[i, k], (3, 40_000)), False),
        (lambda: sum_of(lambda x, i, k: x[0, k], (512, 40_000)), False),
        (lambda: sum_of(lambda x, i, k: prim_ops.exp(x[i, k])), False),
        (lambda: sum_of(lambda x, i, k: x[k, i], (512, 512)), False),
        (gathered, False),
        (lambda: matmul(512), False),  # that is for BLAS
        (lambda: matmul(4), True),
        (lambda: written("vi", "x[vi, vk]"), True),
        (lambda: written("vi + 7", "x[vi, vk]"), True),
        (lambda: written("vi // 2", "x[vi, vk]"), False),
        (lambda: written("vi * 2", "x[vi, vk]"), False),
        (lambda: written("0", "x[vi, vk]"), False),
        (lambda: written("vi + 1", "x[vi, vk] * y[vi]"), False),
        (lambda: product(512, 512, "float16"), False),
        (lambda: product(512, 512, "float64"), True),
    ],
)
def test_rows_are_dealt_out_where_that_is_right_and_pays(make, parted):
    assert is_parted(make()) == parted


def test_the_first_wrong_index_is_the_one_that_is_named():
    rows = np.arange(512, dtype=np.int64)
    rows[[100, 300]] = 5000, 6000  # the later one is in another part
    rows[130] = 7000
    out = np.zeros(512, np.float32)
    with pytest.raises(IndexError, match="5000"):
        kernel_of(gathered())(floats(1000, 64), rows, out)
