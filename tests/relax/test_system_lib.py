"""Kernels that are linked statically: where the prefix of their names comes from."""

import numpy as np
import pytest

from relaxlab import relax
from relaxlab.ir import IRModule, Target
from relaxlab.relax.vm_build import _auto_attach_system_lib_prefix as attach
from relaxlab.runtime import cpu
from relaxlab.script import from_source

WASM = Target({"kind": "llvm", "mtriple": "wasm32-unknown-unknown-wasm"})


@pytest.mark.parametrize(
    ("target", "asked", "prefix"),
    [
        (None, None, None),
        (Target("llvm"), None, None),
        (Target("llvm"), True, ""),
        (WASM, None, ""),
        (WASM, False, None),
    ],
)
def test_prefix(target, asked, prefix):
    assert attach(IRModule(), target, asked).attrs.get("system_lib_prefix") == prefix


def test_a_prefix_stays():
    mod = IRModule().with_attr("system_lib_prefix", "mine_")
    assert attach(mod, WASM, True) is mod


def test_the_program_runs_as_before():
    mod = from_source(
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        y = R.add(x, x)
        return y
"""
    )
    executable = relax.build(mod, "numpy", system_lib=True)
    vm = relax.VirtualMachine(executable, cpu())
    np.testing.assert_array_equal(vm["main"](np.ones(2, "float32")).numpy(), [2, 2])
