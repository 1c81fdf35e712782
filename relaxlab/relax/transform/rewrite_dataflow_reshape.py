"""Turn kernels that only reshape into ``R.reshape``, which will be a view.

Only inside dataflow blocks, and only for variables of the block: what leaves it may be written to
by someone else. Counterpart: ``tvm.relax.transform.RewriteDataflowReshape``.

Examples
--------
>>> RewriteDataflowReshape().info.name
'RewriteDataflowReshape'
"""

from dataclasses import dataclass
from functools import reduce
from typing import Any

from relaxlab.ir import Call, Expr, GlobalVar, IntImm, IRModule, Op, PassContext, Tuple, prim_ops
from relaxlab.ir.prim_functor import post_order_visit
from relaxlab.ir.sym import Analyzer
from relaxlab.relax.analysis.reshape_pattern import has_reshape_pattern
from relaxlab.relax.expr import DataflowVar, Function, ShapeExpr, TensorType, VarBinding
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.transform.pass_base import FunctionPass
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx import PrimFunc
from relaxlab.tirx.buffer import is_buffer_var

__all__ = ["RewriteDataflowReshape"]


class _Rewriter(ExprMutator):
    def __init__(self, mod: IRModule, known: dict[GlobalVar, int | None]) -> None:
        super().__init__(mod)
        self.mod = mod
        #: Position of the argument that a kernel only reshapes; None for other kernels.
        self.known = known

    def visit_var_binding_(self, binding: VarBinding) -> None:
        if isinstance(binding.var, DataflowVar) and isinstance(binding.value, Call):
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
        if not isinstance(callee, GlobalVar) or not isinstance(args, Tuple):
            return None
        if callee not in self.known:
            self.known[callee] = _reshaped_parameter(self.mod.functions.get(callee))
        position = self.known[callee]
        if position is None or position >= len(args.fields):
            return None
        arg = args.fields[position]
        if not _same_elements(arg.ty, out_ty):
            return None
        assert isinstance(out_ty, TensorType)
        assert out_ty.shape is not None
        return Call(Op.get("relax.reshape"), (arg, out_ty.shape))


def _reshaped_parameter(func: Any) -> int | None:
    """Return which parameter a kernel reshapes, the only tensor it reads."""
    if not isinstance(func, PrimFunc) or not has_reshape_pattern(func):
        return None
    read: list[Any] = []
    post_order_visit(func.body, lambda node: read.append(getattr(node, "buffer", None)))
    used = [i for i, p in enumerate(func.params[:-1]) if is_buffer_var(p) and p in read]
    return used[0] if len(used) == 1 else None


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
        known: dict[GlobalVar, int | None] = {}
        return mod.with_functions(
            {
                gvar: _Rewriter(mod, known).visit_expr(func)
                for gvar, func in mod.functions.items()
                if isinstance(func, Function)
            }
        )
