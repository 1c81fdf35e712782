"""Note on every kernel what kind it is, for FuseOps.

Counterpart: ``tvm.relax.transform.AnnotateTIROpPattern``.

Examples
--------
>>> AnnotateTIROpPattern().info.name
'AnnotateTIROpPattern'
"""

from dataclasses import dataclass

from relaxlab.ir import IRModule, ModulePass, PassContext
from relaxlab.relax.analysis.op_pattern import analyze_op_pattern
from relaxlab.tirx import PrimFunc

__all__ = ["AnnotateTIROpPattern"]


@dataclass(frozen=True)
class AnnotateTIROpPattern(ModulePass):
    """Give kernels the attribute ``op_pattern``; one that has it (not 0) keeps it."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with every kernel annotated, ``mod`` itself if all were."""
        changed: dict[str, PrimFunc] = {}
        for gvar, func in mod.functions.items():
            if isinstance(func, PrimFunc) and not func.attrs.get("op_pattern"):
                kind = int(analyze_op_pattern(func))
                if func.attrs.get("op_pattern") != kind:
                    changed[gvar.name_hint] = func.with_attr("op_pattern", kind)
        if not changed:
            return mod
        result = mod.clone()
        for gvar in mod.functions:
            if gvar.name_hint in changed:
                result.functions[gvar] = changed[gvar.name_hint]
        return result
