"""Errors of compiled kernels are those of the interpreter."""

import re
import sys
from typing import Any

import numpy as np
import pytest

from relaxlab import te, topi
from relaxlab.codegen import Kernel
from relaxlab.codegen.llvm import compiler, generate
from relaxlab.codegen.llvm.machine import machine
from relaxlab.ir import TensorLoad, Var, prim_ops
from relaxlab.ir.prim_ops import const
from relaxlab.script import from_source
from relaxlab.tirx import (
    AllocBuffer,
    AssertStmt,
    BufferStore,
    For,
    ForKind,
    Interpreter,
    PrimFunc,
    SeqStmt,
    decl_buffer,
)
from tests.codegen.llvm.support import SSE2, compiled, kernel_of, placeholder, prim_func
from tests.tirx.kernels import elementwise, literal

n = te.var("n", "int64")


def taking(rank_first: bool, size: Any = 5) -> PrimFunc:
    x, rows = placeholder(size, 40), placeholder(6, name="rows", dtype="int64")
    if rank_first:
        return prim_func(x, rows, te.compute((6, 40), lambda i, j: x[rows[i], j], name="y"))
    x = placeholder(size)
    return prim_func(x, rows, te.compute((6,), lambda i: x[rows[i]] * 2.0, name="y"))


def message(function: Any, *arguments: Any) -> tuple[type[Exception], str]:
    with pytest.raises((ArithmeticError, LookupError, RuntimeError, ValueError)) as caught:
        function(*arguments)
    return caught.type, str(caught.value)


@pytest.mark.parametrize("bad", [5, -1, 2**62, -(2**63)])
@pytest.mark.parametrize("rank_first", [True, False])
def test_an_index_from_data_is_refused_in_words(bad: int, rank_first: bool) -> None:
    func = taking(rank_first)
    rows = np.array([0, 4, bad, 1, 77, 2])
    x = np.ones((5, 40) if rank_first else 5, np.float32)
    out = np.zeros((6, 40) if rank_first else 6, np.float32)
    kind, words = message(kernel_of(func).function, x, rows, out)
    assert (kind, words) == message(Interpreter(func, "kernel"), x, rows, out)
    assert f"index {bad} of dimension 0 is outside [0, 5)" in words


def test_an_index_beyond_a_symbolic_size_is_refused() -> None:
    func = taking(True, n)
    x, out = np.ones((3, 40), np.float32), np.zeros((6, 40), np.float32)
    kernel = kernel_of(func).function
    kernel(x, np.array([0, 1, 2, 2, 1, 0]), out)
    assert out.tolist() == [[1.0] * 40] * 6
    kind, words = message(kernel, x, np.array([0, 1, 3, 0, 0, 0]), out)
    assert kind is IndexError
    assert "outside [0, 3)" in words


def test_an_index_in_a_loop_that_does_not_run_is_never_read() -> None:
    m = te.var("m", "int64")
    x, rows = placeholder(5, m), placeholder(1, name="rows", dtype="int64")
    func = prim_func(x, rows, te.compute((1, m), lambda i, j: x[rows[i], j], name="y"))
    kernel = kernel_of(func).function
    kernel(np.ones((5, 0), np.float32), np.array([9]), np.ones((1, 0), np.float32))
    with pytest.raises(IndexError):
        kernel(np.ones((5, 1), np.float32), np.array([9]), np.ones((1, 1), np.float32))


@pytest.mark.parametrize("host", [None, SSE2], ids=["here", "sse2"])
def test_an_index_is_checked_only_where_its_guard_holds(host: Any) -> None:
    x, rows = placeholder(5), placeholder(40, name="rows", dtype="int64")
    y = te.compute((40,), lambda i: te.if_then_else(rows[i] >= 0, x[rows[i]], -1.0), name="y")
    func = prim_func(x, rows, y)
    kernel = compiled(func, host)
    out = np.zeros(40, np.float32)
    good = np.where(np.arange(40) % 3 == 0, -7, np.arange(40) % 5)
    kernel(np.arange(5, dtype=np.float32), good, out)
    np.testing.assert_array_equal(out, np.where(good < 0, -1, good))
    good[17] = 5
    with pytest.raises(IndexError, match=r"x\[5\]: index 5"):
        kernel(np.arange(5, dtype=np.float32), good, out)


def test_a_store_out_of_bounds_is_refused() -> None:
    x, y, i = decl_buffer((8,), name="x"), decl_buffer((4,), name="y"), Var("i", "int64")
    store = BufferStore(y, TensorLoad(x, (i,)), (i,))
    func = PrimFunc((x, y), For(i, literal(0), literal(8), ForKind.SERIAL, store))
    kind, words = message(kernel_of(func).function, *(np.ones(k, np.float32) for k in (8, 4)))
    assert kind is IndexError
    assert "writes y[" in words
    assert "outside [0, 4)" in words


@pytest.mark.parametrize("operator", [prim_ops.floordiv, prim_ops.floormod, prim_ops.truncdiv])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_division_by_zero_is_refused(operator: Any, dtype: str) -> None:
    func = elementwise(operator, dtype, dtype)
    a, b = (np.full(37, v, dtype) for v in (7, 2))
    out = np.zeros(37, dtype)
    kernel = kernel_of(func).function
    kernel(a, b, out)
    b[30] = 0
    assert message(kernel, a, b, out) == message(Interpreter(func, "kernel"), a, b, out)
    assert message(kernel, a, b, out)[0] is ZeroDivisionError


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize(
    "operator", [prim_ops.floordiv, prim_ops.floormod, prim_ops.truncdiv, prim_ops.truncmod]
)
@pytest.mark.parametrize("rank", [1, 2])
def test_a_division_in_a_loop_that_does_not_run_is_never_done(
    operator: Any, dtype: str, rank: int
) -> None:
    """Nothing in it changes from one iteration to the next, so it stands in front of the loop."""
    shape = (n,) if rank == 1 else (n, 3)
    a, b = (placeholder(1, name=name, dtype=dtype) for name in "ab")
    func = prim_func(a, b, te.compute(shape, lambda *_: operator(a[0], b[0]), name="y"))
    kernel, zero, seven = kernel_of(func).function, np.zeros(1, dtype), np.full(1, 7, dtype)
    kernel(seven, zero, np.zeros((0, 3)[:rank], dtype))
    out = np.zeros((2, 3)[:rank], dtype)
    assert message(kernel, seven, zero, out)[0] is ZeroDivisionError


@pytest.mark.parametrize("operator", [prim_ops.floormod, prim_ops.floordiv])
def test_a_division_by_a_size_that_is_zero_is_never_done(operator: Any) -> None:
    """Inside the loop the size is known not to be zero, outside it is not."""
    x, at = placeholder(n), placeholder(1, name="at", dtype="int64")
    y = te.compute((n,), lambda i: x[prim_ops.floormod(operator(at[0], n), n)], name="y")
    kernel = kernel_of(prim_func(x, at, y)).function
    kernel(np.ones(0, np.float32), np.array([5]), np.ones(0, np.float32))
    out = np.zeros(3, np.float32)
    kernel(np.arange(3, dtype=np.float32), np.array([5]), out)
    assert out.tolist() == [{"floordiv": 1, "floormod": 2}[operator.__name__]] * 3


def test_a_division_behind_the_end_of_a_loop_is_never_done() -> None:
    func = from_source("""
@T.prim_func(s_tir=True)
def f(a: T.int32, b: T.int32, y: T.Buffer((4,), "int32")):
    for i in range(4):
        if b == 0:
            T.evaluate(T.break_loop())
        y[i] = T.truncdiv(a, b)
""")
    assert isinstance(func, PrimFunc)
    kernel, out = kernel_of(func).function, np.zeros(4, np.int32)
    kernel(6, 0, out)
    assert out.tolist() == [0] * 4
    kernel(6, 3, out)
    assert out.tolist() == [2] * 4


@pytest.mark.parametrize("host", [None, SSE2], ids=["here", "sse2"])
def test_a_division_is_done_only_where_its_guard_holds(host: Any) -> None:
    a, b = (placeholder(40, name=name, dtype="int32") for name in "ab")
    y = te.compute((40,), lambda i: te.if_then_else(b[i] > 0, a[i] // b[i], -1), name="y")
    m = te.if_then_else(b[0] > 0, a[0] // b[0], -2)
    z = te.compute((40,), lambda i: y[i] + m, name="z")
    kernel = kernel_of(prim_func(a, b, z), host).function
    out = np.zeros(40, np.int32)
    kernel(np.full(40, 9, np.int32), np.arange(40, dtype=np.int32) % 2, out)
    assert out.tolist() == [-3, 7] * 20


def test_the_lowest_integer_by_minus_one_wraps() -> None:
    for operator in (prim_ops.floordiv, prim_ops.truncdiv, prim_ops.floormod, prim_ops.truncmod):
        func = elementwise(operator, "int32", "int32")
        a, b = np.full(20, -(2**31), np.int32), np.full(20, -1, np.int32)
        out, expected = np.zeros(20, np.int32), np.zeros(20, np.int32)
        kernel_of(func).function(a, b, out)
        Interpreter(func, "kernel")(a, b, expected)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("count", [-1, 32, 40])
def test_a_shift_by_too_much_is_refused(count: int) -> None:
    func = elementwise(prim_ops.shift_left, "int32", "int32")
    a, b, out = np.ones(20, np.int32), np.full(20, 3, np.int32), np.zeros(20, np.int32)
    kernel = kernel_of(func).function
    kernel(a, b, out)
    assert out.tolist() == [8] * 20
    b[19] = count
    assert message(kernel, a, b, out) == message(Interpreter(func, "kernel"), a, b, out)


def test_an_assertion_raises_its_error() -> None:
    size, x = Var("n", "int64"), decl_buffer((4,), name="x")
    refuse = AssertStmt(size < 5, "ValueError", ("at most ", "four"))
    func = PrimFunc((x, size), SeqStmt((refuse, BufferStore(x, const(1.0), (literal(0),)))))
    kernel, given = kernel_of(func).function, np.zeros(4, np.float32)
    kernel(given, 4)
    assert given[0] == 1
    with pytest.raises(ValueError, match="at most four"):
        kernel(given, 5)


def test_memory_that_is_not_to_be_had_is_an_error() -> None:
    size, x = Var("n", "int64"), decl_buffer((1,), name="x")
    huge = decl_buffer((size,), name="huge")
    body = SeqStmt(
        (
            AllocBuffer(huge),
            BufferStore(huge, const(1.0), (literal(0),)),
            BufferStore(x, TensorLoad(huge, (literal(0),)), (literal(0),)),
        )
    )
    kernel, given = kernel_of(PrimFunc((x, size), body)).function, np.zeros(1, np.float32)
    kernel(given, 100_000)
    assert given[0] == 1
    with pytest.raises(MemoryError, match="huge"):
        kernel(given, 2**60)


def test_memory_is_given_back_after_an_error() -> None:
    x, rows = placeholder(5), placeholder(200_000, name="rows", dtype="int64")
    twice = te.compute((200_000,), lambda i: prim_ops.exp(x[rows[i]]), name="twice")
    k = te.reduce_axis((0, 200_000), "k")
    total = te.compute((1,), lambda i: te.sum(twice[k], axis=k), name="total")
    more = te.compute((1,), lambda i: total[i] + twice[i], name="more")
    kernel = kernel_of(prim_func(x, rows, more)).function
    bad = np.zeros(200_000, np.int64)
    bad[-1] = 5
    for _ in range(2000):
        with pytest.raises(IndexError):
            kernel(np.ones(5, np.float32), bad, np.zeros(1, np.float32))


def test_nothing_to_do_is_done() -> None:
    func = prim_func(placeholder(n), te.compute((n,), lambda i: const(1.0), name="y"))
    kernel_of(func).function(np.zeros(0, np.float32), np.zeros(0, np.float32))


def test_a_sum_over_nothing_leaves_what_was_there() -> None:
    m = te.var("m", "int64")
    x, k = placeholder(3, m), te.reduce_axis((0, m), "k")
    func = prim_func(x, te.compute((3,), lambda i: te.sum(x[i, k], axis=k), name="y"))
    for function in (kernel_of(func).function, Interpreter(func, "kernel")):
        out = np.full(3, 7, np.float32)
        function(np.zeros((3, 0), np.float32), out)
        assert out.tolist() == [7.0] * 3


def test_what_has_no_llvm_form_says_so_and_runs() -> None:
    func = elementwise(lambda a: a, "float8_e4m3fn")
    kernel = generate(func, "narrow")
    assert "no LLVM form of elements of dtype float8_e4m3fn" in kernel.source
    x = np.array([1, 2, 448], "float32").astype(func.params[0].ty.dtype.numpy())  # type: ignore[union-attr]
    out = np.zeros_like(x)
    kernel.function(x, out)
    np.testing.assert_array_equal(out, x)


def doubled_by(kernel: Kernel) -> list[float]:
    x, out = np.ones(20, np.float32), np.zeros(20, np.float32)
    kernel.function(x, out)
    return [float(v) for v in out]


def test_what_llvm_refuses_says_so_and_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Any:
        raise RuntimeError("use of undefined value\n  %v1 = add")

    monkeypatch.setattr(compiler, "compile_kernel", refuse)
    kernel = generate(elementwise(lambda a: a * 2.0, "float32"), "double")
    assert kernel.source.startswith("# double: LLVM refuses it (use of undefined value %v1 = add)")
    assert doubled_by(kernel) == [2.0] * 20


def test_without_a_loadable_llvm_kernels_are_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "relaxlab.codegen.llvm.compiler", None)
    kernel = generate(elementwise(lambda a: a * 2.0, "float32"), "double")
    assert kernel.source.startswith("# LLVM cannot be loaded: ")
    assert doubled_by(kernel) == [2.0] * 20


def test_ir_that_is_not_valid_is_refused_before_it_is_compiled() -> None:
    # LLVM ends the process when it compiles this
    text = """define i32 @f(i1 %b) {
 br i1 %b, label %one, label %two
one:
 %v = add i32 1, 2
 br label %two
two:
 ret i32 %v
}
"""
    with pytest.raises(RuntimeError, match="dominate"):
        machine().compile(text)


def test_a_very_wide_vector_is_left_to_numpy() -> None:
    func = from_source(
        """
@T.prim_func
def main(x: T.Buffer((1024,), "float32"), y: T.Buffer((1024,), "float32")):
    y[T.Ramp(0, 1, 1024)] = x[T.Ramp(0, 1, 1024)] * T.Broadcast(T.float32(2), 1024)
"""
    )
    assert isinstance(func, PrimFunc)
    kernel = generate(func, "wide")
    assert "no LLVM form of a vector of 1024 lanes" in kernel.source
    out = np.zeros(1024, np.float32)
    kernel.function(np.ones(1024, np.float32), out)
    assert out.tolist() == [2.0] * 1024


def test_many_calls_of_functions_are_not_inlined() -> None:
    x = placeholder(64)
    few = compiled(prim_func(x, topi.tanh(x))).plan.text
    assert re.search(r"define internal .*@tanh.*alwaysinline", few)
    outputs = [topi.tanh(topi.multiply(x, const(float(k)))) for k in range(120)]
    kernel = compiled(prim_func(x, *outputs))
    assert re.search(r"define internal .*@tanh.*noinline", kernel.plan.text)
    given = np.linspace(-1, 1, 64, dtype=np.float32)
    results = [np.zeros(64, np.float32) for _ in outputs]
    kernel(given, *results)
    np.testing.assert_allclose(results[7], np.tanh(given * 7), rtol=1e-6)


def test_a_deep_expression_compiles() -> None:
    func = elementwise(lambda a: sum((a * float(k) for k in range(2000)), a), "float32")
    x, out = np.ones(20, np.float32), np.zeros(20, np.float32)
    kernel_of(func).function(x, out)
    np.testing.assert_allclose(out, 1 + 2000 * 1999 / 2, rtol=1e-6)


def test_a_long_chain_of_blocks_compiles() -> None:
    x = y = placeholder(20)
    for k in range(300):
        y = topi.add(y, const(float(k)))
    out = np.zeros(20, np.float32)
    kernel_of(prim_func(x, y)).function(np.ones(20, np.float32), out)
    assert out.tolist() == [1 + 300 * 299 / 2] * 20
