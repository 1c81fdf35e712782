"""Changing the signature of functions that only this module can call.

A private function (one without ``global_symbol``) may get other parameters or another result, as
long as every call of it changes with it. The passes that do so say how one function changes; this
file finds the functions, gives the changed ones new names' objects and rewrites the calls.
Counterpart: what ``ExpandTupleArguments``, ``RemoveUnusedParameters`` and their like have in
common in TVM.

Examples
--------
>>> from relaxlab.ir import IRModule
>>> mod = IRModule()
>>> change_private_functions(mod, lambda func, calls: None) is mod
True
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relaxlab.ir import Call, Expr, FuncType, GlobalVar, IRModule, TupleType, Var
from relaxlab.relax.call_type import derive_call_ret_type
from relaxlab.relax.expr import Function, ShapeType
from relaxlab.relax.expr_functor import ExprMutator, ExprVisitor
from relaxlab.relax.type_variables import definable_tir_vars_in_type

__all__ = ["Change", "change_private_functions", "only_called", "sizes_of_call"]


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one function.

    Attributes
    ----------
    function
        The function with its new signature.
    call
        Makes, of a new callee and an old call, the new call.
    """

    function: Function
    call: Callable[[GlobalVar, Call], Expr]


Changer = Callable[[Function, Sequence[Call]], Change | None]


def change_private_functions(
    mod: IRModule, change: Changer, *, public_too: bool = False
) -> IRModule:
    """Change private functions and the calls of them.

    Parameters
    ----------
    mod
        The module.
    change
        Says what becomes of a private function, given all calls of it; None to leave it.
    public_too
        Whether public functions are asked about as well: callers outside must know.

    Returns
    -------
    IRModule
        The changed module, ``mod`` itself if no function changed. Functions that are used other
        than by calling them keep their signature.
    """
    changes: dict[GlobalVar, tuple[GlobalVar, Change]] = {}
    for gvar, func, calls in only_called(mod, public_too=public_too):
        found = change(func, calls)
        if found is not None:
            changes[gvar] = (GlobalVar(gvar.name_hint), found)
    if not changes:
        return mod
    result = mod.clone()
    for gvar in changes:
        result.remove(gvar)
    for gvar, changed in changes.values():
        result.add(gvar, changed.function)
    caller = _Caller(result, changes)
    updates: dict[GlobalVar, Function] = {}
    for gvar, old in result.functions.items():
        if isinstance(old, Function):
            new = caller.visit_expr(old)
            # TVM puts each function with a binding back, changed or not: their order follows
            if new is not old or old.body.blocks:
                updates[gvar] = new
    for gvar, new in updates.items():
        result.add(gvar, new)
    return result


class _Uses(ExprVisitor):
    """Finds the calls of functions of the module, and functions used as values."""

    def __init__(self) -> None:
        self.calls: dict[GlobalVar, list[Call]] = {}
        self.values: set[GlobalVar] = set()

    def visit_call_(self, op: Call) -> None:
        if isinstance(op.op, GlobalVar):
            self.calls.setdefault(op.op, []).append(op)
        else:
            self.visit_expr(op.op)
        for arg in op.args:
            self.visit_expr(arg)

    def visit_global_var_(self, op: GlobalVar) -> None:
        self.values.add(op)


def only_called(
    mod: IRModule, *, public_too: bool = False
) -> list[tuple[GlobalVar, Function, list[Call]]]:
    """Return the private Relax functions that are used by calls only, with these."""
    private = [
        (gvar, func)
        for gvar, func in mod.functions.items()
        if isinstance(func, Function) and (public_too or "global_symbol" not in func.attrs)
    ]
    if not private:
        return []
    uses = _Uses()
    for user in mod.functions.values():
        if isinstance(user, Function):
            uses.visit_expr(user)
    return [(g, f, uses.calls.get(g, [])) for g, f in private if g not in uses.values]


def sizes_of_call(func: Function, call: Call) -> dict[Var, Expr]:
    """Return what the sizes that a function's parameters define are in a call of it.

    Sizes that the types of the arguments do not tell are left out.
    """
    sizes = [v for param in func.params for v in definable_tir_vars_in_type(param.ty)]
    types = tuple(param.ty for param in func.params if param.ty is not None)
    asked = TupleType(tuple(ShapeType([size]) for size in sizes))
    told = derive_call_ret_type(FuncType(types, asked), call)
    assert isinstance(told, TupleType)
    return {
        size: ty.values[0]
        for size, ty in zip(sizes, told.fields, strict=True)
        if isinstance(ty, ShapeType) and ty.values is not None
    }


class _Caller(ExprMutator):
    def __init__(self, mod: IRModule, changes: dict[GlobalVar, tuple[GlobalVar, Change]]) -> None:
        super().__init__(mod)
        self.changes = changes

    def visit_call_(self, op: Call) -> Expr:
        visited = super().visit_call_(op)
        if not isinstance(visited, Call) or not isinstance(visited.op, GlobalVar):
            return visited
        found = self.changes.get(visited.op)
        if found is None:
            return visited
        gvar, change = found
        return self.builder.normalize(change.call(gvar, visited))
