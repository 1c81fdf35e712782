"""Call public functions what their symbols say.

Counterpart: ``tvm.relax.transform.NormalizeGlobalVar``.

Examples
--------
>>> from relaxlab.ir import IRModule
>>> mod = IRModule()
>>> NormalizeGlobalVar()(mod) is mod
True
"""

from dataclasses import dataclass

from relaxlab.ir import IRModule, ModulePass, PassContext
from relaxlab.relax.global_names import normalize_global_names

__all__ = ["NormalizeGlobalVar"]


@dataclass(frozen=True)
class NormalizeGlobalVar(ModulePass):
    """Rename public functions to their symbols, and private ones out of their way."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with names in order."""
        return normalize_global_names(mod)
