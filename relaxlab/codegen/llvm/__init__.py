"""Kernels as LLVM IR with explicit vectors, compiled in the process.

A kernel goes through a few steps that each have a file: blocks become loops (``lower``),
intermediate buffers disappear (``inline``), neighbouring loops over the same rows become one
(``rows``), each loop nest gets its lanes (``nests``, ``streams``, ``statements``), long outer
loops become functions that threads share (``parallel``, ``shares``, ``threads``), expressions
become instructions (``expressions``, ``arithmetic``, ``mathematics``), and a module comes out
(``kernel``), which ``machine`` compiles and ``cache`` keeps.

What agrees with the interpreter, and how closely: integers, comparisons, conversions and every
elementwise float operation agree to the last bit; mathematical functions within the bounds in
``mathematics``; a float32 or float64 sum adds its terms in another order and with one rounding
per multiply-add, which is 1e-5 (1e-13) relative to the sum of absolute terms. Sums of 16-bit
floats and all products keep their order, and so do maxima and minima where there is a NaN.

Counterpart: TVM's LLVM back end.

Examples
--------
>>> from relaxlab.codegen.llvm import generate
>>> generate.__name__
'generate'
"""

from importlib.util import find_spec

from relaxlab.codegen.interface import Kernel
from relaxlab.codegen.numpy import generate as generate_numpy
from relaxlab.tirx.function import PrimFunc

__all__ = ["generate", "is_installed"]


def is_installed() -> bool:
    """Say whether llvmlite is there, without the tenth of a second that importing it takes."""
    return find_spec("llvmlite") is not None


def generate(func: PrimFunc, name: str) -> Kernel:
    """Compile a kernel to machine code; see :func:`relaxlab.codegen.llvm.compiler.generate`.

    Where llvmlite is there but cannot be loaded, the kernel is the NumPy generator's, and its
    source says why.
    """
    try:
        # not at the top: it loads LLVM, which is not there on every platform
        from relaxlab.codegen.llvm.compiler import generate as compiled  # noqa: PLC0415
    except (ImportError, OSError) as problem:
        other = generate_numpy(func, name)
        reason = " ".join(str(problem).split())
        return Kernel(other.function, f"# LLVM cannot be loaded: {reason}\n{other.source}")
    return compiled(func, name)
