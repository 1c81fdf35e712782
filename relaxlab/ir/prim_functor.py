"""Walks over scalar expressions and kernels: visit, substitute, find variables.

One reflective walk serves every node, so a new node needs no visitor method. The walks keep
their own stack: a sum of ten thousand terms is as fine as one of two.
Counterpart: ``tvm.tirx.stmt_functor`` (``post_order_visit``, ``substitute``) and
``tvm.tirx.analysis.undefined_vars``.

Examples
--------
>>> from relaxlab.ir import Var
>>> n, m = Var("n", "int64"), Var("m", "int64")
>>> free_vars(substitute(n + 1, {n: m * 2}))[0] is m
True
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.node import DEFINES, Node, children, map_children
from relaxlab.ir.prim import IntImm
from relaxlab.ir.prim_ops import const
from relaxlab.ir.type import PrimType

__all__ = ["defined_vars", "free_vars", "post_order_map", "post_order_visit", "substitute"]

N = TypeVar("N", bound=Node)


def post_order_visit(node: Node, visit: Callable[[Any], object]) -> None:
    """Call ``visit`` on every node inside ``node`` once, each after the nodes inside it."""
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(node, False)]
    while stack:
        current, opened = stack.pop()
        if opened:
            visit(current)
        elif id(current) not in seen:
            seen.add(id(current))
            stack.append((current, True))
            stack.extend((child, False) for child in reversed(list(children(current))))


def post_order_map(node: N, function: Callable[[Any], Any]) -> N:
    """Rebuild ``node`` from the inside out, replacing each node by what ``function`` returns.

    ``function`` is called once for each node, after the nodes inside it were replaced. The same
    object comes back when it returned every node unchanged.
    """
    done: dict[int, Any] = {}
    stack: list[tuple[Node, bool]] = [(node, False)]
    while stack:
        current, opened = stack.pop()
        if id(current) in done:
            continue
        if opened:
            done[id(current)] = function(map_children(current, lambda n: done[id(n)]))
        else:
            stack.append((current, True))
            stack.extend((child, False) for child in children(current))
    result: N = done[id(node)]
    return result


def substitute(node: N, replacements: Mapping[Var, Any]) -> N:
    """Replace variables by expressions; the same object comes back when none occurs.

    A buffer whose shape mentions a replaced variable becomes a new buffer, everywhere the same.

    Parameters
    ----------
    node
        An expression, a statement, a range, ...
    replacements
        Variable to expression (or plain int, which takes the variable's dtype).
    """
    if not replacements:
        return node
    memo: dict[Node, Any] = {
        var: value if isinstance(value, Expr) else const(value, var.dtype)
        for var, value in replacements.items()
    }

    def replace(current: Any) -> Any:
        if not isinstance(current, Var):
            return current
        found = memo.get(current)
        if found is None:
            found = memo[current] = _with_new_type(current, replace)
        return found

    return post_order_map(node, replace)


def _with_new_type(var: Var, replace: Callable[[Any], Any]) -> Var:
    ty = var.ty
    if ty is None or isinstance(ty, PrimType):
        return var
    changed = post_order_map(ty, replace)
    return var if changed is ty else Var(var.name, changed, var.span)


def _find_definitions(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(cls) if f.metadata == DEFINES)


def defined_vars(node: Node) -> list[Var]:
    """Return the variables that nodes inside ``node`` introduce, in visiting order."""
    found: dict[Var, None] = {}

    def visit(current: Any) -> None:
        for name in _find_definitions(type(current)):
            value = getattr(current, name)
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, Var):
                    found[item] = None

    post_order_visit(node, visit)
    return list(found)


def free_vars(node: Node, known: Iterable[Var] = ()) -> list[Var]:
    """Return the variables that ``node`` uses and does not introduce, in visiting order."""
    # most dimensions are one variable or one number
    if isinstance(node, Var):
        return [] if node in set(known) else [node]
    if isinstance(node, IntImm):
        return []
    found: dict[Var, None] = {}
    post_order_visit(node, lambda n: found.setdefault(n) if isinstance(n, Var) else None)
    hidden = {*known, *defined_vars(node)}
    return [var for var in found if var not in hidden]
