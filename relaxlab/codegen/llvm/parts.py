"""Sums of rows that lie far apart, done side by side: the fourth step towards machine code.

One row after the other is one stream through memory, and one stream does not make use of all that
memory can do. Four rows next to each other are worse: they share pages, which confuses what
fetches ahead. So the rows are dealt into four parts, and the first rows of all parts are summed
together, then the second ones: four streams, far from each other, and what all rows are multiplied
by is read a quarter as often. Terms are still added in the order of each row.
Counterpart: ``split``, ``reorder`` and ``unroll`` of a schedule.

Examples
--------
>>> from relaxlab import te
>>> from relaxlab.codegen.llvm.lower import lower
>>> x, w = te.placeholder((576,), "float32", "x"), te.placeholder((1536, 576), "float32", "w")
>>> k = te.reduce_axis((0, 576), "k")
>>> y = te.compute((1536,), lambda i: te.sum(w[i, k] * x[k], axis=k), name="y")
>>> kernel = lower(te.create_prim_func([x, w, y]))
>>> part_rows(kernel)
>>> rows = kernel.body[0]
>>> rows.extent, len(rows.body.seq), [b.name for b in kernel.locals]
(384, 5, ['y_0', 'y_1', 'y_2', 'y_3'])
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from relaxlab.codegen.llvm.indices import Indices, Poly, as_constant
from relaxlab.codegen.llvm.lower import Lowered, Reduce
from relaxlab.codegen.llvm.matmul import is_product
from relaxlab.codegen.llvm.nests import (
    Accumulation,
    Nest,
    accesses,
    accumulations,
    choose_lane,
    flat_offset,
    is_leaf,
    may_reorder,
)
from relaxlab.codegen.llvm.walk import escaping, loads_in, mentions, nodes_in
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.prim import IntImm, Select, TensorLoad
from relaxlab.ir.prim_functor import post_order_map, substitute
from relaxlab.tirx.buffer import BufferType, buffer_type
from relaxlab.tirx.stmt import BufferStore, For, ForKind, SeqStmt, Stmt, seq

__all__ = ["PARTS", "part_rows"]

#: How many rows are summed together.
PARTS: Final = 4
#: Bytes of a matrix from which its rows are dealt out: smaller ones are in a near cache.
_LEAST: Final = 1 << 16
#: Reads in a term: each has a pointer for every part.
_MOST_READS: Final = 3


def part_rows(kernel: Lowered) -> None:
    """Deal the rows of a kernel's large sums into parts, in place."""
    if any(escaping(stmt) for stmt in kernel.body):
        return  # other names for the same memory: nobody knows what a row touches
    for position, stmt in enumerate(kernel.body):
        others = [s for k, s in enumerate(kernel.body) if k != position]
        private = {b for b in kernel.locals if not any(mentions(s, b) for s in others)}
        rows = _read(stmt, private)
        if rows is not None:
            kernel.body[position] = rows.parted(kernel.locals)


def _read(stmt: Stmt, private: set[Var]) -> "_Rows | None":
    """Return a statement as sums of rows; None if it is something else or too small."""
    loops: list[For] = []
    inner: Any = stmt
    while isinstance(inner, For):
        if inner.kind is not ForKind.SERIAL or inner.annotations or inner.thread_binding:
            return None
        loops.append(inner)
        inner = inner.body
    reduce, *rest = inner.seq if isinstance(inner, SeqStmt) else (inner,)
    if not loops or not isinstance(reduce, Reduce) or len(reduce.loops) != 1:
        return None
    if not all(is_leaf(s) for s in (reduce.init, reduce.body, *rest)) or is_product(stmt):
        return None
    found = accumulations(reduce)
    if found is None or len(found) != 1 or not may_reorder(found[0]):
        return None
    if not isinstance(reduce.init, BufferStore) or not isinstance(reduce.body, BufferStore):
        return None
    rows = _Rows(tuple(loops), reduce, found[0], tuple(rest), frozenset(private))
    return rows if rows.are_worth_it() else None


@dataclass(frozen=True, slots=True)
class _Rows:
    """Loops around one sum of a row and what is done with it.

    Attributes
    ----------
    loops
        Outermost first; the last one goes from row to row.
    reduce, sum
        The sum.
    rest
        Statements behind it.
    private
        Buffers that nothing else uses.
    """

    loops: tuple[For, ...]
    reduce: Reduce
    sum: Accumulation
    rest: tuple[Stmt, ...]
    private: frozenset[Var]

    def are_worth_it(self) -> bool:
        """Say whether the rows are many, lie in a large matrix, and may be done in any order."""
        indices = Indices()
        for loop in self.loops:
            indices.enter(loop.loop_var, indices.of(loop.min), indices.of(loop.extent))
        for head in self.reduce.loops:
            indices.enter(head.var, indices.of(head.min), indices.of(head.extent))
        (head,), rows = self.reduce.loops, self.loops[-1]
        count, length = (as_constant(indices.of(n)) for n in (rows.extent, head.extent))
        if count is None or length is None or count < PARTS:
            return False
        if choose_lane(Nest(self.loops, self.reduce), indices) is not head.var:
            return False
        if any(isinstance(n, Call | Select) for n in nodes_in(self.sum.term)):
            return False  # four formulas need more registers than there are
        reads = loads_in(self.sum.term)
        return (
            len(reads) <= _MOST_READS
            and any(self._is_matrix(indices, load, count * length) for load in reads)
            and self._stays_inside(indices)
            and self._are_independent(indices)
        )

    def _is_matrix(self, indices: Indices, load: TensorLoad, size: int) -> bool:
        """Say whether a read goes along its row, and every row lies somewhere else."""
        offset = flat_offset(indices, load.buffer, load.indices)
        steps = [
            indices.coefficient(offset, var)
            for var in (self.reduce.loops[0].var, self.loops[-1].loop_var)
        ]
        along, down = (None if s is None else as_constant(s[0]) for s in steps)
        return along == 1 and down != 0 and size * load.dtype.bits // 8 >= _LEAST

    def _stays_inside(self, indices: Indices) -> bool:
        """Say whether no subscript can be wrong: which one is found first must not change."""
        return all(
            indices.at_least(index, 0) and indices.below(index, indices.of(size))
            for buffer, subscripts, _ in accesses(self.loops[-1].body)
            for index, size in zip(subscripts, buffer_type(buffer).shape, strict=True)
        )

    def _are_independent(self, indices: Indices) -> bool:
        """Say whether no row reads or writes what another one writes."""
        row = self.loops[-1].loop_var
        elements: dict[Var, tuple[Poly, ...]] = {}
        touched = accesses(self.loops[-1].body)
        written = {buffer for buffer, _, store in touched if store}
        for buffer, subscripts, _ in touched:
            if buffer in written:
                polys = tuple(map(indices.of, subscripts))
                if elements.setdefault(buffer, polys) != polys:
                    return False
        return all(
            any(_is_shifted(indices, poly, row) for poly in polys) or self._is_own(buffer)
            for buffer, polys in elements.items()
        )

    def _is_own(self, buffer: Var) -> bool:
        """Say whether a buffer holds a value of the current row, written before it is read.

        All accesses are to one element; rows that shared it would be told apart by it.
        """
        if buffer not in self.private:
            return False
        first = next(s for s in self._statements() if mentions(s, buffer))
        return (
            isinstance(first, BufferStore)
            and first.buffer is buffer
            and not any(load.buffer is buffer for load in loads_in(first))
        )

    def _statements(self) -> tuple[Stmt, ...]:
        return (self.reduce.init, self.reduce.body, *self.rest)

    def parted(self, room: list[Var]) -> Stmt:
        """Return the loops with the rows in parts; ``room`` receives the buffers that it needs."""
        rows = self.loops[-1]
        dtype = rows.loop_var.dtype
        (count,) = (as_constant(Indices().of(rows.extent)),)
        assert count is not None
        each = count // PARTS
        copies = [self._copy(part, each, room) for part in range(PARTS)]
        reduce = replace(
            self.reduce,
            init=seq([c.init for c in copies]),
            body=seq([c.body for c in copies]),
        )
        done = [stmt for c in copies for stmt in c.rest]
        result: Stmt = replace(rows, extent=IntImm(dtype, each), body=seq([reduce, *done]))
        if each * PARTS != count:
            var = Var(rows.loop_var.name, dtype)
            start = prim_ops.add(rows.min, IntImm(dtype, each * PARTS))
            body = substitute(rows.body, {rows.loop_var: var})
            left = IntImm(dtype, count - each * PARTS)
            result = seq([result, replace(rows, loop_var=var, min=start, extent=left, body=body)])
        for loop in reversed(self.loops[:-1]):
            result = replace(loop, body=result)
        return result

    def _copy(self, part: int, each: int, room: list[Var]) -> "_Copy":
        """Return what is done for the current row of a part."""
        row = self.loops[-1].loop_var
        here: Expr = row
        if part:
            here = prim_ops.add(row, IntImm(row.dtype, part * each))
        target = self.sum.store.buffer
        moved = {
            buffer: Var(f"{buffer.name}_{part}", BufferType((), buffer_type(buffer).dtype))
            for buffer in dict.fromkeys(b for b, _, _ in accesses(self.loops[-1].body))
            if buffer is target or buffer in self._own()
        }
        room.extend(moved.values())
        own = moved[target]
        after = list(self.rest)
        if target not in self._own():
            store = self.sum.store
            after.insert(0, BufferStore(target, TensorLoad(own, ()), store.indices))
            inside = {target: own}
            after_moved = {b: v for b, v in moved.items() if b is not target}
        else:
            inside = after_moved = moved

        def at(stmt: Stmt, buffers: Mapping[Var, Var]) -> Stmt:
            return substitute(_in_others(stmt, buffers), {row: here})

        assert isinstance(self.reduce.body, BufferStore)
        return _Copy(
            at(self.reduce.init, inside),
            at(self.reduce.body, inside),
            [at(stmt, after_moved) for stmt in after],
        )

    def _own(self) -> set[Var]:
        """Return the buffers that hold values of the current row."""
        written = {b for b, _, store in accesses(self.loops[-1].body) if store}
        return {b for b in written if self._is_own(b)}


@dataclass(frozen=True, slots=True)
class _Copy:
    """What is done for one row."""

    init: Stmt
    body: Stmt
    rest: list[Stmt]


def _in_others(stmt: Stmt, buffers: Mapping[Var, Var]) -> Stmt:
    """Return a statement with single values in place of elements of buffers."""

    def visit(node: Any) -> Any:
        if isinstance(node, TensorLoad) and node.buffer in buffers:
            return TensorLoad(buffers[node.buffer], ())
        if isinstance(node, BufferStore) and node.buffer in buffers:
            return BufferStore(buffers[node.buffer], node.value, ())
        return node

    result: Stmt = post_order_map(stmt, visit)
    return result


def _is_shifted(indices: Indices, poly: Poly, var: Var) -> bool:
    parts = indices.coefficient(poly, var)
    return parts is not None and as_constant(parts[0]) == 1
