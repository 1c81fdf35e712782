"""Lift the rule that a pure function makes no impure call.

Lowering puts allocations and kernel calls with effects into pure functions. Those are marked
``relax.force_pure``, and the operators that only promise purity become plain calls.
Counterpart: ``tvm.relax.transform.RemovePurityChecking``.

Examples
--------
>>> RemovePurityChecking().info.name
'RemovePurityChecking'
"""

from dataclasses import dataclass
from typing import Any

from relaxlab.ir import Call, Expr, IRModule, Op, PassContext
from relaxlab.relax.expr import Function
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.transform.pass_base import FunctionPass

__all__ = ["RemovePurityChecking"]

_FORCE_PURE = "relax.force_pure"


class _Remover(ExprMutator):
    def visit_function_(self, op: Function) -> Expr:
        func: Any = super().visit_function_(op)
        if func.is_pure and not func.func_attrs.get(_FORCE_PURE, False):
            func = func.with_attr(_FORCE_PURE, True)
        return func  # type: ignore[no-any-return]  # a function stays one

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return call
        match call.op.name:
            case "relax.call_pure_packed" | "relax.call_inplace_packed":
                return Call(call.args[0], call.args[1:], None, call.ty_args, span=call.span)
            case "relax.invoke_pure_closure":
                closure = Op.get("relax.invoke_closure")
                return Call(closure, call.args, call.attrs, call.ty_args, span=call.span)
            case _:
                return call


@dataclass(frozen=True)
class RemovePurityChecking(FunctionPass):
    """Mark pure functions and unwrap the operators that promise purity."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function as the rest of the lowering needs it."""
        result: Any = _Remover(mod).visit_expr(func)
        return result  # type: ignore[no-any-return]  # a function stays one
