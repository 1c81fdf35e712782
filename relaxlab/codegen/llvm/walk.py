"""Going through a kernel, each node once.

After inlining, expressions are graphs: one subexpression stands in many places. A walk that
followed every path would take for ever. Counterpart: ``post_order_visit``.

Examples
--------
>>> from relaxlab.ir import Var
>>> x = Var("x", "float32")
>>> for _ in range(100):
...     x = x + x
>>> len(list(nodes_in(x)))
101
"""

from collections.abc import Iterator
from typing import Any

from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.node import Node, children
from relaxlab.ir.prim import TensorLoad
from relaxlab.tirx.buffer import is_buffer_var
from relaxlab.tirx.stmt import Stmt

__all__ = ["call_name", "escaping", "loads_in", "mentions", "nodes_in", "statements_in"]


def nodes_in(root: Node) -> Iterator[Any]:
    """Yield a node and everything inside it, each once, outer nodes first."""
    seen: set[int] = set()
    pending: list[Node] = [root]
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        pending.extend(children(node))


def statements_in(root: Node) -> Iterator[Any]:
    """Yield a statement and all statements inside it, in order."""
    pending: list[Node] = [root]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed([c for c in children(node) if isinstance(c, Stmt)]))


def loads_in(root: Node) -> list[TensorLoad]:
    """Return all reads inside a node."""
    return [n for n in nodes_in(root) if isinstance(n, TensorLoad)]


def mentions(root: Node, buffer: Var) -> bool:
    """Say whether a buffer occurs inside a node."""
    return any(n is buffer for n in nodes_in(root))


def call_name(node: Any) -> str:
    """Return the operator of a call without ``tirx.``; empty for everything else."""
    if not isinstance(node, Call):
        return ""
    name: str = getattr(node.op, "name", "")
    return name.removeprefix("tirx.")


def escaping(root: Node) -> set[Var]:
    """Return the buffers whose memory is passed on by address."""
    found: set[Var] = set()
    for node in nodes_in(root):
        if call_name(node) in ("buffer_data", "address_of"):
            target: Expr = node.args[0]
            buffer = target.buffer if isinstance(target, TensorLoad) else target
            if is_buffer_var(buffer):
                found.add(buffer)
    return found
