"""What a hand-written block reads and writes, when it does not say so.

A block of a plain statement is analysed as the kernels made from tensor expressions are. A block
with loops or blocks inside is given the whole extent of a dimension whose index depends on them.
"""

from relaxlab.ir.expr import Var
from relaxlab.ir.node import Node, children
from relaxlab.ir.prim import IntImm, Range, TensorRegion
from relaxlab.te.access_regions import access_regions as _of_statements
from relaxlab.tirx.buffer import buffer_type
from relaxlab.tirx.stmt import AllocBuffer, Bind, DeclBuffer, For, IterVar, Stmt

__all__ = ["access_regions"]

_Regions = tuple[TensorRegion, ...]


def access_regions(body: Stmt, init: Stmt | None) -> tuple[_Regions, _Regions]:
    """Return the regions that a block reads and those that it writes.

    Parameters
    ----------
    body, init
        The block's statements, and its first-time part.
    """
    inner, buffers = _defined_inside(body)
    reads, writes = _of_statements(body, init)
    return _outside(reads, inner, buffers), _outside(writes, inner, buffers)


def _defined_inside(body: Stmt) -> tuple[set[Var], set[Var]]:
    """Return the scalars and the buffers that only exist inside the block."""
    scalars: set[Var] = set()
    buffers: set[Var] = set()
    stack: list[Node] = [body]
    while stack:
        node = stack.pop()
        match node:
            case For():
                scalars.add(node.loop_var)
            case IterVar() | Bind():
                scalars.add(node.var)
            case AllocBuffer() | DeclBuffer():
                buffers.add(node.buffer)
            case _:
                pass
        stack.extend(children(node))
    return scalars, buffers


def _outside(regions: _Regions, inner: set[Var], buffers: set[Var]) -> _Regions:
    result = []
    for region in regions:
        if region.buffer in buffers:
            continue
        shape = buffer_type(region.buffer).shape
        box = tuple(
            Range(IntImm(extent.dtype, 0), extent) if _mentions(rng, inner) else rng
            for rng, extent in zip(region.region, shape, strict=True)
        )
        result.append(TensorRegion(region.buffer, box))
    return tuple(result)


def _mentions(node: Node, variables: set[Var]) -> bool:
    return node in variables or any(_mentions(child, variables) for child in children(node))
