"""Give every function its name in the executable.

Kernels get the module attribute ``system_lib_prefix`` in front, under which they are linked, and
their global variables are renamed with them; Relax functions keep their plain name.
Counterpart: ``tvm.relax.transform.AttachGlobalSymbol``.

Examples
--------
>>> AttachGlobalSymbol().info.name
'AttachGlobalSymbol'
"""

from dataclasses import dataclass
from typing import Any

from relaxlab.ir import BaseFunc, GlobalVar, IRModule, ModulePass, PassContext
from relaxlab.ir.prim_functor import post_order_map
from relaxlab.relax.expr import Function
from relaxlab.tirx import PrimFunc

__all__ = ["AttachGlobalSymbol"]

_SYMBOL = "global_symbol"


def _symbol(gvar: GlobalVar, func: BaseFunc, prefix: str) -> str:
    name = gvar.name_hint
    if not isinstance(func, PrimFunc):
        return name
    # a kernel that has the prefix from an earlier run does not get it twice
    attached = func.func_attrs.get(_SYMBOL) == name and name.startswith(prefix)
    return name if attached else prefix + name


def _renamed(mod: IRModule, names: dict[GlobalVar, str]) -> IRModule:
    new: dict[Any, GlobalVar] = {gvar: GlobalVar(name, ty=gvar.ty) for gvar, name in names.items()}
    result = IRModule(attrs=mod.attrs, global_infos=mod.global_infos)
    for gvar, func in mod.functions.items():
        changed = post_order_map(func, lambda node: new.get(node, node))
        result.add(new.get(gvar, gvar), changed)
    return result


@dataclass(frozen=True)
class AttachGlobalSymbol(ModulePass):
    """Set ``global_symbol``; after it every function is public."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with symbols, ``mod`` itself if all are there."""
        prefix = str(mod.attrs.get("system_lib_prefix") or "")
        changed: dict[GlobalVar, BaseFunc] = {}
        names: dict[GlobalVar, str] = {}
        for gvar, func in mod.functions.items():
            if not isinstance(func, Function | PrimFunc):
                continue
            symbol = _symbol(gvar, func, prefix)
            if func.func_attrs.get(_SYMBOL) != symbol:
                changed[gvar] = func.with_attr(_SYMBOL, symbol)
            if symbol != gvar.name_hint:
                names[gvar] = symbol
        mod = mod.with_functions(changed)
        return _renamed(mod, names) if names else mod
