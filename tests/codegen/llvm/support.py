"""Compiling one kernel without the user's cache, for this machine or for a lesser one."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxlab import te
from relaxlab.codegen import Kernel
from relaxlab.codegen.llvm.arguments import CompiledKernel
from relaxlab.codegen.llvm.cache import KernelStore
from relaxlab.codegen.llvm.compiler import compile_kernel
from relaxlab.codegen.llvm.fastcall import fast_callable
from relaxlab.codegen.llvm.host import Host
from relaxlab.tirx import PrimFunc

#: Processors without masks, without fused multiply-add, without conversions of float16.
SSE2 = Host("x86-64", "", 16, masks=False, half=False)
AVX2 = Host("haswell", "", 32, masks=False, half=True)
NO_STORE = KernelStore(None)


def compiled(func: PrimFunc, host: Host | None = None, *, plain: bool = False) -> CompiledKernel:
    """Return a kernel as machine code."""
    return compile_kernel(func, "kernel", plain=plain, store=NO_STORE, host=host)


def kernel_of(func: PrimFunc, host: Host | None = None, *, plain: bool = False) -> Kernel:
    """Return a kernel as the comparison helpers want it."""
    made = compiled(func, host, plain=plain)
    return Kernel(fast_callable(made), body_text(made.plan.text))


def body_text(text: str) -> str:
    """Return the body's function of a module."""
    start = text.index("define internal i32")
    return text[start : text.index("\n}\n", start)]


def prim_func(*tensors: Any) -> PrimFunc:
    """Return a kernel of tensor expressions."""
    return te.create_prim_func(list(tensors)).without_attr("global_symbol")


def placeholder(*shape: Any, name: str = "x", dtype: str = "float32") -> te.Tensor:
    """Return an input."""
    return te.placeholder(shape, dtype, name)


def floats(*shape: int, dtype: str = "float32", seed: int = 0) -> NDArray[Any]:
    """Return random numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
