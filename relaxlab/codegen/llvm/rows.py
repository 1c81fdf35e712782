"""Neighbouring loops over the same rows become one: the third step towards machine code.

A softmax is four loops over rows. Done row by row, its intermediate results stay in the
first-level cache, and their buffers shrink to one row. Loops are put together when everything one
of them reads of the other belongs to the same iteration, and when lanes run along another loop
anyway. Counterpart: ``compute_at`` of a schedule.

Examples
--------
>>> from relaxlab import te, topi
>>> from relaxlab.codegen.llvm.inline import inline
>>> from relaxlab.codegen.llvm.lower import lower
>>> x = te.placeholder((32, 64), "float32", "x")
>>> kernel = lower(te.create_prim_func([x, topi.nn.softmax(x, axis=-1)]))
>>> inline(kernel)
>>> len(kernel.body), [len(b.ty.shape) for b in kernel.locals]
(4, [1, 2, 1])
>>> fuse_rows(kernel)
>>> len(kernel.body), [len(b.ty.shape) for b in kernel.locals]
(1, [0, 1, 0])
"""

from dataclasses import replace
from typing import Any

from relaxlab.codegen.llvm.indices import Indices, added
from relaxlab.codegen.llvm.lower import Lowered, Reduce
from relaxlab.codegen.llvm.matmul import is_product
from relaxlab.codegen.llvm.nests import accesses, choose_lane, read_nest, stores_in
from relaxlab.codegen.llvm.walk import call_name, mentions, nodes_in, statements_in
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.node import Node
from relaxlab.ir.prim import TensorLoad
from relaxlab.ir.prim_functor import post_order_map, substitute
from relaxlab.tirx import scalar
from relaxlab.tirx.buffer import buffer_type
from relaxlab.tirx.stmt import BufferStore, For, IfThenElse, SeqStmt, Stmt, seq

__all__ = ["fuse_rows"]


def fuse_rows(kernel: Lowered) -> None:
    """Put loops of a kernel together, and shrink the buffers between them, in place."""
    kernel.body[:] = _fused(kernel.body)
    for buffer in list(kernel.locals):
        _shrink(kernel, buffer)


def _fused(statements: list[Stmt]) -> list[Stmt]:
    result: list[Stmt] = []
    for stmt in statements:
        merged = _together(result[-1], stmt) if result else None
        if merged is None:
            result.append(stmt)
        else:
            result[-1] = merged
    return result


def _flat(stmt: Stmt) -> list[Stmt]:
    return list(stmt.seq) if isinstance(stmt, SeqStmt) else [stmt]


def _together(first: Any, second: Any) -> Stmt | None:
    if not (isinstance(first, For) and isinstance(second, For)):
        return None
    indices = Indices()
    for a, b in ((first.min, second.min), (first.extent, second.extent)):
        if added(indices.of(a), indices.of(b), -1):
            return None
    if not (_is_orderly(first) and _is_orderly(second)):
        return None
    if not _by_row(first, second, indices):
        return None
    lanes = (_lane(first), _lane(second))
    rows = (first.loop_var, second.loop_var)
    alone = tuple(_is_small(loop) for loop in (first, second))
    # the rows must not be what the lanes run along, except where there is next to nothing to do
    if not all(
        lane is not row or small for lane, row, small in zip(lanes, rows, alone, strict=True)
    ):
        return None
    if all(alone) or any(is_product(loop) for loop in (first, second)):
        return None
    moved = substitute(second.body, {second.loop_var: first.loop_var})
    return replace(first, body=seq(_fused([*_flat(first.body), *_flat(moved)])))


def _is_small(loop: For) -> bool:
    """Say whether a loop has no loop inside."""
    return not any(isinstance(n, For | Reduce) for n in statements_in(loop.body))


def _is_orderly(stmt: Node) -> bool:
    """Say whether a statement only loops, stores and chooses."""
    kinds = For | Reduce | SeqStmt | BufferStore | IfThenElse
    for node in nodes_in(stmt):
        if isinstance(node, Stmt) and not isinstance(node, kinds):
            return False
        if isinstance(node, Call):
            name = call_name(node)
            if name != "if_then_else" and not scalar.is_known_call(name):
                return False
    return True


def _lane(loop: For) -> Var | None:
    nest = read_nest(loop)
    return None if nest is None else choose_lane(nest, Indices())


def _by_row(first: For, second: For, indices: Indices) -> bool:
    """Say whether what one loop writes and the other touches belongs to the same iteration."""
    written = {s.buffer for s in (*stores_in(first), *stores_in(second))}
    dimension: dict[Var, set[int]] = {}
    for loop in (first, second):
        row = indices.of(loop.loop_var)
        for buffer, subscripts, _ in accesses(loop.body):
            if buffer not in written:
                continue
            own = {k for k, index in enumerate(subscripts) if indices.of(index) == row}
            dimension[buffer] = dimension[buffer] & own if buffer in dimension else own
    touched = [{b for b, _, _ in accesses(loop.body)} for loop in (first, second)]
    shared = touched[0] & touched[1] & written
    return all(dimension.get(buffer) for buffer in shared)


# ------------------------------------------------------------------ smaller buffers


def _shrink(kernel: Lowered, buffer: Var) -> None:
    """Drop the dimensions of a buffer that is used inside the loops over them only."""
    places = [k for k, stmt in enumerate(kernel.body) if mentions(stmt, buffer)]
    if len(places) != 1:
        return
    stmt: Any = kernel.body[places[0]]
    indices = Indices()
    drop: set[int] = set()
    rows: set[Var] = set()
    while isinstance(stmt, For):
        subscripts = [s for b, s, _ in accesses(stmt) if b is buffer]
        row = indices.of(stmt.loop_var)
        common = [
            k
            for k in range(len(buffer_type(buffer).shape))
            if all(indices.of(s[k]) == row for s in subscripts)
        ]
        if not common:
            break
        drop.add(common[0])
        rows.add(stmt.loop_var)
        inner = [s for s in _flat(stmt.body) if mentions(s, buffer)]
        stmt = inner[0] if len(inner) == 1 else None
    if not drop:
        return
    ty = buffer_type(buffer)
    kept = [k for k in range(len(ty.shape)) if k not in drop]
    small = Var(buffer.name, replace(ty, shape=tuple(ty.shape[k] for k in kept)))

    def fewer(subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(subscripts[k] for k in kept)

    def visit(node: Any) -> Any:
        if isinstance(node, TensorLoad) and node.buffer is buffer:
            return TensorLoad(small, fewer(node.indices))
        if isinstance(node, BufferStore) and node.buffer is buffer:
            return BufferStore(small, node.value, fewer(node.indices))
        return node

    kernel.body[places[0]] = post_order_map(kernel.body[places[0]], visit)
    kernel.locals[kernel.locals.index(buffer)] = small
    kernel.rows[small] = rows
