"""Kernels that call Python functions, return early, jump, and read tensors' fields."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime import Tensor, register_global_func, tensor
from relaxlab.runtime.packed_func import GLOBAL_FUNCTIONS
from relaxlab.script import from_source
from relaxlab.tirx import Interpreter, PrimFunc
from tests.codegen.llvm.support import compiled, kernel_of
from tests.codegen.test_numpy_operators import kernels as kernels_of_script
from tests.golden_compiler import document

NAMES = ("test.llvm.sort", "test.llvm.number", "test.llvm.fail")


@pytest.fixture(autouse=True)
def functions() -> Iterator[list[Any]]:
    """Register functions that kernels call; they record their arguments."""
    came: list[Any] = []

    def sort(source: Tensor, target: Tensor, axis: int, ascending: bool) -> None:
        came.append((source.shape, str(source.dtype), axis, ascending))
        values = np.sort(source.array, axis=axis)
        target.array[...] = values if ascending else np.flip(values, axis)

    def number(text: str, whole: int, real: float) -> float:
        came.append((text, whole, real))
        return whole * real

    def fail() -> None:
        raise KeyError("from inside")

    for name, function in zip(NAMES, (sort, number, fail), strict=True):
        register_global_func(name, function)
    yield came
    for name in NAMES:
        GLOBAL_FUNCTIONS.remove(name)


def script(body: str, parameters: str) -> PrimFunc:
    text = f"@T.prim_func(s_tir=True)\ndef f({parameters}):\n"
    func = from_source(text + "".join(f"    {line}\n" for line in body.splitlines()))
    assert isinstance(func, PrimFunc)
    return func


SORT = """
for i in range(3):
    y[i, 0] = x[i, 0]
T.call_packed("test.llvm.sort", TENSOR(x), TENSOR(y), -1, T.bool(False))
for i in range(3):
    z[i] = y[i, 0]
"""
TENSOR = (
    "T.tvm_stack_make_array({}.data, T.tvm_stack_make_shape(3, 4), 0, 2, T.float32(0.0), "
    "T.int64(0))"
)


def test_tensors_are_passed_and_changes_are_seen(functions: list[Any]) -> None:
    text = SORT.replace("TENSOR(x)", TENSOR.format("x")).replace("TENSOR(y)", TENSOR.format("y"))
    func = script(
        text, 'x: T.Buffer((3, 4), "float32"), y: T.Buffer((3, 4), "float32"), z: T.Buffer((3,))'
    )
    x = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    y, z = np.zeros((3, 4), np.float32), np.zeros(3, np.float32)
    kernel_of(func).function(x, y, z)
    np.testing.assert_array_equal(y, -np.sort(-x))
    np.testing.assert_array_equal(z, x.max(1))
    assert functions == [((3, 4), "float32", -1, False)]


def test_numbers_go_both_ways(functions: list[Any]) -> None:
    func = script(
        'y[0] = T.call_packed("test.llvm.number", "text", n, x[0])',
        'n: T.int64, x: T.Buffer((1,), "float32"), y: T.Buffer((1,), "int32")',
    )
    out = np.zeros(1, np.int32)
    kernel_of(func).function(6, np.array([1.5], np.float32), out)
    assert functions == [("text", 6, 1.5)]
    assert out[0] == 9


def test_errors_come_out_and_do_no_harm() -> None:
    func = script('T.call_packed("test.llvm.fail")', 'x: T.Buffer((1,), "float32")')
    kernel = kernel_of(func).function
    for _ in range(3):
        with pytest.raises(KeyError, match="from inside"):
            kernel(np.zeros(1, np.float32))


def test_a_function_that_is_not_there_is_named() -> None:
    func = script('T.call_packed("test.llvm.none")', 'x: T.Buffer((1,), "float32")')
    with pytest.raises(InternalError, match=r"test\.llvm\.none.*register_global_func"):
        kernel_of(func).function(np.zeros(1, np.float32))


def both(func: PrimFunc, *arguments: Any) -> tuple[Any, Any]:
    return Interpreter(func, "f")(*arguments), compiled(func)(*arguments)


def test_fields_of_a_tensor() -> None:
    given = tensor(np.zeros((2, 3, 5), np.int16))
    seen = 0
    for case in document("op_legalized")["cases"]:
        if not case["op"].startswith("relax.inspect"):
            continue
        for _, func in kernels_of_script(case["script"]):
            numbers = [1] * (len(func.params) - 1)
            expected, result = both(func, given, *numbers)
            assert (result, type(result)) == (expected, type(expected)), case["op"]
            seen += 1
    assert seen >= 8


WHILE = """
low[0] = T.int64(0)
while low[0] * low[0] < n:
    low[0] = low[0] + T.int64(1)
return low[0]
"""


@pytest.mark.parametrize("given", [0, 1, 10, 1000])
def test_while_loops_and_returns(given: int) -> None:
    func = script(WHILE, 'n: T.int64, low: T.Buffer((1,), "int64")')
    expected, result = both(func, given, np.zeros(1, np.int64))
    assert result == expected


JUMPS = """
for i in range(10):
    if x[i] < T.float32(0.0):
        T.continue_loop()
    if x[i] > T.float32(5.0):
        T.break_loop()
    y[0] = y[0] + x[i]
y[1] = T.float32(1.0)
"""


def test_jumps() -> None:
    func = script(JUMPS, 'x: T.Buffer((10,), "float32"), y: T.Buffer((2,), "float32")')
    x = np.array([1, -1, 2, -3, 4, 6, 7, 8, 9, 10], np.float32)
    results = []
    for function in (Interpreter(func, "f"), compiled(func)):
        y = np.zeros(2, np.float32)
        function(x, y)
        results.append(y.tolist())
    assert results == [[7.0, 1.0]] * 2


VECTORS = """
y[T.Ramp(0, 1, 4)] = x[T.Ramp(4, 1, 4)] + T.Broadcast(T.float32(1.0), 4)
y[T.Ramp(7, -1, 4)] = x[T.Ramp(0, 2, 4)]
"""


def test_vectors_that_the_kernel_speaks_of() -> None:
    func = script(VECTORS, 'x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")')
    x = np.arange(8, dtype=np.float32)
    results = []
    for function in (Interpreter(func, "f"), compiled(func)):
        y = np.zeros(8, np.float32)
        function(x, y)
        results.append(y.tolist())
    assert results[0] == results[1]
