"""Calling kernels: the fast way, the careful way, and what each refuses."""

import ctypes
import gc
import sys
import threading
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from relaxlab import te, topi
from relaxlab.codegen.llvm import arguments, fastcall
from relaxlab.codegen.llvm.fastcall import fast_callable, is_possible
from relaxlab.ir import Cast, Var
from relaxlab.runtime import tensor
from relaxlab.tirx import Interpreter, PrimFunc, Return
from tests.codegen.llvm.support import compiled, placeholder, prim_func

BUILT_IN = type(len)
n = te.var("n", "int64")


def adding(*shape: Any, dtype: str = "float32") -> PrimFunc:
    x, y = placeholder(*shape, dtype=dtype), placeholder(*shape, name="y", dtype=dtype)
    return prim_func(x, y, topi.add(x, y))


@pytest.fixture(params=["fast", "careful"])
def call(request: pytest.FixtureRequest) -> Any:
    """Return what makes a kernel callable, in both ways."""
    if request.param == "careful":
        return compiled
    if not is_possible():
        pytest.skip("this interpreter lays out objects differently")
    return lambda func: fast_callable(compiled(func))


def test_the_fast_way_is_possible_here() -> None:
    expected = sys.implementation.name == "cpython" and object.__basicsize__ == 16
    assert is_possible() == expected
    if expected:
        assert isinstance(fast_callable(compiled(adding(4))), BUILT_IN)


def test_tensors_and_arrays_are_taken(call: Any) -> None:
    kernel = call(adding(2, 3))
    x, y = np.ones((2, 3), np.float32), np.full((2, 3), 2, np.float32)
    out = np.zeros((2, 3), np.float32)
    assert kernel(x, tensor(y), out) is None
    assert out.tolist() == [[3.0] * 3] * 2
    result = tensor(np.zeros((2, 3), np.float32))
    kernel(tensor(x), y, result)
    assert result.array.tolist() == [[3.0] * 3] * 2


def test_one_kernel_serves_every_size(call: Any) -> None:
    kernel = call(adding(n))
    for size in (0, 1, 7, 16, 33, 100):
        x = np.arange(size, dtype=np.float32)
        out = np.zeros(size, np.float32)
        kernel(x, x + 1, out)
        np.testing.assert_array_equal(out, 2 * x + 1)


X, BAD = np.ones((2, 3), np.float32), np.ones((2, 4), np.float32)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ((X, X), TypeError, "takes 3 arguments"),
        ((X, X, X.astype(np.float64)), TypeError, r"argument 2 .* dtype float32"),
        ((X, X, X.astype(ml_dtypes.bfloat16)), TypeError, r"argument 2 .* dtype float32"),
        ((X, BAD, X), ValueError, "argument 1"),
        ((X, X[0], X), ValueError, "2 dimensions"),
        ((X, [1.0], X), TypeError, "must be a tensor"),
        ((X, None, X), TypeError, "must be a tensor"),
    ],
)
def test_wrong_arguments_are_refused(call: Any, given: Any, error: Any, words: str) -> None:
    kernel = call(adding(2, 3))
    out = np.full((2, 3), 9, np.float32)
    arguments_ = [*given[:2], out if len(given) == 3 and given[2] is X else given[-1]]
    with pytest.raises(error, match=words):
        kernel(*(arguments_ if len(given) == 3 else given))
    assert out.tolist() == [[9.0] * 3] * 2


def test_sizes_must_agree(call: Any) -> None:
    x, y = placeholder(n), placeholder(n + 1, name="y")
    func = prim_func(x, y, te.compute((n,), lambda i: x[i] + y[i], name="z"))
    kernel = call(func)
    good = [np.ones(k, np.float32) for k in (3, 4, 3)]
    kernel(*good)
    assert good[2].tolist() == [2.0] * 3
    with pytest.raises(ValueError, match="must be 4"):
        kernel(good[0], np.ones(3, np.float32), good[2])
    with pytest.raises(ValueError, match="n is 3"):
        kernel(good[0], good[1], np.ones(4, np.float32))


def test_strided_arrays_are_copied(call: Any) -> None:
    kernel = call(adding(2, 3))
    wide = np.arange(24, dtype=np.float32).reshape(4, 6)
    x, y, out = wide[::2, ::2], wide.T[:2, :3], np.zeros((3, 2), np.float32).T
    expected = x + y
    kernel(x, y, out)
    np.testing.assert_array_equal(out, expected)


def test_unaligned_and_read_only_arrays(call: Any) -> None:
    kernel = call(adding(2, 3))
    raw = np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3)
    raw[...] = 1
    out = np.zeros((2, 3), np.float32)
    kernel(raw, raw, out)
    assert out.tolist() == [[2.0] * 3] * 2
    frozen = np.ones((2, 3), np.float32)
    frozen.setflags(write=False)
    kernel(frozen, frozen, out)
    with pytest.raises(ValueError, match="read-only"):
        kernel(out, out, frozen)


def test_overlapping_arguments_act_as_if_in_order(call: Any) -> None:
    x = placeholder(8)
    shifted = te.compute((8,), lambda i: te.if_then_else(i > 0, x[i - 1] + 1.0, x[i]), name="y")
    kernel = call(prim_func(x, shifted))
    both = np.zeros(8, np.float32)
    kernel(both, both)
    # each element sees what was written to its neighbour
    assert both.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    memory = np.zeros(16, np.float32)
    kernel(memory[:8], memory[8:])
    assert memory[8:].tolist() == [0.0] + [1.0] * 7


def test_numbers(call: Any) -> None:
    count, scale, flag = Var("count", "int32"), Var("scale", "float32"), Var("flag", "bool")
    func = PrimFunc((count, scale, flag), Return(Cast("int64", count) * 2))
    kernel = call(func)
    assert kernel(21, 0.5, True) == 42
    assert kernel(np.int64(-4), 1, 0) == -8
    with pytest.raises(TypeError, match="must be a number"):
        kernel("21", 0.5, True)


@pytest.mark.parametrize(
    ("dtype", "value"), [("bool", True), ("int8", -5), ("uint64", 2**64 - 1), ("float32", 0.1)]
)
def test_results_are_as_the_interpreter_gives_them(call: Any, dtype: str, value: Any) -> None:
    given = Var("value", dtype)
    func = PrimFunc((given,), Return(given))
    expected, result = Interpreter(func, "f")(value), call(func)(value)
    assert result == expected or (dtype == "float32" and result == np.float32(expected))
    assert isinstance(result, bool) == isinstance(expected, bool)


def test_a_function_keeps_what_it_needs_and_lets_go_of_it() -> None:
    made = compiled(adding(4))
    function = fast_callable(made)
    here = weakref.ref(made)
    del made
    gc.collect()
    if isinstance(function, BUILT_IN):
        assert here() is not None
    out = np.zeros(4, np.float32)
    function(np.ones(4, np.float32), np.ones(4, np.float32), out)
    assert out.tolist() == [2.0] * 4
    del function
    gc.collect()
    assert here() is None


def test_no_references_leak() -> None:
    kernel = fast_callable(compiled(adding(4)))
    x, out = tensor(np.ones(4, np.float32)), np.zeros(4, np.float32)
    before = [sys.getrefcount(v) for v in (x, out, None, x.array)]
    for _ in range(1000):
        kernel(x, x, out)
        with pytest.raises(TypeError):
            kernel(x, x)
    after = [sys.getrefcount(v) for v in (x, out, None, x.array)]
    assert all(abs(a - b) < 100 for a, b in zip(after, before, strict=True))


# ------------------------------------------------------------------ the way back


@pytest.fixture
def unchecked() -> Any:
    """Let the check be made anew, before and after."""
    is_possible.cache_clear()
    yield
    is_possible.cache_clear()


@pytest.mark.parametrize("broken", ["_DATA", "_DESCR", "_FLAGS", "_RANK", "_DIMS", "_TYPE"])
def test_another_layout_is_noticed(
    broken: str, unchecked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastcall, broken, getattr(fastcall, broken) + 8)
    assert not is_possible()
    made = compiled(adding(4))
    assert fast_callable(made) is made


def test_another_interpreter_is_noticed(unchecked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastcall.sys, "implementation", type("", (), {"name": "pypy"}))
    assert not is_possible()


def test_a_wrapper_that_does_not_work_is_noticed(
    unchecked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastcall, "_calls_work", lambda: False)
    assert not is_possible()


def test_many_parameters_are_passed_the_careful_way() -> None:
    inputs = [placeholder(4, 4, name=f"x{k}") for k in range(30)]
    total = te.compute((4, 4), lambda i, j: sum(x[i, j] for x in inputs), name="y")
    made = compiled(prim_func(*inputs, total))
    assert fast_callable(made) is made
    out = np.zeros((4, 4), np.float32)
    made(*(np.ones((4, 4), np.float32) for _ in inputs), out)
    assert out.tolist() == [[30.0] * 4] * 4


def test_other_threads_run_while_a_long_kernel_does() -> None:
    size = 1 << 20
    x = placeholder(size)
    kernel = fast_callable(compiled(prim_func(x, topi.sin(x))))
    a, out = np.ones(size, np.float32), np.zeros(size, np.float32)
    threads = [threading.Thread(target=kernel, args=(a, out.copy())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kernel(a, out)
    np.testing.assert_allclose(out, np.sin(a), rtol=1e-6)


def test_the_block_for_details_has_room_for_every_message() -> None:
    # extent and all subscripts of the highest rank that is passed, and the two other words
    assert ctypes.sizeof(arguments._STATE) // 8 >= 16 + 2
