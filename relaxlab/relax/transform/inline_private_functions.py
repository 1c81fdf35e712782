"""Put the bodies of private functions where they are called.

Counterpart: ``tvm.relax.transform.InlinePrivateFunctions``.

Where TVM leaves the callee's symbolic variables in the caller, undefined, they become the caller's
sizes here; and a function that is also used as a value, or that is called from a dataflow block in
which its control flow may not stand, stays.

Examples
--------
>>> InlinePrivateFunctions().info.name
'InlinePrivateFunctions'
"""

from dataclasses import dataclass
from typing import Any

from relaxlab.ir import Call, Expr, GlobalVar, IRModule, ModulePass, PassContext, Span, Var
from relaxlab.relax.analysis import all_global_vars, detect_recursion, remove_all_unused
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    Function,
    If,
    MatchCast,
    SeqExpr,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.substitution import bind_vars, copy_with_new_vars
from relaxlab.relax.transform.canonicalize_bindings import canonicalize_function
from relaxlab.relax.transform.private_functions import only_called, sizes_of_call
from relaxlab.relax.type_variables import tir_vars_in_type

__all__ = ["InlinePrivateFunctions"]


@dataclass(frozen=True)
class InlinePrivateFunctions(ModulePass):
    """Inline private functions that do not call themselves, and drop them."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with calls of private functions replaced, ``mod`` if there are none."""
        recursive = {gvar for group in detect_recursion(mod) for gvar in group}
        inlined = {g: f for g, f, _ in only_called(mod) if g not in recursive}
        if not inlined:
            return mod
        inliner = _Inliner(mod, inlined)
        updates = {
            gvar: inliner.inline(func)
            for gvar, func in mod.functions.items()
            if isinstance(func, Function) and gvar not in inlined
        }
        needed = _still_called(updates, inlined)
        result = mod.clone()
        for gvar in inlined:
            if gvar not in needed:
                result.remove(gvar)
        for gvar, func in updates.items():
            if func is not mod.functions[gvar]:
                result.add(gvar, func)
        return result


def _still_called(
    functions: dict[GlobalVar, Function], inlined: dict[GlobalVar, Function]
) -> set[GlobalVar]:
    """Return the functions that calls are left of, directly or from such."""
    needed: set[GlobalVar] = set()
    stack = list(functions.values())
    while stack:
        for gvar in all_global_vars(stack.pop()):
            if gvar in inlined and gvar not in needed:
                needed.add(gvar)
                stack.append(inlined[gvar])
    return needed


class _Inliner(ExprMutator):
    def __init__(self, mod: IRModule, functions: dict[GlobalVar, Function]) -> None:
        super().__init__(mod)
        self.functions = functions
        #: Whether a body has control flow, its own or that of functions it calls.
        self.branches: dict[GlobalVar, bool] = {}

    def inline(self, func: Function) -> Function:
        """Return a function with calls inlined, and without the names that leaves behind."""
        new: Any = self.visit_expr(func)
        return remove_all_unused(canonicalize_function(new))

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call, Call) or not isinstance(call.op, GlobalVar):
            return call
        if call.op not in self.functions:
            return call
        if self.builder.current_block_is_dataflow() and self.has_branches(call.op):
            return call
        body: Expr = self.visit_expr(_body_of_call(self.functions[call.op], call))
        return body

    def has_branches(self, gvar: GlobalVar) -> bool:
        if gvar not in self.branches:
            func = self.functions[gvar]
            own = any(
                isinstance(getattr(binding, "value", None), If | Function)
                for block in func.body.blocks
                for binding in block.bindings
            )
            called = [g for g in all_global_vars(func) if g in self.functions]
            self.branches[gvar] = own or any(map(self.has_branches, called))
        return self.branches[gvar]


def _body_of_call(func: Function, call: Call) -> SeqExpr:
    """Return what a call computes: the parameters bound to the arguments, then the body."""
    known = sizes_of_call(func, call)
    own = copy_with_new_vars(func)
    # the copy's sizes are in the places of the function's
    renamed = {
        new: known[old] for old, new in zip(_sizes(func), _sizes(own), strict=True) if old in known
    }
    own = bind_vars(own, renamed)
    pairs = zip(own.params, call.args, strict=True)
    bindings = tuple(_bind(param, arg, call.span) for param, arg in pairs)
    return SeqExpr((BindingBlock(bindings),), own.body, ty=own.body.ty)


def _sizes(func: Function) -> list[Var]:
    return [var for param in func.params for var in tir_vars_in_type(param.ty)]


def _bind(param: Var, arg: Expr, place: Span | None) -> Binding:
    if tir_vars_in_type(param.ty) and param.ty != arg.ty and param.ty is not None:
        # it defines the sizes that nobody knew
        return MatchCast(param, arg, param.ty, span=place)
    return VarBinding(param, arg, span=place)
