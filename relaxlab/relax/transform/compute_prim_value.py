"""Take scalar arithmetic out of Relax: a small host kernel computes each expression.

The VM only passes scalars around; ``n * m + 1`` as an argument becomes a call of
``compute_symbolic_expr(n, m)``. Shapes are left alone (VMShapeLower computes those). Equal
expressions share a kernel. Counterpart: ``tvm.relax.transform.ComputePrimValue``.

Examples
--------
>>> ComputePrimValue().info.name
'ComputePrimValue'
"""

from dataclasses import dataclass

from relaxlab.ir import (
    Call,
    DictAttrs,
    Expr,
    IntImm,
    IRModule,
    ModulePass,
    PassContext,
    PrimType,
    Var,
)
from relaxlab.ir.prim_functor import free_vars, substitute
from relaxlab.relax.expr import Function, ShapeExpr
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.transform.normalize_global_var import NormalizeGlobalVar
from relaxlab.tirx import PrimFunc, Return

__all__ = ["ComputePrimValue"]


class _Extractor(ExprMutator):
    def visit_prim_expr_(self, op: Expr) -> Expr:
        if isinstance(op, IntImm):
            return op
        used = free_vars(op)
        # parameters of their own: a variable belongs to one function
        params = {var: Var(var.name, var.ty) for var in used}
        assert isinstance(op.ty, PrimType)
        kernel = PrimFunc(
            tuple(params.values()),
            Return(substitute(op, params)),
            op.ty,
            DictAttrs({"s_tir": True, "tirx.is_host_func": True}),
        )
        gvar = self.builder.add_func(kernel, "compute_symbolic_expr")
        return self.builder.normalize(Call(gvar, tuple(self.visit_expr(var) for var in used)))

    def visit_shape_expr_(self, op: ShapeExpr) -> Expr:
        return op


@dataclass(frozen=True)
class ComputePrimValue(ModulePass):
    """Compute scalar expressions by generated kernels."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module without scalar arithmetic in value position."""
        extractor = _Extractor(mod)
        changed = False
        for gvar, func in mod.functions.items():
            if isinstance(func, Function):
                new = extractor.visit_expr(func)
                extractor.builder.update_func(gvar, new)
                changed = changed or new is not func
        return NormalizeGlobalVar()(extractor.builder.get() if changed else mod)
