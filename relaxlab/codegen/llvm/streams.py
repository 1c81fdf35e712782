"""Other orders for the loops of a nest, which read memory as it lies.

Loops that follow each other through memory become one loop, so that lanes do not stop at the end
of a short row. A vector times a large matrix reads the matrix row after row, once, and adds to a
result that stays in the cache. Eight rows are added in one go, so that the result is read and
written less often, while the next eight are fetched ahead from their first byte to their last:
that is one linear stream, which is what memory is fast at.
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
    Accumulation,
    Nest,
    accesses,
    accumulations,
    flat_offset,
    may_reorder,
)
from relaxlab.codegen.llvm.walk import loads_in
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.node import children
from relaxlab.ir.prim import IntImm, TensorLoad
from relaxlab.ir.prim_functor import post_order_map, substitute
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx.buffer import BufferType, buffer_type
from relaxlab.tirx.stmt import BufferStore, For, ForKind, Stmt, seq

__all__ = ["AHEAD", "Ahead", "Collapsed", "collapsed", "streamed"]

#: Annotation of a loop that fetches memory ahead: an :class:`Ahead`.
AHEAD: Final = "ahead"

_INT64: Final = DataType("int64")
#: Elements of a result that are added to while rows stream by: they fit a second-level cache.
_TILE: Final = 65536
#: Rows that are added in one go.
_ROWS: Final = 8
#: Bytes of a matrix up to which it is in a cache that is near anyway.
_NEAR: Final = 1 << 20
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


@dataclass(frozen=True, slots=True)
class Ahead:
    """Memory that is needed next, fetched while a loop runs.

    Attributes
    ----------
    buffer
        Where it is.
    start
        Distance of its first element from the buffer's start.
    times
        How many elements belong to one iteration.
    """

    buffer: Var
    start: Expr
    times: int


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
    matrix = _matrix(nest, reduce, lane, indices)
    if matrix is None:
        return None
    others = [f for f in nest.loops if f is not wide]
    result = _Stream(wide, reduce, found[0], matrix, count, height).tiles()
    for loop in reversed(others):
        result = replace(loop, body=result)
    return result


def _matrix(nest: Nest, reduce: Reduce, lane: Var, indices: Indices) -> TensorLoad | None:
    """Return the matrix that is read along the lanes, by few of the other loops' iterations."""
    head = reduce.loops[0]
    for load in loads_in(reduce.body):
        offset = flat_offset(indices, load.buffer, load.indices)
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
        return load if again <= _FEW else None
    return None


@dataclass(frozen=True, slots=True)
class _Stream:
    """A sum over the rows of a matrix, with the loop along its rows innermost."""

    wide: For
    reduce: Reduce
    sum: Accumulation
    matrix: TensorLoad
    columns: int | None
    rows: int | None

    def tiles(self) -> Stmt:
        """Return the sum for some columns after the other, if a row is long."""
        wide, columns = self.wide, self.columns
        if columns is None or columns <= _TILE:
            return self._tile(wide.min, wide.extent)
        dtype = wide.loop_var.dtype
        tile = Var(f"{wide.loop_var.name}_tile", dtype)
        start = prim_ops.add(wide.min, prim_ops.multiply(tile, IntImm(dtype, _TILE)))
        count = IntImm(dtype, columns // _TILE)
        body = self._tile(start, IntImm(dtype, _TILE))
        whole = For(tile, IntImm(dtype, 0), count, ForKind.SERIAL, body)
        if columns % _TILE == 0:
            return whole
        rest = prim_ops.add(wide.min, IntImm(dtype, columns // _TILE * _TILE))
        return seq([whole, self._tile(rest, IntImm(dtype, columns % _TILE))])

    def _tile(self, start: Expr, extent: Expr) -> Stmt:
        """Return: results to their first values; then for some rows, add their part to all."""
        head = self.reduce.loops[0]
        parts = [self._along(self.reduce.init, start, extent)]
        done = 0
        if self.rows is not None and self.rows >= 2 * _ROWS:
            done = self.rows // _ROWS * _ROWS
            parts.append(self._blocks(start, extent))
        if done != self.rows:
            dtype = head.var.dtype
            low = prim_ops.add(head.min, IntImm(dtype, done))
            left = head.extent if self.rows is None else IntImm(dtype, self.rows - done)
            one = self._along(self.reduce.body, start, extent)
            parts.append(For(head.var, low, left, ForKind.SERIAL, one))
        return seq(parts)

    def _blocks(self, start: Expr, extent: Expr) -> Stmt:
        """Return: several rows are added to all results, and again."""
        assert self.rows is not None
        head = self.reduce.loops[0]
        dtype = head.var.dtype
        block = Var(f"{head.var.name}_rows", dtype)
        first = prim_ops.add(head.min, prim_ops.multiply(block, IntImm(dtype, _ROWS)))
        store = self.sum.store
        value: Expr = TensorLoad(store.buffer, store.indices)
        for row in range(_ROWS):
            now = prim_ops.add(first, IntImm(dtype, row))
            value = prim_ops.add(value, substitute(self.sum.term, {head.var: now}))
        body = BufferStore(store.buffer, value, store.indices)
        following = {head.var: prim_ops.add(first, IntImm(dtype, _ROWS))}
        inner = self._along(body, start, extent, self._ahead(following))
        count = IntImm(dtype, self.rows // _ROWS)
        return For(block, IntImm(dtype, 0), count, ForKind.SERIAL, inner)

    def _ahead(self, following: dict[Var, Expr]) -> Ahead | None:
        """Return what to fetch meanwhile: the next rows, if they are one piece of memory."""
        indices = Indices()
        buffer = self.matrix.buffer
        offset = flat_offset(indices, buffer, self.matrix.indices)
        down = indices.coefficient(offset, self.reduce.loops[0].var)
        width = buffer_type(buffer).dtype.bits // 8
        if self.columns is None or self.rows is None or down is None:
            return None
        if self.columns > _TILE or as_constant(down[0]) != self.columns:
            return None
        if self.rows * self.columns * width < _NEAR:
            return None
        first = {**following, self.wide.loop_var: self.wide.min}
        return Ahead(buffer, substitute(indices.expression(offset), first), _ROWS)

    def _along(self, stmt: Stmt, start: Expr, extent: Expr, ahead: Ahead | None = None) -> Stmt:
        """Return a statement for each result of a tile."""
        old = self.wide.loop_var
        var = Var(old.name, old.dtype)
        body = substitute(stmt, {old: prim_ops.add(start, var)})
        notes = {} if ahead is None else {AHEAD: ahead}
        return For(var, IntImm(old.dtype, 0), extent, ForKind.SERIAL, body, annotations=notes)
