"""Compiling one kernel without the user's cache, for this machine or for a lesser one."""

import ctypes
from itertools import pairwise
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
from relaxlab.codegen.llvm.parallel import LEAST
from relaxlab.codegen.llvm.threads import LAUNCH, PART
from relaxlab.tirx import PrimFunc

#: Processors without masks, without fused multiply-add, without conversions of float16.
SSE2 = Host("x86-64", "", 16, masks=False, half=False)
AVX2 = Host("haswell", "", 32, masks=False, half=True)
NO_STORE = KernelStore(None)


def compiled(
    func: PrimFunc, host: Host | None = None, *, plain: bool = False, least: int | None = LEAST
) -> CompiledKernel:
    """Return a kernel as machine code."""
    return compile_kernel(func, "kernel", plain=plain, store=NO_STORE, host=host, least=least)


class Dealer:
    """A pool without threads: it deals iterations out in pieces of any size, in any order.

    Parameters
    ----------
    seed
        Decides sizes and order.

    Attributes
    ----------
    pieces
        How many pieces there were of each loop.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._launch = LAUNCH(self._deal)
        address = ctypes.cast(self._launch, ctypes.c_void_p).value
        self._memory = (ctypes.c_int64 * 1)(address or 0)
        self.address = ctypes.addressof(self._memory)
        self.pieces: list[int] = []

    def _deal(
        self,
        pool: int,
        part: int,
        context: int,
        first: int,
        last: int,
        multiple: int,
        cost: int,
        state: int,
    ) -> int:
        cuts, place = [first], first
        while place < last:
            place = min(last, place + multiple * int(self._random.integers(1, 4)))
            cuts.append(place)
        pieces = list(pairwise(cuts))
        self.pieces.append(len(pieces))
        failed: list[tuple[int, int, Any]] = []
        for number in self._random.permutation(len(pieces)):
            begin, end = pieces[number]
            details = (ctypes.c_int64 * 19)()
            status = PART(part)(context, begin, end, ctypes.addressof(details))
            if status:
                failed.append((begin, status, details))
        if not failed:
            return 0
        _, status, details = min(failed, key=lambda f: f[0])
        ctypes.memmove(state, details, 16 * 8)
        return status


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
