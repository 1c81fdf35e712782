"""From a kernel to something that can be called, through the cache.

Examples
--------
>>> import numpy as np
>>> from relaxlab import te
>>> x = te.placeholder((3,), "float32", "x")
>>> f = te.create_prim_func([x, te.compute((3,), lambda i: x[i] * 2.0, name="y")])
>>> kernel = generate(f, "twice")
>>> out = np.zeros(3, "float32")
>>> kernel.function(np.ones(3, "float32"), out)
>>> out.tolist()
[2.0, 2.0, 2.0]
>>> "fmul" in kernel.source
True
"""

import json

from relaxlab.codegen.interface import Kernel
from relaxlab.codegen.llvm.arguments import CompiledKernel
from relaxlab.codegen.llvm.arithmetic import Unsupported
from relaxlab.codegen.llvm.cache import KernelStore, default_store, digest, kernel_digest
from relaxlab.codegen.llvm.fastcall import fast_callable
from relaxlab.codegen.llvm.host import Host
from relaxlab.codegen.llvm.kernel import Plan, make_plan
from relaxlab.codegen.llvm.machine import machine
from relaxlab.codegen.llvm.parallel import LEAST
from relaxlab.codegen.numpy import generate as generate_numpy
from relaxlab.tirx.function import PrimFunc

__all__ = ["compile_kernel", "generate"]


def generate(func: PrimFunc, name: str) -> Kernel:
    """Compile a kernel to machine code.

    Parameters
    ----------
    func
        The kernel. What has no LLVM form (8-bit floats, say), or what LLVM refuses, is left to
        the NumPy generator, and the source says why.
    name
        What messages and the text call it.
    """
    try:
        compiled = compile_kernel(func, name)
    except (Unsupported, RuntimeError) as reason:
        other = generate_numpy(func, name)
        return Kernel(other.function, f"# {name}: {_why(reason)}; NumPy form:\n{other.source}")
    text = compiled.plan.text
    return Kernel(fast_callable(compiled), text, lambda: machine().assembly(text))


def _why(reason: Exception) -> str:
    """Return why a kernel is not machine code, on one line."""
    match reason:
        case Unsupported():
            return f"there is no LLVM form of {reason}"
        case RecursionError():
            return "there is no LLVM form of an expression this deep"
        case _:
            return f"LLVM refuses it ({' '.join(str(reason).split())})"


def compile_kernel(
    func: PrimFunc,
    name: str,
    *,
    plain: bool = False,
    store: KernelStore | None = None,
    host: Host | None = None,
    least: int | None = LEAST,
) -> CompiledKernel:
    """Return a kernel as machine code, from the cache if it is there.

    Parameters
    ----------
    func, name
        The kernel and what to call it.
    plain
        Do everything in the order it is written, for arguments that overlap.
    store
        The cache; that of this user when omitted.
    host
        The processor; this one when omitted. Another one may not be able to run it.
    least
        Cost (see parallel.py) from which a loop is shared with other threads; None shares nothing.

    Raises
    ------
    Unsupported
        If the kernel does what this generator has no code for.
    """
    chosen = default_store() if store is None else store
    compiler = machine(host)
    processor = (compiler.host.cpu, compiler.host.features, compiler.version, repr(compiler.host))
    key = kernel_digest(func, name, f"{plain} {least}", *processor)
    saved = chosen.get("plan", key)
    if saved is None:
        plan = make_plan(func, name, compiler.host, plain=plain, least=least)
        chosen.put("plan", key, json.dumps(plan.record()).encode())
    else:
        plan = Plan.of_record(json.loads(saved))
    code_key = digest(plan.text, *processor)
    code = chosen.get("code", code_key)
    if code is None:
        code = compiler.compile(plan.text)
        chosen.put("code", code_key, code)
    linked = compiler.link(code, ("kernel",))

    def plainly() -> CompiledKernel:
        return compile_kernel(func, name, plain=True, store=store, host=host)

    return CompiledKernel(plan, linked, func, None if plain else plainly)
