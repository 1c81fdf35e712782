"""Compiled kernels and the interpreter agree: recorded operators, and random kernels."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from relaxlab.codegen.llvm.host import Host
from relaxlab.ir import IRModule
from relaxlab.script import from_source
from relaxlab.tirx import Interpreter, PrimFunc
from tests.codegen.compare import assert_same
from tests.codegen.llvm.support import AVX2, SSE2, compiled, kernel_of
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
