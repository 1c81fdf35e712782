"""Every kernel that legalization was recorded to make: generated text equals the interpreter."""

from functools import cache
from typing import Any

import pytest

from relaxlab.codegen import generate_numpy
from relaxlab.errors import DiagnosticError
from relaxlab.ir import IRModule
from relaxlab.script import from_source
from relaxlab.tirx import BufferType, PrimFunc
from tests.codegen.compare import assert_same, is_vectorised
from tests.golden_compiler import cases, document, scripts

#: Operators whose kernels are loops on purpose: each element needs the one before it, or they
#: write where data says.
SEQUENTIAL = {
    "relax.bucketize",
    "relax.cumprod",
    "relax.cumsum",
    "relax.grad.max_pool2d_backward",
    "relax.grad.take_backward",
    "relax.index_put",
    "relax.multinomial_from_uniform",
    "relax.scatter_elements",
    "relax.scatter_nd",
    "relax.vision.get_valid_counts",
    "relax.vision.roi_align",
}
#: Kernels that call functions of a sorting library, take a pointer, or (slice_scatter, a defect)
#: read out of bounds.
OPAQUE = ("median", "sort", "argsort", "topk", "suppression", "inspect", "slice_scatter")


def kernels(script: str) -> list[tuple[str, PrimFunc]]:
    """Return the kernels of a module's text; none if its constants were left out."""
    try:
        module = from_source(script)
    except DiagnosticError:
        return []
    if not isinstance(module, IRModule):
        return []
    return [(g.name_hint, f) for g, f in module.functions_items() if isinstance(f, PrimFunc)]


@cache
def recorded() -> list[tuple[str, str, PrimFunc]]:
    """Return (operator, kernel name, kernel) of every recorded operator."""
    found = []
    for case in document("op_legalized")["cases"]:
        if not any(word in case["op"] for word in OPAQUE):
            found += [(case["op"], name, func) for name, func in kernels(case["script"])]
    return found


def takes_buffers(func: PrimFunc) -> bool:
    """Say whether all parameters are buffers of known or symbolic shape, or numbers."""
    return all(isinstance(p.ty, BufferType) or hasattr(p, "dtype") for p in func.params)


@pytest.mark.parametrize("index", range(len(recorded())))
def test_operator_kernels_agree_with_the_interpreter(index: int) -> None:
    operator, name, func = recorded()[index]
    if takes_buffers(func):
        kernel = generate_numpy(func, name)
        assert_same(func, kernel)
        if operator not in SEQUENTIAL:
            assert is_vectorised(kernel), kernel.source


def test_enough_operators_were_recorded() -> None:
    assert len({operator for operator, _, _ in recorded()}) > 150


@pytest.mark.parametrize("name", cases())
def test_kernels_of_whole_programs_agree_with_the_interpreter(name: str) -> None:
    seen: set[str] = set()
    for pipeline in ("default_build", "cpu_generic"):
        last: dict[str, Any] = dict(scripts(name, pipeline))
        for script in (last["LegalizeOps"], list(last.values())[-1]):
            for kernel_name, func in kernels(script):
                if kernel_name not in seen and takes_buffers(func):
                    seen.add(kernel_name)
                    kernel = generate_numpy(func, kernel_name)
                    assert_same(func, kernel)
                    assert is_vectorised(kernel) or kernel_name == "cumsum", kernel.source
