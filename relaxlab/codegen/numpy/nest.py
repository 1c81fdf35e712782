"""Loop nests in one shape: axes, what is done first, what is done each time.

Blocks and plain loops are read alike: each loop (or block variable that stands for a loop) is an
axis, constant block variables are replaced by their value. Counterpart: ``tvm.s_tir``'s view of
a block and its loops.

Examples
--------
>>> from relaxlab.ir import IntImm, TensorLoad, Var
>>> from relaxlab.tirx import BufferStore, For, ForKind, decl_buffer
>>> x, i = decl_buffer((4,), name="x"), Var("i", "int32")
>>> store = BufferStore(x, TensorLoad(x, (i,)) * 2.0, (i,))
>>> nest = read_nest(For(i, IntImm("int32", 0), IntImm("int32", 4), ForKind.SERIAL, store))
>>> [axis.var.name for axis in nest.axes], len(nest.body)
(['i'], 1)
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from relaxlab.codegen.numpy.space import Axis, variables_of
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.prim import IntImm, TensorLoad
from relaxlab.ir.prim_functor import post_order_visit, substitute
from relaxlab.ir.prim_literals import is_const_int
from relaxlab.ir.sym.pattern import same
from relaxlab.tirx.buffer import buffer_type
from relaxlab.tirx.stmt import (
    Bind,
    BufferStore,
    For,
    IterVarType,
    SBlock,
    SBlockRealize,
    SeqStmt,
    Stmt,
)

__all__ = [
    "Nest",
    "Simple",
    "copied_buffer",
    "loaded_buffers",
    "loads_of",
    "read_nest",
    "stored_buffers",
]

Simple = Bind | BufferStore


@dataclass(frozen=True, slots=True)
class Nest:
    """Statements repeated over a box.

    Attributes
    ----------
    axes
        Outermost first.
    init
        Done before ``body`` at the first iteration of the reduction axes; None if there is none.
    body
        Bindings and stores, in order.
    """

    axes: tuple[Axis, ...]
    init: tuple[Simple, ...] | None
    body: tuple[Simple, ...]

    @property
    def stores(self) -> list[BufferStore]:
        """The stores of the body."""
        return [s for s in self.body if isinstance(s, BufferStore)]


def loads_of(nodes: Iterable[Any]) -> list[TensorLoad]:
    """Return all reads inside some expressions or statements."""
    found: list[TensorLoad] = []
    for node in nodes:
        post_order_visit(node, lambda n: found.append(n) if isinstance(n, TensorLoad) else None)
    return found


def read_nest(stmt: Stmt) -> Nest | None:
    """Return a statement as a nest, or None if it is none."""
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    seen: set[Var] = set()
    for loop in loops:
        # a box: no extent depends on another loop of the nest
        if (variables_of(loop.min) | variables_of(loop.extent)) & seen:
            return None
        seen.add(loop.loop_var)
    if isinstance(stmt, SBlockRealize):
        return _of_block(loops, stmt)
    body = _simple(stmt)
    return None if body is None else _of_loops(loops, body)


def _simple(stmt: Stmt) -> tuple[Simple, ...] | None:
    statements = stmt.seq if isinstance(stmt, SeqStmt) else (stmt,)
    simple = tuple(s for s in statements if isinstance(s, Bind | BufferStore))
    return simple if len(simple) == len(statements) else None


def _axis(loop: For, var: Var, reduce: bool) -> Axis:
    return Axis(var, loop.min, prim_ops.add(loop.min, loop.extent), reduce)


def _of_loops(loops: list[For], body: tuple[Simple, ...]) -> Nest | None:
    """Read loops without a block: an axis that no store moves along is folded."""
    moved: set[Var] = set()
    for statement in body:
        if isinstance(statement, BufferStore):
            for index in statement.indices:
                moved |= variables_of(index)
    axes = tuple(_axis(loop, loop.loop_var, loop.loop_var not in moved) for loop in loops)
    return Nest(axes, None, body)


def _of_block(loops: list[For], realize: SBlockRealize) -> Nest | None:
    block = realize.block
    always = isinstance(realize.predicate, IntImm) and realize.predicate.value
    if not always or block.alloc_buffers or block.match_buffers:
        return None
    body = _simple(block.body)
    init = None if block.init is None else _simple(block.init)
    if body is None or (block.init is not None and init is None):
        return None
    by_var = {loop.loop_var: loop for loop in loops}
    axes: list[Axis] = []
    constant: dict[Var, Expr] = {}
    for iter_var, value in zip(block.iter_vars, realize.iter_values, strict=True):
        reduce = iter_var.iter_type == IterVarType.COMM_REDUCE
        if isinstance(value, Var) and value in by_var:
            axes.append(_axis(by_var.pop(value), iter_var.var, reduce))
        elif not variables_of(value) & {loop.loop_var for loop in loops}:
            constant[iter_var.var] = value
        else:
            return None
    if by_var or not _matching(block, realize, axes):
        return None
    if constant:
        body = tuple(substitute(s, constant) for s in body)
        init = None if init is None else tuple(substitute(s, constant) for s in init)
    return Nest(tuple(axes), init, body)


def _matching(block: SBlock, realize: SBlockRealize, axes: list[Axis]) -> bool:
    """Whether the first iteration of every reduction loop is that of its block variable."""
    lows = {axis.var: axis.low for axis in axes if axis.reduce}
    for iter_var in block.iter_vars:
        low = lows.get(iter_var.var)
        if low is None:
            continue
        start = iter_var.dom.min
        if not (isinstance(low, IntImm) and isinstance(start, IntImm)) or low.value != start.value:
            return False
    return True


def stored_buffers(stmt: Any) -> list[Var]:
    """Return the buffers that a statement writes, once per store."""
    found: list[Var] = []
    post_order_visit(stmt, lambda n: found.append(n.buffer) if isinstance(n, BufferStore) else None)
    return found


def loaded_buffers(stmt: Any) -> list[Var]:
    """Return the buffers that a statement reads, once per read."""
    found: list[Var] = []
    post_order_visit(stmt, lambda n: found.append(n.buffer) if isinstance(n, TensorLoad) else None)
    return found


def copied_buffer(stmt: Stmt) -> tuple[Var, Var] | None:
    """Return (source, target) of a statement that copies one buffer to another, as it is."""
    nest = read_nest(stmt)
    if nest is None or len(nest.body) != 1 or not nest.stores or nest.init is not None:
        return None
    (store,) = nest.stores
    value = store.value
    rank = len(nest.axes)
    if not isinstance(value, TensorLoad) or not rank == len(store.indices) == len(value.indices):
        return None
    variables = [axis.var for axis in nest.axes]
    target, source = buffer_type(store.buffer), buffer_type(value.buffer)
    whole = all(
        index is var and other is var and is_const_int(axis.low, 0) and same(axis.high, extent)
        for index, other, var, axis, extent in zip(
            store.indices, value.indices, variables, nest.axes, target.shape, strict=True
        )
    )
    return (value.buffer, store.buffer) if whole and target.dtype is source.dtype else None
