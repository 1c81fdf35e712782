"""Remove what has no effect: functions nobody can call, bindings nobody uses.

Counterpart: ``tvm.relax.transform.DeadCodeElimination``.

Examples
--------
>>> DeadCodeElimination().info.opt_level
1
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from relaxlab.ir import BaseFunc, GlobalVar, IRModule, ModulePass, PassContext
from relaxlab.ir.prim_functor import post_order_visit
from relaxlab.relax.analysis import all_global_vars, remove_all_unused
from relaxlab.relax.expr import Function

__all__ = ["DeadCodeElimination"]


def _references(func: BaseFunc) -> Iterator[GlobalVar]:
    if isinstance(func, Function):
        yield from all_global_vars(func)
        return
    found: list[GlobalVar] = []
    post_order_visit(func, lambda node: found.append(node) if isinstance(node, GlobalVar) else None)
    yield from found


def _reachable(mod: IRModule, entries: Iterable[GlobalVar]) -> set[GlobalVar]:
    reached: set[GlobalVar] = set()
    stack = list(entries)
    while stack:
        gvar = stack.pop()
        if gvar not in reached and gvar in mod.functions:
            reached.add(gvar)
            stack.extend(_references(mod.functions[gvar]))
    return reached


@dataclass(frozen=True)
class DeadCodeElimination(ModulePass):
    """Remove unreachable functions, then unused bindings without effects.

    Parameters
    ----------
    entry_functions
        Names of functions to keep besides the public ones.
    """

    opt_level: ClassVar[int] = 1

    entry_functions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "entry_functions", tuple(self.entry_functions or ()))

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module without dead code, ``mod`` itself if there is none."""
        mod = self.sweep_functions(mod)
        swept = {
            gvar: remove_all_unused(func)
            for gvar, func in mod.functions.items()
            if isinstance(func, Function)
        }
        result = mod.clone()
        for gvar, func in swept.items():
            # TVM rebuilds each function with a binding; its place in the module follows from that
            if mod.functions[gvar] is not func or func.body.blocks:
                result.update_func(gvar, func)
        if list(result.functions.items()) == list(mod.functions.items()):
            return mod
        # what was only used by dead bindings is unreachable now
        return self.sweep_functions(result)

    def sweep_functions(self, mod: IRModule) -> IRModule:
        """Drop the functions that no entry reaches."""
        entries = [mod.get_global_var(name) for name in self.entry_functions]
        entries += [g for g, f in mod.functions.items() if "global_symbol" in f.func_attrs]
        reached = _reachable(mod, entries)
        dead = [gvar for gvar in mod.functions if gvar not in reached]
        if not dead:
            return mod
        result = mod.clone()
        for gvar in dead:
            result.remove(gvar)
        return result
