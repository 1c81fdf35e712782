"""Which functions of a module call each other in a circle. Counterpart: ``detect_recursion``.

Examples
--------
>>> from relaxlab.ir import IRModule
>>> detect_recursion(IRModule())
[]
"""

from relaxlab.ir.expr import GlobalVar
from relaxlab.ir.module import IRModule
from relaxlab.relax.analysis.variables import all_global_vars
from relaxlab.relax.expr import Function

__all__ = ["detect_recursion"]


def detect_recursion(mod: IRModule) -> list[list[GlobalVar]]:
    """Return the groups of mutually recursive functions, one that calls itself included.

    Groups and their members come in the order of the module.
    """
    calls = {
        gvar: [g for g in all_global_vars(func) if g in mod.functions]
        if isinstance(func, Function)
        else []
        for gvar, func in mod.functions.items()
    }
    order = {gvar: i for i, gvar in enumerate(calls)}
    groups = [
        sorted(group, key=order.__getitem__)
        for group in _strong_components(calls)
        if len(group) > 1 or group[0] in calls[group[0]]
    ]
    return sorted(groups, key=lambda group: order[group[0]])


def _strong_components(edges: dict[GlobalVar, list[GlobalVar]]) -> list[list[GlobalVar]]:
    """Tarjan's algorithm, with a stack of its own."""
    number: dict[GlobalVar, int] = {}
    low: dict[GlobalVar, int] = {}
    open_nodes: list[GlobalVar] = []
    is_open: set[GlobalVar] = set()
    components: list[list[GlobalVar]] = []
    for root in edges:
        if root in number:
            continue
        work = [(root, iter(edges[root]))]
        number[root] = low[root] = len(number)
        open_nodes.append(root)
        is_open.add(root)
        while work:
            node, rest = work[-1]
            successor = next(rest, None)
            if successor is None:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == number[node]:
                    start = open_nodes.index(node)
                    components.append(open_nodes[start:])
                    is_open.difference_update(open_nodes[start:])
                    del open_nodes[start:]
            elif successor not in number:
                number[successor] = low[successor] = len(number)
                open_nodes.append(successor)
                is_open.add(successor)
                work.append((successor, iter(edges[successor])))
            elif successor in is_open:
                low[node] = min(low[node], number[successor])
    return components
