"""Kernels to machine: one interface, several generators.

Counterpart: ``tvm.tirx.build`` and TVM's back ends.

Examples
--------
>>> import numpy as np
>>> from relaxlab import te
>>> from relaxlab.ir import IRModule
>>> x = te.placeholder((3,), "float32", "x")
>>> twice = te.create_prim_func([x, te.compute((3,), lambda i: x[i] * 2.0, name="y")])
>>> library = build(IRModule({"twice": twice.without_attr("global_symbol")}), "numpy")
>>> out = np.zeros(3, "float32")
>>> library["twice"](np.ones(3, "float32"), out)
>>> out.tolist()
[2.0, 2.0, 2.0]
"""

from relaxlab.codegen import attention
from relaxlab.codegen.interface import (
    GENERATORS,
    Generator,
    Kernel,
    Library,
    build,
    default_target,
)
from relaxlab.codegen.interpreted import interpret
from relaxlab.codegen.llvm import generate as generate_llvm
from relaxlab.codegen.llvm import is_installed as llvm_is_installed
from relaxlab.codegen.numpy import generate as generate_numpy
from relaxlab.codegen.vmtir import KIND as VMTIR
from relaxlab.codegen.vmtir import generate as generate_vmtir

GENERATORS.register("numpy", generate_numpy)
GENERATORS.register("interpreter", interpret)
GENERATORS.register(VMTIR, generate_vmtir)
if llvm_is_installed():
    GENERATORS.register("llvm", generate_llvm)

__all__ = [
    "GENERATORS",
    "Generator",
    "Kernel",
    "Library",
    "attention",
    "build",
    "default_target",
    "generate_llvm",
    "generate_numpy",
    "interpret",
]
