"""Compiled kernels and the interpreter agree: recorded operators, and random kernels."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from relaxlab import te
from relaxlab.codegen.llvm.host import Host
from relaxlab.ir import IRModule
from relaxlab.script import from_source
from relaxlab.tirx import Interpreter, PrimFunc
from tests.codegen.compare import assert_same
from tests.codegen.llvm.support import AVX2, SSE2, compiled, kernel_of, placeholder, prim_func
from tests.codegen.llvm.typed_kernels import typed_kernels
from tests.codegen.test_numpy_operators import kernels as kernels_of_script
from tests.codegen.test_numpy_operators import takes_buffers
from tests.codegen.test_random_kernels import kernels
from tests.golden_compiler import document

#: They call functions of a sorting library, which this project does not ship, or take a pointer.
OPAQUE = ("median", "sort", "argsort", "topk", "suppression", "inspect")


@cache
def recorded() -> list[tuple[str, PrimFunc]]:
    """Return (operator, kernel) of every recorded operator."""
    return [
        (case["op"], func)
        for case in document("op_legalized")["cases"]
        if not any(word in case["op"] for word in OPAQUE)
        for _, func in kernels_of_script(case["script"])
        if takes_buffers(func)
    ]


def test_enough_operators_were_recorded() -> None:
    assert len({operator for operator, _ in recorded()}) > 150


@pytest.mark.parametrize("part", range(8))
def test_operator_kernels_agree_with_the_interpreter(part: int) -> None:
    for _, func in recorded()[part::8]:
        assert_same(func, kernel_of(func))


@pytest.mark.parametrize("host", [SSE2, AVX2], ids=["sse2", "avx2"])
def test_operator_kernels_agree_on_lesser_processors(host: Host) -> None:
    for _, func in recorded()[::4]:
        assert_same(func, kernel_of(func, host))


@pytest.mark.parametrize("part", range(4))
def test_kernels_in_written_order_agree_with_the_interpreter(part: int) -> None:
    for _, func in recorded()[part::8]:
        assert_same(func, kernel_of(func, plain=True))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(kernels())
def test_random_float_kernels_agree_with_the_interpreter(case: tuple[PrimFunc, list[Any]]) -> None:
    func, arguments = case
    assert_same(func, kernel_of(func), arguments)


def check(
    func: PrimFunc, arguments: list[Any], exact: bool, host: Host | None, plain: bool
) -> None:
    """Compare values, results and kinds of errors."""
    kernel = compiled(func, host, plain=plain)
    ours, theirs = ([a.copy() for a in arguments] for _ in range(2))
    errors: list[type[Exception] | None] = []
    for function, given_arguments in ((Interpreter(func, "kernel"), theirs), (kernel, ours)):
        try:
            function(*given_arguments)
            errors.append(None)
        except (IndexError, ValueError, ZeroDivisionError) as error:
            errors.append(type(error))
    assert errors[0] is errors[1], kernel.plan.text
    if errors[0] is not None:
        return
    for expected, actual in zip(theirs, ours, strict=True):
        wide = expected.dtype.kind not in "iub"
        a, b = (v.astype(np.float64) if wide else v for v in (expected, actual))
        if wide and not exact:
            narrow = 1e-2 if "bfloat" in str(expected.dtype) else 2e-3
            close = {2: narrow, 4: 1e-5, 8: 1e-12}[expected.dtype.itemsize]
            largest = np.max(np.abs(a), initial=1.0, where=np.isfinite(a))
            np.testing.assert_allclose(b, a, close, close * largest, err_msg=kernel.plan.text)
        else:
            np.testing.assert_array_equal(b, a, kernel.plan.text)


#: A kernel that fails is printed as it is: making it smaller would take minutes.
AS_DRAWN = (Phase.explicit, Phase.reuse, Phase.generate)


@settings(max_examples=40, phases=AS_DRAWN, suppress_health_check=[HealthCheck.too_slow])
@given(typed_kernels())
def test_random_kernels_of_every_dtype_agree(case: tuple[PrimFunc, list[Any], bool]) -> None:
    for plain in (False, True):
        check(*case, host=None, plain=plain)


@settings(max_examples=8, phases=AS_DRAWN, suppress_health_check=[HealthCheck.too_slow])
@given(typed_kernels())
def test_random_kernels_agree_on_lesser_processors(case: tuple[PrimFunc, list[Any], bool]) -> None:
    check(*case, host=SSE2, plain=False)
    check(*case, host=AVX2, plain=False)


LEAST = """
@T.prim_func
def main(key: T.Buffer((), "uint16"), keys: T.Buffer((5,), "uint16"),
         other: T.Buffer((), "uint16"), diagonal: T.Buffer((5, 5), "uint16"),
         table: T.Buffer((3, 5, 1), "uint16"), out: T.Buffer((17, 1), "uint16")):
    for i0, i1, i2, i3 in T.grid(17, 1, 3, 5):
        with T.sblock("b"):
            v0, v1, v2, v3 = T.axis.remap("SSRR", [i0, i1, i2, i3])
            with T.init():
                out[v0, v1] = T.uint16(500)
            out[v0, v1] = T.min(out[v0, v1], T.if_then_else(
                key[()] == keys[v3], other[()], diagonal[v3, v3] | table[v2, v3, v1]))
"""


@pytest.mark.parametrize("host", [SSE2, AVX2, None], ids=["sse2", "avx2", "host"])
def test_a_loop_that_is_a_counter_first_and_lanes_later(host: Host | None) -> None:
    func = from_source(LEAST)
    assert isinstance(func, PrimFunc)
    random = np.random.default_rng(3)
    arguments = [
        random.integers(1, 400, [d.value for d in p.ty.shape]).astype(str(p.ty.dtype))  # type: ignore[union-attr]
        for p in func.params
    ]
    check(func, arguments, exact=True, host=host, plain=False)


def test_products_keep_their_order() -> None:
    x, k = placeholder(640), te.reduce_axis((0, 640), "k")
    func = prim_func(x, te.compute((1,), lambda _: te.prod(x[k], axis=k), name="y"))
    # the whole stays in range, while every other element alone does not
    given = np.resize(np.array([1e30, 1e-30], np.float32), 640)
    expected, out = (np.zeros(1, np.float32) for _ in range(2))
    Interpreter(func, "kernel")(given, expected)
    compiled(func)(given, out)
    assert np.isfinite(expected[0])
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    "name", ["attention_sym", "layer_norm", "rms_norm", "softmax", "conv_pool_fc"]
)
def test_kernels_of_whole_programs_agree(name: str) -> None:
    data = document(name)
    script = "".join(data["chunks"][k] for k in data["default_build"]["passes"][-1]["script"])
    module = from_source(script)
    assert isinstance(module, IRModule)
    count = 0
    for _, func in module.functions_items():
        if isinstance(func, PrimFunc) and takes_buffers(func):
            assert_same(func, kernel_of(func))
            count += 1
    assert count
