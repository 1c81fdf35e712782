"""Passes and what they run in, under TVM's name for them.

A door: the classes live in ``relaxlab.ir.transform``; the passes over Relax programs are in
``relaxlab.relax.transform``. Counterpart: ``tvm.transform``.

Examples
--------
>>> from relaxlab.transform import PassContext
>>> PassContext(opt_level=3).opt_level
3
"""

from relaxlab.ir.transform import (
    ModulePass,
    Pass,
    PassContext,
    PassInfo,
    Sequential,
    module_pass,
)

__all__ = ["ModulePass", "Pass", "PassContext", "PassInfo", "Sequential", "module_pass"]
