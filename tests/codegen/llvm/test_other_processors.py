"""Code for processors that are not here: it compiles for them, by its text alone."""

import llvmlite.binding as llvm
import pytest

from relaxlab import topi
from relaxlab.codegen.llvm.arithmetic import Unsupported
from relaxlab.codegen.llvm.host import Host, describe_host
from relaxlab.codegen.llvm.kernel import make_plan
from relaxlab.codegen.llvm.machine import machine
from tests.codegen.llvm.support import body_text, placeholder, prim_func
from tests.codegen.llvm.test_kernels import recorded

ARM = Host("generic", "", 16, masks=False, half=True)


def test_every_recorded_kernel_compiles_for_arm() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    except RuntimeError:
        pytest.skip("this llvmlite has no back end for aarch64")
    compiler = target.create_target_machine(cpu="generic", opt=1)
    for _, func in recorded()[::3]:
        try:
            plan = make_plan(func, "kernel", ARM)
        except Unsupported:
            continue
        module = llvm.parse_assembly(plan.text)
        module.verify()
        assert compiler.emit_object(module)


@pytest.mark.parametrize(
    ("features", "architecture", "width", "masks", "half"),
    [
        (
            {"avx512f": True, "avx512bw": True, "avx512vl": True, "f16c": True},
            "x86_64",
            64,
            True,
            True,
        ),
        (
            {"avx512f": True, "avx512bw": False, "avx512vl": False, "avx": True},
            "x86_64",
            32,
            False,
            False,
        ),
        ({"avx": True, "f16c": True}, "x86_64", 32, False, True),
        ({"sse2": True}, "x86_64", 16, False, False),
        ({"neon": True}, "aarch64", 16, False, True),
        ({}, "arm64", 16, False, True),
    ],
)
def test_what_is_made_of_features(
    features: dict[str, bool], architecture: str, width: int, masks: bool, half: bool
) -> None:
    host = describe_host("some", features, architecture)
    assert (host.vector_bytes, host.masks, host.half) == (width, masks, half)


def test_vectors_are_as_wide_as_the_processor_has_them() -> None:
    x = placeholder(1024)
    func = prim_func(x, topi.exp(x))
    # two registers at a time
    for host, kind in ((ARM, "<8 x float>"), (Host("", "", 32, False, True), "<16 x float>")):
        assert kind in body_text(make_plan(func, "kernel", host).text)
    assert machine().host.vector_bytes in (16, 32, 64)
