"""Turn kernels that only reshape into ``R.reshape``, which will be a view.

Only inside dataflow blocks, and only for variables of the block: what leaves it may be written to
by someone else; and not for what a kernel of the function writes to in place while others still
need it (``written_views.py``). Counterpart: ``tvm.relax.transform.RewriteDataflowReshape``.

Examples
--------
>>> RewriteDataflowReshape().info.name
'RewriteDataflowReshape'
"""

from dataclasses import dataclass
from functools import reduce
from typing import Any

from relaxlab.ir import (
    Call,
    Expr,
    GlobalVar,
    IntImm,
    IRModule,
    Op,
    PassContext,
    Tuple,
    Var,
    prim_ops,
)
from relaxlab.ir.sym import Analyzer
from relaxlab.relax.analysis.reshape_pattern import has_reshape_pattern
from relaxlab.relax.expr import DataflowVar, Function, ShapeExpr, TensorType, VarBinding
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.transform.pass_base import FunctionPass
from relaxlab.relax.transform.written_views import unsafe_views
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx import PrimFunc

__all__ = ["RewriteDataflowReshape"]


class _Rewriter(ExprMutator):
    def __init__(self, mod: IRModule, known: dict[GlobalVar, bool]) -> None:
        super().__init__(mod)
        self.mod = mod
        #: Whether a kernel only reshapes its first argument.
        self.known = known
        #: Variables that have to stay copies.
        self.unsafe: set[Var] = set()

    def rewrite(self, func: Function) -> Function:
        """Return the function with views where nobody can tell."""
        self.unsafe = unsafe_views(func, lambda call: self.as_reshape(call) is not None)
        changed: Any = self.visit_expr(func)
        return changed  # type: ignore[no-any-return]  # a function stays one

    def visit_var_binding_(self, binding: VarBinding) -> None:
        may_be_view = isinstance(binding.var, DataflowVar) and binding.var not in self.unsafe
        if may_be_view and isinstance(binding.value, Call):
            reshape = self.as_reshape(binding.value)
            if reshape is not None:
                self.reemit_binding(binding, self.visit_expr(reshape))
                return
        super().visit_var_binding_(binding)

    def as_reshape(self, call: Call) -> Call | None:
        """Return the reshape that a call of a kernel amounts to, or None."""
        if not isinstance(call.op, Op) or call.op.name != "relax.call_tir":
            return None
        callee, args, out_ty = call.args[0], call.args[1], call.ty_args[0]
        if not isinstance(callee, GlobalVar) or not isinstance(args, Tuple) or not args.fields:
            return None
        if callee not in self.known:
            func = self.mod.functions.get(callee)
            self.known[callee] = isinstance(func, PrimFunc) and has_reshape_pattern(func)
        if not self.known[callee]:
            return None
        arg = args.fields[0]
        if not _same_elements(arg.ty, out_ty):
            return None
        assert isinstance(out_ty, TensorType)
        assert out_ty.shape is not None
        return Call(Op.get("relax.reshape"), (arg, out_ty.shape))


def _same_elements(given: Any, wanted: Any) -> bool:
    """Say whether two tensors have the same dtype and, provably, equally many elements."""
    if not isinstance(given, TensorType) or not isinstance(wanted, TensorType):
        return False
    if given.dtype is None or given.dtype is not wanted.dtype:
        return False
    if not isinstance(given.shape, ShapeExpr) or not isinstance(wanted.shape, ShapeExpr):
        return False
    return Analyzer().can_prove_equal(_count(given.shape), _count(wanted.shape))


def _count(shape: ShapeExpr) -> Expr:
    one: Expr = IntImm(DataType("int64"), 1)
    return reduce(prim_ops.multiply, shape.values, one)


@dataclass(frozen=True)
class RewriteDataflowReshape(FunctionPass):
    """Replace reshaping kernels by ``R.reshape`` inside dataflow blocks."""

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Look at each kernel once, however many functions call it."""
        known: dict[GlobalVar, bool] = {}
        return mod.with_functions(
            {
                gvar: _Rewriter(mod, known).rewrite(func)
                for gvar, func in mod.functions.items()
                if isinstance(func, Function)
            }
        )
