"""Give parameters other types; everything that follows is inferred again.

Counterpart: ``tvm.relax.transform.UpdateParamType``. Callers in the module follow (TVM leaves calls
of functions that are gone).

Examples
--------
>>> UpdateParamType(lambda var: None).info.opt_level
1
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from relaxlab.ir import Expr, GlobalVar, IRModule, ModulePass, PassContext, Type, Var, replace
from relaxlab.relax.analysis import all_global_vars
from relaxlab.relax.expr import Function
from relaxlab.relax.expr_functor import ExprMutator

__all__ = ["UpdateParamType"]

TypeFunc = Callable[[Var], Type | None]


@dataclass(frozen=True)
class UpdateParamType(ModulePass):
    """Change types of parameters.

    Parameters
    ----------
    ty_func
        Returns the new type of a parameter, None to keep the old one.

    Raises
    ------
    TypeError, ValueError
        If an operator or a call does not take the new types.
    """

    opt_level: ClassVar[int] = 1

    ty_func: TypeFunc

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with other types, ``mod`` itself if none changes."""
        renamed: dict[GlobalVar, GlobalVar] = {}
        changed: dict[GlobalVar, Function] = {}
        for gvar in _callees_first(mod):
            func = mod.functions[gvar]
            assert isinstance(func, Function)
            new: Any = _Retyper(mod, self.ty_func, func, renamed).visit_expr(func)
            if new is not func:
                # the type of a function is that of its variable, which the old module keeps
                renamed[gvar] = GlobalVar(gvar.name_hint)
                renamed[gvar].set_ty(new.ty)
                changed[gvar] = new
        if not changed:
            return mod
        result = mod.clone()
        for gvar in changed:
            result.remove(gvar)
        for gvar, func in changed.items():
            result.add(renamed[gvar], func)
        return result


def _callees_first(mod: IRModule) -> list[GlobalVar]:
    """Return the Relax functions, each after those that it calls (but in a circle)."""
    calls = {
        gvar: [g for g in all_global_vars(func) if isinstance(mod.functions.get(g), Function)]
        for gvar, func in mod.functions.items()
        if isinstance(func, Function)
    }
    order: dict[GlobalVar, None] = {}
    stack = [(gvar, False) for gvar in reversed(calls)]
    seen: set[GlobalVar] = set()
    while stack:
        gvar, opened = stack.pop()
        if opened:
            order.setdefault(gvar)
        elif gvar not in seen:
            seen.add(gvar)
            stack.append((gvar, True))
            stack.extend((g, False) for g in reversed(calls[gvar]))
    return list(order)


class _Retyper(ExprMutator):
    def __init__(
        self,
        mod: IRModule,
        ty_func: TypeFunc,
        func: Function,
        renamed: dict[GlobalVar, GlobalVar],
    ) -> None:
        super().__init__(mod)
        self.func = func
        self.renamed = renamed
        self.types = {param: ty for param in func.params if (ty := ty_func(param)) is not None}

    def visit_global_var_(self, op: GlobalVar) -> Expr:
        return self.renamed.get(op, op)

    def visit_var_def_(self, var: Var) -> Var:
        ty = self.types.get(var)
        return var if ty is None or ty == var.ty else replace(var, ty=ty)
