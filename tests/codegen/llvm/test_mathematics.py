"""Mathematics and conversions against references of higher precision, over all of float32."""

import ctypes
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from relaxlab.codegen.llvm.builder import helper_name
from relaxlab.codegen.llvm.host import Host
from relaxlab.codegen.llvm.machine import machine
from relaxlab.codegen.llvm.mathematics import helper_text
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx import scalar
from tests.codegen.llvm.support import AVX2, SSE2

Array = NDArray[Any]
_NUMPY = {"float": "f4", "double": "f8"} | {f"i{8 * k}": f"i{k}" for k in (1, 2, 4, 8)}


@cache
def over_arrays(
    name: str, result: str, elem: str, lanes: int, count: int = 1, host: Host | None = None
) -> Callable[..., Array]:
    """Return a helper function as one on arrays, whose length is a multiple of the lanes."""
    compiler = machine(host)
    kinds = ((elem, lanes),) * count
    vector, given = (f"<{lanes} x {e}>" if lanes else e for e in (result, elem))
    reads = "".join(
        f"  %p{k} = getelementptr {elem}, ptr %a{k}, i64 %i\n"
        f"  %x{k} = load {given}, ptr %p{k}, align 1\n"
        for k in range(count)
    )
    operands = ", ".join(f"{given} %x{k}" for k in range(count))
    pointers = ", ".join(f"ptr %a{k}" for k in range(count))
    text = f"""{helper_text({(name, result, kinds): None}, compiler.host)}
define void @apply(ptr %out, i64 %n, {pointers}) noinline {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
{reads}  %y = call {vector} @{helper_name(name, result, kinds)}({operands})
  %q = getelementptr {result}, ptr %out, i64 %i
  store {vector} %y, ptr %q, align 1
  %j = add i64 %i, {lanes or 1}
  %more = icmp slt i64 %j, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
    linked = compiler.link(compiler.compile(text), ("apply",))
    pointer = ctypes.c_void_p
    prototype = ctypes.CFUNCTYPE(None, pointer, ctypes.c_int64, *[pointer] * count)
    function = prototype(linked.addresses["apply"])

    def call(*arrays: Array) -> Array:
        out = np.empty(arrays[0].shape, _NUMPY[result])
        assert out.size % max(lanes, 1) == 0
        function(out.ctypes.data, out.size, *(a.ctypes.data for a in arrays))
        return out

    call.linked = linked  # type: ignore[attr-defined]  # keeps the machine code
    return call


def all_over(count: int) -> Array:
    """Return floats of all sizes, and those at which functions change their ways."""
    random = np.random.default_rng(1)
    edges = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 3.4e38, -3.4e38]
    edges += [1.17549435e-38, 88.72283, 88.72284, -103.97, -87.3365, 0.5, 2.0, 1e6, -1e6, 1e30]
    parts = [
        random.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32),
        random.normal(0, 3, count),
        random.uniform(-110, 110, count),
        1 + random.normal(0, 0.1, count),
        random.normal(0, 1, count) * 10.0 ** random.uniform(-8, 0, count),
        np.resize(edges, 64),
    ]
    return np.concatenate([np.asarray(p, np.float32) for p in parts])


def units_off(result: Array, exact: Array) -> Array:
    """Return distances in units in the last place; specials must agree."""
    with np.errstate(over="ignore"):
        nearest = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(nearest))
    np.testing.assert_array_equal(result[np.isinf(nearest)], nearest[np.isinf(nearest)])
    finite = np.isfinite(nearest)
    unit = np.maximum(np.spacing(np.abs(nearest[finite])).astype(np.float64), 2.0**-149)
    # just below infinity the rounded result may be infinite
    with np.errstate(over="ignore", invalid="ignore"):
        close = np.minimum(np.abs(result[finite].astype(np.float64)), 3.5e38)
    away = np.abs(np.copysign(close, result[finite]) - exact[finite])
    distances: Array = away / unit
    return distances


def _erf(x: Array) -> Array:
    return np.array([math.erf(v) for v in x])


BOUNDS: dict[str, tuple[float, Callable[[Array], Array]]] = {
    "cos": (2, np.cos),
    "cosh": (4, np.cosh),
    "erf": (3, _erf),
    "exp": (1.5, np.exp),
    "exp2": (1.5, np.exp2),
    "log": (1.5, np.log),
    "log10": (2, np.log10),
    "log1p": (2, np.log1p),
    "log2": (2, np.log2),
    "sin": (2, np.sin),
    "sinh": (4, np.sinh),
    "tan": (4, np.tan),
    "tanh": (6, np.tanh),
}


@pytest.mark.parametrize("variant", ["vector", "scalar", "sse2", "avx2"])
@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_errors_stay_within_the_stated_bounds(name: str, variant: str) -> None:
    lanes, host = {"vector": (16, None), "scalar": (0, None), "sse2": (4, SSE2), "avx2": (8, AVX2)}[
        variant
    ]
    bound, reference = BOUNDS[name]
    x = all_over(20_000 if name == "erf" else 60_000)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
    result = over_arrays(name, "float", "float", lanes, 1, host)(x)
    assert units_off(result, exact).max() <= bound


@pytest.mark.parametrize("lanes", [0, 16])
def test_powers(lanes: int) -> None:
    random = np.random.default_rng(2)
    count = 60_000
    base = np.abs(random.normal(0, 2, count) * 10.0 ** random.uniform(-3, 3, count))
    power = random.normal(0, 5, count)
    signed, whole = random.normal(0, 2, count), np.round(random.normal(0, 9, count))
    some = [0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, math.inf, -math.inf, math.nan, 1e-45, 3e38]
    x, y = (m.ravel() for m in np.meshgrid(np.resize(some, 16), np.resize(some, 16)))
    a = np.concatenate([base, signed, x]).astype(np.float32)
    b = np.concatenate([power, whole, y]).astype(np.float32)
    with np.errstate(all="ignore"):
        exact = np.power(a.astype(np.float64), b.astype(np.float64))
    result = over_arrays("pow", "float", "float", lanes, 2)(a, b)
    assert units_off(result, exact).max() <= 1


@pytest.mark.parametrize("name", ["erf", "tanh"])
def test_nothing_is_beyond_one(name: str) -> None:
    x = np.linspace(0.0, 12.0, 2**18, dtype=np.float32)
    assert over_arrays(name, "float", "float", 16)(x).max() == 1.0
    assert over_arrays(name, "float", "float", 16)(-x).min() == -1.0


def test_results_keep_the_sign_of_zero() -> None:
    zeros = np.resize(np.array([0.0, -0.0], np.float32), 16)
    for name in ("sin", "tan", "tanh", "erf", "sinh", "log1p"):
        result = over_arrays(name, "float", "float", 16)(zeros)
        np.testing.assert_array_equal(np.signbit(result), np.signbit(zeros), err_msg=name)


def test_doubles_and_rare_functions_come_from_the_c_library() -> None:
    x = np.linspace(-0.9, 0.9, 64)
    for name, function in {"exp": np.exp, "sin": np.sin, "atanh": np.arctanh}.items():
        result = over_arrays(name, "double", "double", 8)(x)
        np.testing.assert_allclose(result, function(x), rtol=1e-15)
    single = x.astype(np.float32)
    result = over_arrays("asinh", "float", "float", 16)(single)
    np.testing.assert_allclose(result, np.arcsinh(single), rtol=3e-7)


# ------------------------------------------------------------------ conversions


def test_every_float16_is_widened_as_numpy_does() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    wide = over_arrays("half_to_float", "float", "i16", 8)(bits.view(np.int16))
    np.testing.assert_array_equal(wide, bits.view(np.float16).astype(np.float32))


def test_floats_are_narrowed_to_float16_as_numpy_does() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    with np.errstate(all="ignore"):
        between = (halves[:-1] + halves[1:]) / 2
        x = np.concatenate([halves, np.resize(between, 2**16), np.nextafter(halves, np.float32(9))])
        x = np.concatenate([x, all_over(40_000)])
        expected = x.astype(np.float16)
    narrow = over_arrays("float_to_half", "i16", "float", 8)(x).view(np.float16)
    np.testing.assert_array_equal(narrow, expected)


def test_floats_are_rounded_to_bfloat16_as_ml_dtypes_does() -> None:
    x = all_over(60_000)
    with np.errstate(all="ignore"):
        expected = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(over_arrays("round_bfloat", "float", "float", 16)(x), expected)


def test_a_double_is_rounded_to_float16_once() -> None:
    random = np.random.default_rng(3)
    halves = random.integers(0, 0x7C00, 40_000).astype(np.uint16).view(np.float16).astype(float)
    tie = halves * (1 + 2.0**-11)
    x = np.concatenate([tie, tie * (1 + 2.0**-40), tie * (1 - 2.0**-40), -tie])
    odd = over_arrays("double_to_odd_float", "float", "double", 8)(x)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(odd.astype(np.float16), x.astype(np.float16))


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_floats_become_integers_as_the_definition_says(source: str, target: str) -> None:
    random = np.random.default_rng(4)
    x = random.normal(0, 1, 4096) * 10.0 ** random.uniform(-2, 25, 4096)
    edges = [127.9, -128.9, 255.5, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 0.5]
    x = np.concatenate([x, np.resize([*edges, math.nan, math.inf, -math.inf], 256)]).astype(source)
    bits, dtype = DataType(target).bits, DataType(target)
    expected = [scalar.cast(v, dtype) for v in x]
    kind = "float" if source == "float32" else "double"
    with np.errstate(all="ignore"):
        odd = [
            np.asarray(np.array(v, source)).astype(target) for v in (math.nan, math.inf, -math.inf)
        ]
    lanes, register = 8, f"i{bits}"
    compiler = machine()
    kinds = ((kind, lanes), *((register, lanes),) * 3)
    constants = ", ".join(
        f"<{lanes} x {register}> splat ({register} {int(v.view(f'i{bits // 8}'))})" for v in odd
    )
    name = helper_name("to_integer", register, kinds)
    text = f"""{helper_text({("to_integer", register, kinds): None}, compiler.host)}
define void @apply(ptr %out, ptr %in, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  %p = getelementptr {kind}, ptr %in, i64 %i
  %x = load <{lanes} x {kind}>, ptr %p, align 1
  %y = call <{lanes} x {register}> @{name}(<{lanes} x {kind}> %x, {constants})
  %q = getelementptr {register}, ptr %out, i64 %i
  store <{lanes} x {register}> %y, ptr %q, align 1
  %j = add i64 %i, {lanes}
  %more = icmp slt i64 %j, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
    linked = compiler.link(compiler.compile(text), ("apply",))
    out = np.empty(x.shape, target)
    pointer = ctypes.c_void_p
    ctypes.CFUNCTYPE(None, pointer, pointer, ctypes.c_int64)(linked.addresses["apply"])(
        out.ctypes.data, x.ctypes.data, x.size
    )
    assert out.tolist() == expected
