"""Other orders for the loops of a nest, which read memory as it lies.

Loops that follow each other through memory become one loop, so that lanes do not stop at the end
of a short row. A vector times a large matrix reads the matrix row after row, once, and adds to a
result that stays in the cache; that is one linear stream, which is what memory is fast at.
Counterpart: ``fuse`` and ``reorder`` of a schedule.

Examples
--------
>>> from relaxlab import te
>>> from relaxlab.codegen.llvm.lower import lower
>>> from relaxlab.codegen.llvm.nests import read_nest
>>> x = te.placeholder((4, 8), "float32", "x")
>>> y = te.compute((4, 8), lambda i, j: x[i, j] * 2.0, name="y")
>>> nest = read_nest(lower(te.create_prim_func([x, y])).body[0])
>>> len(collapsed(nest, Indices()).nest.loops)
1
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from relaxlab.codegen.llvm.indices import Indices, Poly, added, as_constant, multiplied
from relaxlab.codegen.llvm.lower import Reduce
from relaxlab.codegen.llvm.nests import (
    Nest,
    accesses,
    accumulations,
    flat_offset,
    may_reorder,
)
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.node import children
from relaxlab.ir.prim import IntImm, TensorLoad
from relaxlab.ir.prim_functor import post_order_map, substitute
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx.buffer import BufferType, buffer_type
from relaxlab.tirx.stmt import BufferStore, For, ForKind, Stmt, seq

__all__ = ["Collapsed", "collapsed", "streamed"]

_INT64: Final = DataType("int64")
#: Elements of a result that are added to while rows stream by: half of a small first-level cache.
_TILE: Final = 4096
#: Rows of the other operand up to which streaming a matrix again for each is right.
_FEW: Final = 5


@dataclass(frozen=True, slots=True)
class Collapsed:
    """A nest with fewer loops.

    Attributes
    ----------
    nest
        The nest.
    flat
        One-dimensional buffers that it uses, each with the buffer whose memory it is.
    """

    nest: Nest
    flat: dict[Var, Var]


def collapsed(nest: Nest, indices: Indices) -> Collapsed | None:
    """Return the nest with loops merged that follow each other through memory, or None."""
    if len(nest.loops) < 2:
        return None
    for loop in nest.loops:
        if as_constant(indices.of(loop.min)) != 0:
            return None
        indices.enter(loop.loop_var, {}, indices.of(loop.extent))
    offsets: list[Poly] = []
    for buffer, subscripts, _ in accesses(nest.inner):
        for index, size in zip(subscripts, buffer_type(buffer).shape, strict=True):
            if not (indices.at_least(index, 0) and indices.below(index, indices.of(size))):
                return None
        offsets.append(flat_offset(indices, buffer, subscripts))
    steps: dict[Var, list[Poly]] = {}
    for loop in nest.loops:
        parts = [indices.coefficient(offset, loop.loop_var) for offset in offsets]
        if any(p is None for p in parts):
            return None
        steps[loop.loop_var] = [p[0] for p in parts if p is not None]
    groups = _groups(nest, indices, steps, _used_elsewhere(nest))
    if len(groups) == len(nest.loops):
        return None
    return _rewritten(nest, indices, groups)


def _used_elsewhere(nest: Nest) -> set[Var]:
    """Return the loop variables that are used outside subscripts."""
    found: set[Var] = set()
    seen: set[int] = set()
    pending: list[Any] = [nest.inner]
    while pending:
        node = pending.pop()
        if id(node) in seen or isinstance(node, TensorLoad):
            continue
        seen.add(id(node))
        if isinstance(node, Var):
            found.add(node)
        pending.extend((node.value,) if isinstance(node, BufferStore) else children(node))
    return found


def _groups(
    nest: Nest, indices: Indices, steps: dict[Var, list[Poly]], pinned: set[Var]
) -> list[list[For]]:
    groups: list[list[For]] = []
    extent: Poly = {}
    for loop in reversed(nest.loops):
        own = indices.of(loop.extent)
        if groups and loop.loop_var not in pinned and groups[0][-1].loop_var not in pinned:
            inner = steps[groups[0][-1].loop_var]
            pairs = zip(steps[loop.loop_var], inner, strict=True)
            if not any(added(outer, multiplied(step, extent), -1) for outer, step in pairs):
                groups[0].insert(0, loop)
                extent = multiplied(extent, own)
                continue
        groups.insert(0, [loop])
        extent = own
    return groups


def _rewritten(nest: Nest, indices: Indices, groups: list[list[For]]) -> Collapsed:
    loops: list[For] = []
    to_zero: dict[Var, Expr] = {}
    for group in groups:
        last = group[-1]
        if len(group) == 1:
            loops.append(last)
            continue
        extent: Expr = last.extent
        for loop in group[:-1]:
            extent = prim_ops.multiply(*prim_ops.match_dtypes(loop.extent, extent))
            to_zero[loop.loop_var] = IntImm(loop.loop_var.dtype, 0)
        var = Var("_".join(f.loop_var.name for f in group), _INT64)
        to_zero[last.loop_var] = var
        loops.append(replace(last, loop_var=var, min=IntImm(_INT64, 0), extent=extent))
    flat: dict[Var, Var] = {}
    twin: dict[Var, Var] = {}

    def place(buffer: Var, subscripts: tuple[Expr, ...]) -> tuple[Var, tuple[Expr, ...]]:
        index = indices.expression(flat_offset(indices, buffer, subscripts))
        if buffer not in twin:
            size: Expr = IntImm(_INT64, 1)
            for dim in buffer_type(buffer).shape:
                size = prim_ops.multiply(*prim_ops.match_dtypes(size, dim))
            ty = BufferType((size,), buffer_type(buffer).dtype)
            twin[buffer] = Var(buffer.name, ty)
            flat[twin[buffer]] = buffer
        return twin[buffer], (substitute(index, to_zero),)

    def visit(node: Any) -> Any:
        if isinstance(node, TensorLoad) and node.buffer not in flat:
            return TensorLoad(*place(node.buffer, node.indices))
        if isinstance(node, BufferStore) and node.buffer not in flat:
            buffer, subscripts = place(node.buffer, node.indices)
            return BufferStore(buffer, node.value, subscripts)
        return node

    return Collapsed(Nest(tuple(loops), post_order_map(nest.inner, visit)), flat)


# ------------------------------------------------------------------ streams


def streamed(nest: Nest, lane: Var, indices: Indices) -> Stmt | None:
    """Return the nest in an order that streams its matrix, or None if it has none to stream."""
    reduce = nest.inner
    if not isinstance(reduce, Reduce) or len(reduce.loops) != 1:
        return None
    found = accumulations(reduce)
    if found is None or len(found) != 1 or found[0].combine != "Add" or not found[0].dtype.is_float:
        return None
    if not may_reorder(found[0]) or not isinstance(reduce.init, BufferStore):
        return None
    wide = next(f for f in nest.loops if f.loop_var is lane)
    columns, rows = indices.of(wide.extent), indices.of(reduce.loops[0].extent)
    count, height = as_constant(columns), as_constant(rows)
    if (count is not None and count <= 64) or (height is not None and height <= 8):
        return None
    if not _streams(nest, reduce, lane, indices):
        return None
    others = [f for f in nest.loops if f is not wide]
    result = _in_tiles(wide, reduce, count)
    for loop in reversed(others):
        result = replace(loop, body=result)
    return result


def _streams(nest: Nest, reduce: Reduce, lane: Var, indices: Indices) -> bool:
    """Say whether a matrix is read along the lanes, by few of the other loops' iterations."""
    head = reduce.loops[0]
    for buffer, subscripts, store in accesses(reduce.body):
        if store:
            continue
        offset = flat_offset(indices, buffer, subscripts)
        across = indices.coefficient(offset, lane)
        down = indices.coefficient(offset, head.var)
        if across is None or down is None or as_constant(across[0]) != 1 or not down[0]:
            continue
        step = as_constant(down[0])
        if step is not None and step <= 64:
            continue
        again = 1
        for loop in nest.loops:
            if loop.loop_var is not lane and not indices.depends(offset, loop.loop_var):
                again *= as_constant(indices.of(loop.extent)) or 1
        return again <= _FEW
    return False


def _in_tiles(wide: For, reduce: Reduce, count: int | None) -> Stmt:
    if count is None or count <= _TILE:
        return _tile(wide, reduce, wide.min, wide.extent)
    dtype = wide.loop_var.dtype
    tile = Var(f"{wide.loop_var.name}_tile", dtype)
    start = prim_ops.add(wide.min, prim_ops.multiply(tile, IntImm(dtype, _TILE)))
    whole = For(
        tile,
        IntImm(dtype, 0),
        IntImm(dtype, count // _TILE),
        ForKind.SERIAL,
        _tile(wide, reduce, start, IntImm(dtype, _TILE)),
    )
    if count % _TILE == 0:
        return whole
    rest = prim_ops.add(wide.min, IntImm(dtype, count // _TILE * _TILE))
    return seq([whole, _tile(wide, reduce, rest, IntImm(dtype, count % _TILE))])


def _tile(wide: For, reduce: Reduce, start: Expr, extent: Expr) -> Stmt:
    """Return: results to their first values; then for each row, add its part to all results."""
    head = reduce.loops[0]
    dtype = wide.loop_var.dtype

    def along(stmt: Stmt) -> Stmt:
        var = Var(wide.loop_var.name, dtype)
        body = substitute(stmt, {wide.loop_var: prim_ops.add(start, var)})
        return For(var, IntImm(dtype, 0), extent, ForKind.SERIAL, body)

    rows = For(head.var, head.min, head.extent, ForKind.SERIAL, along(reduce.body))
    return seq([along(reduce.init), rows])
