"""Names of a module's functions: a public function is called what its symbol says.

Counterpart: ``tvm.relax.transform.NormalizeGlobalVar``, which ``BlockBuilder.finalize`` runs.

Examples
--------
>>> from relaxlab.ir import IRModule
>>> normalize_global_names(IRModule()).functions
{}
"""

from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir.expr import GlobalVar
from relaxlab.ir.module import IRModule
from relaxlab.ir.prim_functor import post_order_map

__all__ = ["normalize_global_names"]


def normalize_global_names(mod: IRModule) -> IRModule:
    """Rename functions so that public ones have the names of their symbols.

    A private function whose name a public one needs gets a number behind its name. The same
    module comes back when all names are right.

    Raises
    ------
    InternalError
        If two public functions have one symbol.
    """
    symbols: dict[GlobalVar, str] = {}
    for gvar, func in mod.functions.items():
        symbol = func.func_attrs.get("global_symbol")
        if symbol is not None:
            if symbol in symbols.values():
                raise InternalError(f"IRModule contains duplicate global symbol: {symbol}")
            symbols[gvar] = symbol
    taken = set(symbols.values())
    renamed: dict[Any, GlobalVar] = {}
    for gvar in mod.functions:
        name = symbols.get(gvar) or _free_name(gvar.name_hint, taken)
        taken.add(name)
        if name != gvar.name_hint:
            renamed[gvar] = GlobalVar(name, ty=gvar.ty)
    if not renamed:
        return mod
    result = IRModule(attrs=mod.attrs, global_infos=mod.global_infos)
    for gvar, func in mod.functions.items():
        changed = post_order_map(func, lambda node: renamed.get(node, node))
        result.add(renamed.get(gvar, gvar), changed)
    return result


def _free_name(hint: str, taken: set[str]) -> str:
    name, count = hint, 0
    while name in taken:
        count += 1
        name = f"{hint}_{count}"
    return name
