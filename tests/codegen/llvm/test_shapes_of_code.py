"""What becomes of kernels: fewer buffers, fewer loops, the right loop in lanes."""

import re
from typing import Any

import pytest

from relaxlab import te, topi
from relaxlab.codegen.llvm.indices import Indices
from relaxlab.codegen.llvm.inline import inline
from relaxlab.codegen.llvm.lower import Lowered, Reduce, lower
from relaxlab.codegen.llvm.machine import machine
from relaxlab.codegen.llvm.matmul import read_product
from relaxlab.codegen.llvm.nests import choose_lane, read_nest
from relaxlab.codegen.llvm.rows import fuse_rows
from relaxlab.ir import prim_ops
from relaxlab.script import from_source
from relaxlab.tirx import For, PrimFunc
from tests.codegen.llvm.support import body_text, compiled, placeholder, prim_func

n = te.var("n", "int64")


def prepared(*tensors: Any) -> Lowered:
    """Return a kernel as it is when code is written."""
    kernel = lower(prim_func(*tensors))
    inline(kernel)
    fuse_rows(kernel)
    return kernel


def text_of(*tensors: Any) -> str:
    return body_text(compiled(prim_func(*tensors)).plan.text)


def chain(x: te.Tensor) -> te.Tensor:
    """Return gelu in five blocks."""
    a = te.compute(x.shape, lambda *i: x[i] * 0.7071067811865476, name="a")
    b = te.compute(x.shape, lambda *i: prim_ops.erf(a[i]), name="b")
    c = te.compute(x.shape, lambda *i: b[i] + 1.0, name="c")
    d = te.compute(x.shape, lambda *i: x[i] * 0.5, name="d")
    return te.compute(x.shape, lambda *i: d[i] * c[i], name="e")


# ------------------------------------------------------------------ intermediate buffers


def test_a_chain_reads_once_and_writes_once() -> None:
    x = placeholder(n, 64)
    text = text_of(x, chain(x))
    assert "malloc" not in text
    assert "alloca float" not in text
    # the loop, and its end under a mask
    assert text.count("@erf") == text.count("store <") + text.count("masked.store")


def test_a_costly_formula_with_two_readers_is_kept() -> None:
    x = placeholder(4, 64)
    e = te.compute((4, 64), lambda i, j: prim_ops.exp(x[i, j]), name="e")
    k = te.reduce_axis((0, 64), "k")
    s = te.compute((4,), lambda i: te.sum(e[i, k], axis=k), name="s")
    kernel = prepared(x, te.compute((4, 64), lambda i, j: e[i, j] / s[i], name="y"))
    assert [b.name for b in kernel.locals] == ["e", "s"]


def test_a_formula_is_not_repeated_by_a_loop_around_its_reader() -> None:
    x, w = placeholder(64, 32), placeholder(32, 48, name="w")
    hot = te.compute((64, 32), lambda i, j: prim_ops.tanh(x[i, j]), name="hot")
    k = te.reduce_axis((0, 32), "k")
    kernel = prepared(
        x, w, te.compute((64, 48), lambda i, j: te.sum(hot[i, k] * w[k, j], axis=k), name="y")
    )
    assert [b.name for b in kernel.locals] == ["hot"]


def test_an_index_that_may_be_wrong_is_not_made_lazy() -> None:
    x, rows = placeholder(4), placeholder(8, name="rows", dtype="int64")
    taken = te.compute((8,), lambda i: x[rows[i]], name="taken")
    y = te.compute((8,), lambda i: te.if_then_else(i < 4, taken[i], 0.0), name="y")
    assert [b.name for b in prepared(x, rows, y).locals] == ["taken"]
    eager = te.compute((8,), lambda i: taken[i] * 2.0, name="eager")
    assert prepared(x, rows, eager).locals == []


def test_rows_are_done_one_after_the_other() -> None:
    x = placeholder(n, 2048)
    kernel = prepared(x, topi.nn.softmax(x, axis=-1))
    assert len(kernel.body) == 1
    assert sorted(len(b.ty.shape) for b in kernel.locals) == [0, 0, 1]
    text = text_of(x, topi.nn.softmax(x, axis=-1))
    assert "malloc" not in text


def test_columns_that_lanes_run_along_stay_together() -> None:
    x = placeholder(64, 128)
    kernel = prepared(x, topi.nn.softmax(x, axis=0))
    outer = kernel.body[0]
    assert isinstance(outer, For)
    nest = read_nest(outer)
    assert nest is not None
    assert choose_lane(nest, Indices()) is nest.loops[0].loop_var


# ------------------------------------------------------------------ reductions


def test_the_first_part_of_a_reduction_stands_before_its_loops() -> None:
    x = placeholder(4, 8)
    kernel = lower(prim_func(x, topi.sum(x, axis=1)))
    inner: Any = kernel.body[0]
    while isinstance(inner, For):
        inner = inner.body
    assert isinstance(inner, Reduce)


def test_a_reduction_inside_its_kept_loop_is_started_by_a_condition() -> None:
    source = """
@T.prim_func(s_tir=True)
def f(x: T.Buffer((4, 8), "float32"), s: T.Buffer((8,), "float32")):
    for k, i in T.grid(4, 8):
        with T.sblock("s"):
            vi = T.axis.spatial(8, i)
            vk = T.axis.reduce(4, k)
            with T.init():
                s[vi] = 0.0
            s[vi] = s[vi] + x[vk, vi]
"""
    func = from_source(source)
    assert isinstance(func, PrimFunc)
    text = repr(lower(func).body[0])
    assert "Reduce" not in text


@pytest.mark.parametrize(
    ("shape", "axis", "lane"),
    [((64, 128), 1, "k1"), ((64, 128), 0, "ax0"), ((64, 4, 128), 1, "ax1")],
)
def test_lanes_run_along_memory(shape: tuple[int, ...], axis: int, lane: str) -> None:
    x = placeholder(*shape)
    nest = read_nest(lower(prim_func(x, topi.sum(x, axis=axis))).body[0])
    assert nest is not None
    chosen = choose_lane(nest, Indices())
    assert chosen is not None
    assert chosen.name == lane


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_sums_keep_their_order(dtype: str) -> None:
    x = placeholder(4, 128, dtype=dtype)
    nest = read_nest(lower(prim_func(x, topi.sum(x, axis=1))).body[0])
    assert nest is not None
    assert choose_lane(nest, Indices()) is None


def test_loops_through_memory_become_one() -> None:
    x = placeholder(8, 3, 5)
    text = text_of(x, te.compute((8, 3, 5), lambda i, j, k: x[i, j, k] * 2.0, name="y"))
    assert text.count("phi") == 1


def test_a_vector_times_a_matrix_streams_it() -> None:
    x, w = placeholder(1, 576), placeholder(576, 1536, name="w")
    text = text_of(x, w, topi.matmul(x, w))
    # rows outside, eight at a time, lanes inside, no row of the result in registers
    assert re.search(r"mul i64 %v\d+, 1536|mul i64 %i\d+, 12288", text)
    assert text.count("llvm.fmuladd") == 8
    assert "phi <" not in text
    # the next rows are fetched meanwhile
    assert "call void @llvm.prefetch" in text


def test_a_small_matrix_is_not_fetched_ahead() -> None:
    x, w = placeholder(1, 64), placeholder(64, 256, name="w")
    assert "prefetch" not in text_of(x, w, topi.matmul(x, w))


# ------------------------------------------------------------------ matrix products


@pytest.mark.parametrize(
    ("left", "right", "batch"),
    [
        ((512, 512), (512, 512), 0),
        ((3, 128, 256), (3, 256, 128), 1),
        ((2, 5, 128, 256), (256, 128), 0),
    ],
)
def test_products_are_recognised(left: Any, right: Any, batch: int) -> None:
    a, b = placeholder(*left, name="a"), placeholder(*right, name="b")
    product = read_product(lower(prim_func(a, b, topi.matmul(a, b))).body[0], Indices())
    assert product is not None
    assert len(product.batch) == batch
    assert product.is_large()


def test_a_transposed_operand_is_a_view() -> None:
    a, b = placeholder(128, 256, name="a"), placeholder(128, 256, name="b")
    kernel = lower(prim_func(a, b, topi.matmul(a, topi.transpose(b))))
    inline(kernel)
    assert len(kernel.body) == 1
    product = read_product(kernel.body[0], Indices())
    assert product is not None
    assert product.right.buffer.name == "b"


def test_small_products_stay_in_the_kernel() -> None:
    a = placeholder(16, 16, name="a")
    text = compiled(prim_func(a, topi.matmul(a, a))).plan
    assert text.callbacks == []
    k = te.reduce_axis((0, 512), "k")
    x = placeholder(512, 512)
    weird = te.compute((512, 512), lambda i, j: te.sum(x[i, k] * x[k, k], axis=k), name="y")
    assert read_product(lower(prim_func(x, weird)).body[0], Indices()) is None


# ------------------------------------------------------------------ text


def test_text_and_instructions_can_be_read() -> None:
    x = placeholder(1024)
    plan = compiled(prim_func(x, topi.exp(x))).plan
    assert "noinline" in plan.text
    assert plan.text.startswith("; kernel\n")
    assert "kernel.body" in machine().assembly(plan.text)
