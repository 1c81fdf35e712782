"""Fix symbolic sizes: an ``n`` becomes 4, or another variable.

Counterpart: ``tvm.relax.transform.BindSymbolicVars``.

Examples
--------
>>> BindSymbolicVars({"n": 4}).info.opt_level
1
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from relaxlab.errors import InternalError
from relaxlab.ir import Expr, IRModule, ModulePass, PassContext, PrimType, Var, prim_ops
from relaxlab.relax.analysis.variables import bound_vars
from relaxlab.relax.expr import Function
from relaxlab.relax.substitution import bind_vars

__all__ = ["BindSymbolicVars", "bind_symbolic_vars"]


def bind_symbolic_vars(func: Function, binding_map: Mapping[str | Var, Expr | int]) -> Function:
    """Return a function with symbolic sizes replaced.

    Parameters
    ----------
    func
        The function.
    binding_map
        What stands for each size; by variable or by name.

    Raises
    ------
    InternalError
        If the function has no such size, several of one name, or one is given twice.
    """
    sizes = _sizes(func)
    values: dict[Var, Expr] = {}
    for key, value in binding_map.items():
        for var in _find(key, sizes):
            if var in values:
                raise InternalError(f"Remap of variable {var.name} was defined multiple times")
            values[var] = value if isinstance(value, Expr) else prim_ops.const(value, var.dtype)
    return bind_vars(func, values)


def _sizes(func: Function) -> list[Var]:
    return [var for var in bound_vars(func) if isinstance(var.ty, PrimType)]


def _find(key: str | Var, sizes: list[Var]) -> list[Var]:
    found = [v for v in sizes if v is key or (isinstance(key, str) and v.name == key)]
    if found:
        return found
    names = ", ".join(var.name for var in sizes)
    if isinstance(key, str):
        raise InternalError(
            f'Function does not use symbolic var with name "{key}".  Function has symbolic '
            f"variables ({names})"
        )
    raise InternalError(
        f"Function does not use variable {key.name} as a symbolic variable.  Function has "
        f"symbolic variables ({names})"
    )


@dataclass(frozen=True)
class BindSymbolicVars(ModulePass):
    """Replace symbolic sizes.

    Parameters
    ----------
    binding_map
        What stands for each size, a number or an expression; by variable or by name. A name
        stands for every size of that name.
    func_name
        The function; None for all that use the sizes.

    Raises
    ------
    InternalError
        If the function, or every function of the module, lacks a size of the map.
    ValueError
        If there is no such function.
    """

    opt_level: ClassVar[int] = 1

    binding_map: Mapping[str | Var, Expr | int]
    func_name: str | None = None

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with the sizes replaced.

        Raises
        ------
        InternalError
            If the function is none of Relax, or a key names no size of it.
        """
        if self.func_name is not None:
            gvar = mod.get_global_var(self.func_name)
            func = mod.functions[gvar]
            if not isinstance(func, Function):
                raise InternalError(f"{self.func_name!r} is no Relax function")
            return mod.with_functions({gvar: bind_symbolic_vars(func, self.binding_map)})
        unused = set(self.binding_map)
        changed = {}
        for gvar, func in mod.functions.items():
            if isinstance(func, Function):
                sizes = _sizes(func)
                known = {v.name for v in sizes} | set(sizes)
                mine = {key: value for key, value in self.binding_map.items() if key in known}
                unused -= set(mine)
                if mine:
                    changed[gvar] = bind_symbolic_vars(func, mine)
        if unused:
            names = ", ".join(k if isinstance(k, str) else k.name for k in unused)
            raise InternalError(
                f"Binding map contains keys ({names}), which did not correspond to any symbolic "
                "variables in the module."
            )
        return mod.with_functions(changed)
