"""LegalizeOps on modules with virtual devices: a copy of the kernel for each target."""

import re

import pytest

from relaxlab import relax
from relaxlab.ir import Target
from relaxlab.relax.transform.legalize_ops import LegalizeOps
from relaxlab.script import from_source
from tests.golden_compiler import document

#: What a target gets from the machine that TVM ran on.
MACHINE = re.compile(
    r'"mtriple": "[^"]*", |"arch": "sm_\d+", |"max_num_threads": 1024, |, "thread_warp_size": 32'
)


@pytest.mark.parametrize(
    "case", document("legalize_vdevice")["cases"], ids=lambda case: case["name"]
)
def test_script_is_tvms(case):
    with Target("llvm"):
        mod = LegalizeOps()(from_source(case["source"]))
    assert MACHINE.sub("", mod.script()).rstrip() == case["script"].rstrip()
    # and what it prints is what it is
    text = mod.script(show_meta=True)
    assert from_source(text).script(show_meta=True) == text


TWO = """
@I.ir_module
class Module:
    I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda")]})

    @R.function
    def main(x: R.Tensor((2,), "float32", "llvm"), y: R.Tensor((2,), "float32", "cuda"),
             z: R.Tensor((2,), "float32")):
        gv = (R.exp(x), R.exp(y), R.exp(z), R.exp(R.exp(x)))
        return gv
"""


def test_each_kernel_says_what_it_is_for():
    mod = LegalizeOps()(from_source(TWO))
    kernels = {
        gvar.name_hint: func.func_attrs.get("target")
        for gvar, func in mod.functions_items()
        if not isinstance(func, relax.Function)
    }
    assert {name: target and target.kind.name for name, target in kernels.items()} == {
        "tir_exp": None,
        "tir_exp_cuda": "cuda",
        "tir_exp_llvm": "llvm",
    }


def test_without_virtual_devices_nothing_is_removed():
    source = TWO.replace(', "llvm"', "").replace(', "cuda"', "")
    mod = LegalizeOps()(from_source(source.replace('[I.vdevice("llvm"), I.vdevice("cuda")]', "[]")))
    assert [gvar.name_hint for gvar, _ in mod.functions_items()] == ["main", "tir_exp"]
