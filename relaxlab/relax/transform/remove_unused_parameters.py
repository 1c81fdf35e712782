"""Drop parameters that a function does not use, where only this module calls it.

A parameter that is unused as a value may still define sizes that the body needs. Those are passed
as shapes of one dimension then. Counterpart: ``tvm.relax.transform.RemoveUnusedParameters``.

Examples
--------
>>> RemoveUnusedParameters().info.name
'RemoveUnusedParameters'
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from relaxlab.ir import (
    Call,
    Expr,
    GlobalVar,
    IRModule,
    ModulePass,
    PassContext,
    Var,
)
from relaxlab.relax.analysis import remove_all_unused
from relaxlab.relax.analysis.variables import free_symbolic_vars, free_vars
from relaxlab.relax.expr import Function, ShapeExpr, ShapeType
from relaxlab.relax.expr_functor import ExprVisitor
from relaxlab.relax.transform.private_functions import (
    Change,
    change_private_functions,
    sizes_of_call,
)
from relaxlab.relax.type_variables import tir_vars_in_type

__all__ = ["RemoveUnusedParameters"]


@dataclass(frozen=True)
class RemoveUnusedParameters(ModulePass):
    """Drop unused parameters of private functions."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with fewer parameters, ``mod`` itself if all are used."""
        changed = change_private_functions(mod, _with_used_parameters)
        # what made the arguments may be of no use now
        for gvar, func in list(changed.functions.items()):
            if isinstance(func, Function) and mod.functions.get(gvar) is not func:
                changed.functions[gvar] = remove_all_unused(func)  # in its place
        return changed


def _with_used_parameters(func: Function, calls: Sequence[Call]) -> Change | None:
    used = set(free_vars(func.body))
    kept = [param in used for param in func.params]
    if all(kept):
        return None
    params = list(_only(func.params, kept))
    shorter = Function(params, func.body, func.ret_ty, func.is_pure, func.attrs, span=func.span)
    sizes = _free_sizes(shorter)
    if any(size not in sizes_of_call(func, call) for call in calls for size in sizes):
        return None  # a caller does not know it: only the tensor tells
    params.extend(Var(f"param_{size.name}", ShapeType([size])) for size in sizes)
    if [(p.name, p.ty) for p in params] == [(p.name, p.ty) for p in func.params]:
        return None  # sizes that are passed themselves already
    new = Function(params, func.body, func.ret_ty, func.is_pure, func.attrs, span=func.span)

    def call_of(callee: GlobalVar, call: Call) -> Expr:
        known = sizes_of_call(func, call)
        args = (*_only(call.args, kept), *(ShapeExpr([known[size]]) for size in sizes))
        return Call(callee, args, call.attrs, call.ty_args, span=call.span)

    return Change(new, call_of)


class _Types(ExprVisitor):
    """Collects the sizes in the types of variables."""

    def __init__(self) -> None:
        self.found: dict[Var, None] = {}

    def visit_var_def(self, var: Var) -> None:
        self.found.update(dict.fromkeys(tir_vars_in_type(var.ty)))


def _free_sizes(func: Function) -> list[Var]:
    """Return the sizes that no parameter defines; as in TVM the last one found comes first."""
    free = free_symbolic_vars(func)
    types = _Types()
    types.visit_expr(func)
    in_types = [var for var in types.found if var in set(free)]
    rest = [var for var in free if var not in types.found]
    return [*reversed(rest), *reversed(in_types)]


def _only(items: Sequence[Expr], kept: Sequence[bool]) -> Iterable[Any]:
    return (item for item, keep in zip(items, kept, strict=True) if keep)
