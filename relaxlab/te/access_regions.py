"""What a block reads and writes, found from its body.

A block's regions are annotations; whoever builds a block may leave them out and have them
inferred. The rules are TVM's: buffers in the order in which a walk meets them (a read before the
reads inside its indices), one region per buffer, several accesses joined into one box, and what a
reducing block writes does not count as read. Counterpart: ``tvm.s_tir.analysis``'s
``get_block_access_region``.

Examples
--------
>>> from relaxlab.ir import IntImm, TensorLoad
>>> from relaxlab.tirx import BufferStore, decl_buffer
>>> a, b = decl_buffer((4,), name="a"), decl_buffer((4,), name="b")
>>> zero = IntImm("int32", 0)
>>> reads, writes = access_regions(BufferStore(b, TensorLoad(a, (zero,)), (zero,)))
>>> [r.buffer.name for r in reads], [w.buffer.name for w in writes]
(['a'], ['b'])
"""

from collections.abc import Callable, Mapping, Sequence

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.node import Node, children, structural_equal
from relaxlab.ir.prim import (
    Add,
    IntImm,
    Max,
    Min,
    Mul,
    Range,
    Select,
    Sub,
    TensorLoad,
    TensorRegion,
)
from relaxlab.ir.prim_functor import free_vars, substitute
from relaxlab.ir.sym import Analyzer
from relaxlab.tirx import BufferStore, For, IterVar, SBlockRealize, Stmt, buffer_type

__all__ = ["access_regions"]

#: The least and the greatest value; None for unbounded.
_Interval = tuple[Expr | None, Expr | None]
_Box = list[_Interval]
#: Where loop variables lie.
_Domains = Mapping[Var, _Interval]


def access_regions(
    body: Stmt, init: Stmt | None = None, iter_vars: Sequence[IterVar] = ()
) -> tuple[tuple[TensorRegion, ...], tuple[TensorRegion, ...]]:
    """Return what a block with this body (and this first-time part) reads and writes.

    Parameters
    ----------
    body
        What the block does; loops in it count with all their steps, blocks in it with what they
        say of themselves.
    init
        The first-time part of a reducing block, if any.
    iter_vars
        The block's variables; what their domains read counts too.
    """
    found = _Accesses()
    for iter_var in iter_vars:
        found.visit(iter_var.dom.min, {})
        found.visit(iter_var.dom.extent, {})
    for statement in (init, body):
        if statement is not None:
            found.visit(statement, {})
    if init is not None:
        for buffer in found.writes:
            found.reads.pop(buffer, None)
    return _regions(found.reads, found.analyzer), _regions(found.writes, found.analyzer)


class _Accesses:
    """The box of each buffer that has been met so far."""

    def __init__(self) -> None:
        self.reads: dict[Var, _Box] = {}
        self.writes: dict[Var, _Box] = {}
        self.analyzer = Analyzer()

    def visit(self, root: Node, domains: _Domains) -> None:
        """Add the accesses in ``root``, where loop variables lie in ``domains``."""
        pending = [root]
        while pending:
            node = pending.pop()
            match node:
                case TensorLoad():
                    self._point(self.reads, node.buffer, node.indices, domains)
                    pending.extend(reversed(node.indices))
                case BufferStore():
                    self._point(self.writes, node.buffer, node.indices, domains)
                    pending.extend((*reversed(node.indices), node.value))
                case For():
                    self._loop(node, domains)
                case SBlockRealize():
                    self._block(node, domains)
                case _:
                    pending.extend(reversed(list(children(node))))

    def _loop(self, loop: For, domains: _Domains) -> None:
        self.visit(loop.min, domains)
        self.visit(loop.extent, domains)
        first, last = _interval(loop.min, domains), _interval(loop.extent, domains)
        end = None if first[1] is None or last[1] is None else first[1] + last[1] - 1
        self.visit(loop.body, {**domains, loop.loop_var: (first[0], end)})

    def _block(self, realize: SBlockRealize, domains: _Domains) -> None:
        values = {
            iter_var.var: value
            for iter_var, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        }
        for boxes, regions in (
            (self.reads, realize.block.reads),
            (self.writes, realize.block.writes),
        ):
            for region in regions:
                ranges = [
                    Range(substitute(r.min, values), substitute(r.extent, values))
                    for r in region.region
                ]
                self._join(boxes, region.buffer, [_span(r, domains) for r in ranges])

    def _point(
        self, boxes: dict[Var, _Box], buffer: Var, indices: tuple[Expr, ...], domains: _Domains
    ) -> None:
        self._join(boxes, buffer, [_interval(index, domains) for index in indices])

    def _join(self, boxes: dict[Var, _Box], buffer: Var, new: _Box) -> None:
        known = boxes.get(buffer)
        boxes[buffer] = (
            new
            if known is None
            else [_union(a, b, self.analyzer) for a, b in zip(known, new, strict=True)]
        )


def _span(values: Range, domains: _Domains) -> _Interval:
    low = _interval(values.min, domains)
    if prim_ops.is_const_int(values.extent, 1):
        return low
    return low[0], _interval(values.min + values.extent - 1, domains)[1]


def _union(a: _Interval, b: _Interval, analyzer: Analyzer) -> _Interval:
    if _is_point(a) and _is_point(b) and structural_equal(a[0], b[0]):
        return a
    low = None if a[0] is None or b[0] is None else analyzer.simplify(prim_ops.min(a[0], b[0]))
    high = None if a[1] is None or b[1] is None else analyzer.simplify(prim_ops.max(a[1], b[1]))
    return low, high


def _is_point(interval: _Interval) -> bool:
    return interval[0] is not None and interval[0] is interval[1]


def _interval(index: Expr, domains: _Domains) -> _Interval:
    """Bound an index: a point, unless it moves with a loop or a choice is made in it.

    A call may give anything.
    """
    if not _varies(index, domains):
        return index, index
    match index:
        case Var():
            return domains[index]
        case Add(a=a, b=b):
            (a0, a1), (b0, b1) = _interval(a, domains), _interval(b, domains)
            return _both(prim_ops.add, a0, b0), _both(prim_ops.add, a1, b1)
        case Sub(a=a, b=b):
            (a0, a1), (b0, b1) = _interval(a, domains), _interval(b, domains)
            return _both(prim_ops.subtract, a0, b1), _both(prim_ops.subtract, a1, b0)
        case Mul(a=a, b=IntImm(value=factor) as b) if factor >= 0 and not _has_choice(a):
            a0, a1 = _interval(a, domains)
            return _both(prim_ops.multiply, a0, b), _both(prim_ops.multiply, a1, b)
        case Min(a=a, b=b):
            (a0, a1), (b0, b1) = _interval(a, domains), _interval(b, domains)
            return _both(prim_ops.min, a0, b0), _either(prim_ops.min, a1, b1)
        case Max(a=a, b=b):
            (a0, a1), (b0, b1) = _interval(a, domains), _interval(b, domains)
            return _either(prim_ops.max, a0, b0), _both(prim_ops.max, a1, b1)
        case Select(true_value=a, false_value=b):
            (a0, a1), (b0, b1) = _interval(a, domains), _interval(b, domains)
            return _both(prim_ops.min, b0, a0), _both(prim_ops.max, b1, a1)
        case _:
            return None, None


def _both(function: Callable[[Expr, Expr], Expr], a: Expr | None, b: Expr | None) -> Expr | None:
    return None if a is None or b is None else function(a, b)


def _either(function: Callable[[Expr, Expr], Expr], a: Expr | None, b: Expr | None) -> Expr | None:
    if a is None or b is None:
        return a if b is None else b
    return function(a, b)


def _varies(index: Expr, domains: _Domains) -> bool:
    return _has_choice(index) or (bool(domains) and any(var in domains for var in free_vars(index)))


def _has_choice(index: Expr) -> bool:
    pending: list[Node] = [index]
    while pending:
        node = pending.pop()
        if isinstance(node, Call | Select):
            return True
        if not isinstance(node, TensorLoad):
            pending.extend(children(node))
    return False


def _regions(boxes: dict[Var, _Box], analyzer: Analyzer) -> tuple[TensorRegion, ...]:
    return tuple(
        TensorRegion(
            buffer,
            tuple(
                _range(interval, extent, analyzer)
                for interval, extent in zip(box, buffer_type(buffer).shape, strict=True)
            ),
        )
        for buffer, box in boxes.items()
    )


def _range(interval: _Interval, extent: Expr, analyzer: Analyzer) -> Range:
    low, high = interval
    if low is None or high is None:
        return Range(IntImm(extent.dtype, 0), extent)
    one = IntImm(low.dtype, 1)
    if low is high or structural_equal(low, high):
        return Range(low, one)
    return Range(analyzer.simplify(low), analyzer.simplify(high - low + one))
