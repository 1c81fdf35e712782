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

from collections.abc import Callable, Iterator

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.node import Node, children, structural_equal
from relaxlab.ir.prim import Add, IntImm, Max, Min, Range, Select, Sub, TensorLoad, TensorRegion
from relaxlab.ir.sym import Analyzer
from relaxlab.tirx import BufferStore, Stmt, buffer_type

__all__ = ["access_regions"]

#: The least and the greatest value; None for unbounded.
_Interval = tuple[Expr | None, Expr | None]
_Box = list[_Interval]


def access_regions(
    body: Stmt, init: Stmt | None = None
) -> tuple[tuple[TensorRegion, ...], tuple[TensorRegion, ...]]:
    """Return what a block with this body (and this first-time part) reads and writes.

    Parameters
    ----------
    body
        Statements without loops of their own.
    init
        The first-time part of a reducing block, if any.
    """
    reads: dict[Var, _Box] = {}
    writes: dict[Var, _Box] = {}
    analyzer = Analyzer()
    for statement in (init, body):
        if statement is not None:
            for node in _accesses(statement):
                boxes = writes if isinstance(node, BufferStore) else reads
                _join(boxes, node.buffer, node.indices, analyzer)
    if init is not None:
        for buffer in writes:
            reads.pop(buffer, None)
    return _regions(reads, analyzer), _regions(writes, analyzer)


def _accesses(root: Node) -> Iterator[BufferStore | TensorLoad]:
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, BufferStore | TensorLoad):
            yield node
        if isinstance(node, TensorLoad):
            pending.extend(reversed(node.indices))
        elif isinstance(node, BufferStore):
            pending.extend((*reversed(node.indices), node.value))
        else:
            pending.extend(reversed(list(children(node))))


def _join(
    boxes: dict[Var, _Box], buffer: Var, indices: tuple[Expr, ...], analyzer: Analyzer
) -> None:
    new = [_interval(index) for index in indices]
    known = boxes.get(buffer)
    boxes[buffer] = (
        new if known is None else [_union(a, b, analyzer) for a, b in zip(known, new, strict=True)]
    )


def _union(a: _Interval, b: _Interval, analyzer: Analyzer) -> _Interval:
    if _is_point(a) and _is_point(b) and structural_equal(a[0], b[0]):
        return a
    low = None if a[0] is None or b[0] is None else analyzer.simplify(prim_ops.min(a[0], b[0]))
    high = None if a[1] is None or b[1] is None else analyzer.simplify(prim_ops.max(a[1], b[1]))
    return low, high


def _is_point(interval: _Interval) -> bool:
    return interval[0] is not None and interval[0] is interval[1]


def _interval(index: Expr) -> _Interval:
    """Bound an index: a point, unless a choice is made in it; a call may give anything."""
    if not _has_choice(index):
        return index, index
    match index:
        case Add(a=a, b=b):
            (a0, a1), (b0, b1) = _interval(a), _interval(b)
            return _both(prim_ops.add, a0, b0), _both(prim_ops.add, a1, b1)
        case Sub(a=a, b=b):
            (a0, a1), (b0, b1) = _interval(a), _interval(b)
            return _both(prim_ops.subtract, a0, b1), _both(prim_ops.subtract, a1, b0)
        case Min(a=a, b=b):
            (a0, a1), (b0, b1) = _interval(a), _interval(b)
            return _both(prim_ops.min, a0, b0), _either(prim_ops.min, a1, b1)
        case Max(a=a, b=b):
            (a0, a1), (b0, b1) = _interval(a), _interval(b)
            return _either(prim_ops.max, a0, b0), _both(prim_ops.max, a1, b1)
        case Select(true_value=a, false_value=b):
            (a0, a1), (b0, b1) = _interval(a), _interval(b)
            return _both(prim_ops.min, b0, a0), _both(prim_ops.max, b1, a1)
        case _:
            return None, None


def _both(function: Callable[[Expr, Expr], Expr], a: Expr | None, b: Expr | None) -> Expr | None:
    return None if a is None or b is None else function(a, b)


def _either(function: Callable[[Expr, Expr], Expr], a: Expr | None, b: Expr | None) -> Expr | None:
    if a is None or b is None:
        return a if b is None else b
    return function(a, b)


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
