"""What a hand-written block reads and writes, when it does not say so.

A block of plain statements is analysed as the kernels made from tensor expressions are. When it
has loops or blocks inside, an index is bounded over them: ``a[i, j]`` in a loop of ``j`` up to 4
reads ``a[i, 0:4]``.
"""

from collections.abc import Mapping

from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.node import Node, children, structural_equal
from relaxlab.ir.prim import IntImm, Range, TensorLoad, TensorRegion
from relaxlab.ir.prim_ops import max as max_of
from relaxlab.ir.prim_ops import min as min_of
from relaxlab.ir.sym import Analyzer, IntervalSet
from relaxlab.te.access_regions import access_regions as _of_statements
from relaxlab.tirx.buffer import buffer_type
from relaxlab.tirx.stmt import (
    AllocBuffer,
    BufferStore,
    DeclBuffer,
    For,
    SBlock,
    SBlockRealize,
    Stmt,
)

__all__ = ["access_regions"]

_Regions = tuple[TensorRegion, ...]


def access_regions(body: Stmt, init: Stmt | None) -> tuple[_Regions, _Regions]:
    """Return the regions that a block reads and those that it writes.

    Parameters
    ----------
    body, init
        The block's statements, and its first-time part.
    """
    if not _has_loops(body) and (init is None or not _has_loops(init)):
        return _of_statements(body, init)
    walk = _Walk()
    for statement in (init, body):
        if statement is not None:
            walk.visit(statement, {})
    if init is not None:
        for buffer in walk.writes:
            walk.reads.pop(buffer, None)
    return walk.regions(walk.reads), walk.regions(walk.writes)


def _has_loops(root: Stmt) -> bool:
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, For | SBlock | AllocBuffer | DeclBuffer):
            return True
        stack.extend(child for child in children(node) if isinstance(child, Stmt))
    return False


class _Walk:
    """Collects accesses, each bounded over the loops around it."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.reads: dict[Var, list[IntervalSet]] = {}
        self.writes: dict[Var, list[IntervalSet]] = {}
        self.own: set[Var] = set()

    def visit(self, node: Node, domains: Mapping[Var, IntervalSet]) -> None:
        match node:
            case TensorLoad():
                self.join(self.reads, node.buffer, node.indices, domains)
            case BufferStore():
                self.join(self.writes, node.buffer, node.indices, domains)
            case For():
                last = self.analyzer.simplify(node.min + node.extent - 1)
                domains = {**domains, node.loop_var: IntervalSet(node.min, last)}
            case SBlockRealize():
                bound = zip(node.block.iter_vars, node.iter_values, strict=True)
                inner = {v.var: self.analyzer.int_set(value, domains) for v, value in bound}
                domains = {**domains, **inner}
                self.own.update(node.block.alloc_buffers)
            case AllocBuffer() | DeclBuffer():
                self.own.add(node.buffer)
            case _:
                pass
        if isinstance(node, SBlock):
            for part in (node.init, node.body):
                if part is not None:
                    self.visit(part, domains)
        else:
            for child in children(node):
                self.visit(child, domains)

    def join(
        self,
        boxes: dict[Var, list[IntervalSet]],
        buffer: Var,
        indices: tuple[Expr, ...],
        domains: Mapping[Var, IntervalSet],
    ) -> None:
        new = [self.analyzer.int_set(index, domains) for index in indices]
        known = boxes.get(buffer)
        if known is not None:
            new = [self.union(a, b) for a, b in zip(known, new, strict=True)]
        boxes[buffer] = new

    def union(self, a: IntervalSet, b: IntervalSet) -> IntervalSet:
        low = None
        if a.min_value is not None and b.min_value is not None:
            low = self.analyzer.simplify(min_of(a.min_value, b.min_value))
        high = None
        if a.max_value is not None and b.max_value is not None:
            high = self.analyzer.simplify(max_of(a.max_value, b.max_value))
        return IntervalSet(low, high)

    def regions(self, boxes: dict[Var, list[IntervalSet]]) -> _Regions:
        return tuple(
            TensorRegion(
                buffer,
                tuple(
                    self.range(interval, extent)
                    for interval, extent in zip(box, buffer_type(buffer).shape, strict=True)
                ),
            )
            for buffer, box in boxes.items()
            if buffer not in self.own
        )

    def range(self, interval: IntervalSet, extent: Expr) -> Range:
        low, high = interval.min_value, interval.max_value
        if low is None or high is None:
            return Range(IntImm(extent.dtype, 0), extent)
        if low is high or structural_equal(low, high):
            return Range(low, IntImm(low.dtype, 1))
        return Range(low, self.analyzer.simplify(high - low + 1))
