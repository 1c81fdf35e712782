"""The generator that generates nothing: kernels run in the interpreter that defines them.

Useful to compare with, and to step through. Counterpart: none.

Examples
--------
>>> from relaxlab.ir import IntImm
>>> from relaxlab.tirx import Evaluate, PrimFunc
>>> interpret(PrimFunc((), Evaluate(IntImm("int32", 0))), "nothing").function()
"""

from relaxlab.codegen.interface import Kernel
from relaxlab.ir.type import PRINTERS
from relaxlab.tirx.function import PrimFunc
from relaxlab.tirx.interp import Interpreter

__all__ = ["interpret"]


def interpret(func: PrimFunc, name: str) -> Kernel:
    """Return the kernel as the interpreter runs it; its source is its script."""
    printer = PRINTERS.find("script")
    return Kernel(Interpreter(func, name), printer(func) if printer else repr(func))
