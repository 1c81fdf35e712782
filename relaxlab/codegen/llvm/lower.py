"""From blocks to loops: the first step towards machine code.

Blocks disappear: their variables become what they are bound to, a condition becomes an ``if``,
and the first-time part of a reduction moves in front of the reduction's loops, which then stand
in a :class:`Reduce`. Loops that run once disappear too. Counterpart: TVM's
``LowerInitBlock``, ``ConvertBlocksToOpaque`` and their neighbours.

Examples
--------
>>> from relaxlab import te
>>> x = te.placeholder((4, 8), "float32", "x")
>>> k = te.reduce_axis((0, 8), "k")
>>> f = te.create_prim_func([x, te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="s")])
>>> (rows,) = lower(f).body
>>> type(rows.body).__name__, rows.body.loops[0].var.name
('Reduce', 'k')
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from relaxlab.codegen.llvm.indices import Indices, added, as_constant
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.node import DEFINES, Node
from relaxlab.ir.prim import EQ, IntImm, TensorLoad
from relaxlab.ir.prim_functor import post_order_map, post_order_visit, substitute
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx.buffer import buffer_type
from relaxlab.tirx.function import PrimFunc
from relaxlab.tirx.stmt import (
    AllocBuffer,
    AttrStmt,
    Bind,
    BufferStore,
    For,
    IfThenElse,
    IterVarType,
    MatchBufferRegion,
    SBlock,
    SBlockRealize,
    SeqStmt,
    Stmt,
    While,
    seq,
)

__all__ = ["Lowered", "Reduce", "ReduceLoop", "lower"]

_TRUE: Final = IntImm(DataType("bool"), 1)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class ReduceLoop(Node):
    """One loop of a reduction, over ``min <= var < min + extent``."""

    var: Var = field(metadata=DEFINES)
    min: Expr
    extent: Expr


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Reduce(Stmt):
    """Stores that start an accumulation, then loops around a body that continues it.

    The first part is left out when a loop does not run, as the definition has it.
    """

    loops: tuple[ReduceLoop, ...]
    init: Stmt
    body: Stmt


@dataclass(slots=True)
class Lowered:
    """A kernel without blocks.

    Attributes
    ----------
    body
        Statements in order.
    locals
        Buffers that live as long as the kernel runs, besides its parameters.
    rows
        Of a local that became smaller: the loops whose every iteration has one of its own.
    """

    body: list[Stmt]
    locals: list[Var]
    rows: dict[Var, set[Var]] = field(default_factory=dict)


def lower(func: PrimFunc) -> Lowered:
    """Return a kernel without blocks."""
    lowering = _Lowering()
    body = func.body
    # the root block's buffers live as long as the kernel
    if isinstance(body, SBlockRealize) and not body.block.iter_vars and body.block.init is None:
        lowering.locals.extend(body.block.alloc_buffers)
        body = SBlockRealize((), body.predicate, replace(body.block, alloc_buffers=()))
    return Lowered(list(_flat(lowering.statement(body, {}))), lowering.locals)


def _flat(stmt: Stmt) -> Iterable[Stmt]:
    return stmt.seq if isinstance(stmt, SeqStmt) else (stmt,)


class _Lowering:
    def __init__(self) -> None:
        self.locals: list[Var] = []
        self.indices = Indices()

    def statement(self, stmt: Any, env: dict[Var, Expr]) -> Stmt:
        """Return a statement without blocks, with block variables replaced."""
        match stmt:
            case SeqStmt(seq=statements):
                return seq([self.statement(s, env) for s in statements])
            case For():
                return self._loops(stmt, env)
            case SBlockRealize():
                return self._block(stmt, env)
            case SBlock():
                return self._block(SBlockRealize((), _TRUE, stmt), env)
            case IfThenElse(condition=condition, then_case=then_case, else_case=else_case):
                return IfThenElse(
                    substitute(condition, env),
                    self.statement(then_case, env),
                    None if else_case is None else self.statement(else_case, env),
                )
            case While(condition=condition, body=body):
                return While(substitute(condition, env), self.statement(body, env))
            case AttrStmt(body=body):
                return self.statement(body, env)
            case _:
                changed: Stmt = substitute(stmt, env)
                return changed

    def _loops(self, loop: For, env: dict[Var, Expr]) -> Stmt:
        chain: list[For] = []
        current: Any = loop
        env = dict(env)
        while isinstance(current, For):
            low, extent = substitute(current.min, env), substitute(current.extent, env)
            if isinstance(extent, IntImm) and extent.value == 1:
                env[current.loop_var] = low
            else:
                chain.append(replace(current, min=low, extent=extent))
            current = current.body
        if isinstance(current, SBlockRealize) and current.block.init is not None:
            reduction = self._reduction(chain, current, env)
            if reduction is not None:
                return reduction
        body = self.statement(current, env)
        for outer in reversed(chain):
            body = replace(outer, body=body)
        return body

    def _reduction(
        self, chain: list[For], realize: SBlockRealize, env: dict[Var, Expr]
    ) -> Stmt | None:
        """Return loops around a :class:`Reduce`, if the reduction loops are the innermost ones."""
        if not (isinstance(realize.predicate, IntImm) and realize.predicate.value):
            return None
        given = [substitute(v, env) for v in realize.iter_values]
        spatial: set[Var] = set()
        reducing: list[tuple[Expr, Expr]] = []
        for iter_var, value in zip(realize.block.iter_vars, given, strict=True):
            if iter_var.iter_type == IterVarType.COMM_REDUCE:
                reducing.append((value, iter_var.dom.min))
            else:
                spatial.update(self.indices.variables(self.indices.of(value)))
        split = next((k for k, f in enumerate(chain) if f.loop_var not in spatial), len(chain))
        outer, inner = chain[:split], chain[split:]
        if any(f.loop_var in spatial for f in inner):
            return None
        start = {f.loop_var: f.min for f in inner}
        for value, low in reducing:
            poly = self.indices.of(value)
            for f in inner:
                parts = self.indices.coefficient(poly, f.loop_var)
                step = None if parts is None else as_constant(parts[0])
                if step is None or step < 0:
                    return None
            if added(self.indices.of(substitute(value, start)), self.indices.of(low), -1):
                return None
        used = [self.indices.of(value) for value, _ in reducing]
        if any(not any(self.indices.depends(p, f.loop_var) for p in used) for f in inner):
            return None
        block = realize.block
        inner_env = self._bound(block, given, env)
        init = self._inside(block, inner_env, first=True)
        body = self._inside(replace(block, init=None), inner_env)
        if init is None or body is None:
            return None
        heads = tuple(ReduceLoop(f.loop_var, f.min, f.extent) for f in inner)
        result: Stmt = Reduce(heads, init, body) if heads else seq([init, body])
        for f in reversed(outer):
            result = replace(f, body=result)
        return result

    def _bound(self, block: SBlock, given: list[Expr], env: dict[Var, Expr]) -> dict[Var, Expr]:
        inner = dict(env)
        for iter_var, value in zip(block.iter_vars, given, strict=True):
            inner[iter_var.var] = value
        return inner

    def _inside(self, block: SBlock, env: dict[Var, Expr], *, first: bool = False) -> Stmt | None:
        """Return the body (or the first-time part) of a block without buffers of its own."""
        if block.alloc_buffers or block.match_buffers:
            return None
        part = block.init if first else block.body
        return None if part is None else self.statement(part, env)

    def _block(self, realize: SBlockRealize, env: dict[Var, Expr]) -> Stmt:
        block = realize.block
        given = [substitute(v, env) for v in realize.iter_values]
        before: list[Stmt] = []
        inner = dict(env)
        for iter_var, value in zip(block.iter_vars, given, strict=True):
            if _reads(value):
                before.append(Bind(iter_var.var, value))
            else:
                inner[iter_var.var] = value
        inside: list[Stmt] = [AllocBuffer(b) for b in block.alloc_buffers]
        if block.init is not None:
            first: Expr = _TRUE
            for iter_var, value in zip(block.iter_vars, given, strict=True):
                low = substitute(iter_var.dom.min, env)
                if iter_var.iter_type != IterVarType.COMM_REDUCE:
                    continue
                if added(self.indices.of(value), self.indices.of(low), -1):
                    now = inner.get(iter_var.var, iter_var.var)
                    first = prim_ops.logical_and(first, EQ(*prim_ops.match_dtypes(now, low)))
            start = self.statement(block.init, inner)
            inside.append(start if first is _TRUE else IfThenElse(first, start))
        inside.append(self.statement(block.body, inner))
        body = seq(inside)
        if block.match_buffers:
            body = _without_views(body, block.match_buffers, inner)
        predicate = substitute(realize.predicate, env)
        if not (isinstance(predicate, IntImm) and predicate.value):
            body = IfThenElse(predicate, body)
        return seq([*before, body]) if before else body


def _reads(expr: Expr) -> bool:
    found: list[Any] = []
    post_order_visit(expr, lambda n: found.append(n) if isinstance(n, TensorLoad) else None)
    return bool(found)


def _without_views(
    body: Stmt, regions: tuple[MatchBufferRegion, ...], env: dict[Var, Expr]
) -> Stmt:
    """Replace buffers that stand for a region of another by that other buffer."""
    sizes: dict[Var, Expr] = {}
    views: dict[Var, tuple[Var, list[Expr], int]] = {}
    for region in regions:
        source = region.source
        starts = [substitute(r.min, env) for r in source.region]
        shape = buffer_type(region.buffer).shape
        skipped = len(starts) - len(shape)
        for dim, r in zip(shape, source.region[skipped:], strict=True):
            if isinstance(dim, Var):
                sizes.setdefault(dim, substitute(r.extent, env))
        views[region.buffer] = (source.buffer, starts, skipped)

    def moved(buffer: Var, indices: tuple[Expr, ...]) -> tuple[Var, tuple[Expr, ...]]:
        source, starts, skipped = views[buffer]
        shifted = [prim_ops.add(s, i) for s, i in zip(starts[skipped:], indices, strict=True)]
        return source, (*starts[:skipped], *shifted)

    def visit(node: Any) -> Any:
        if isinstance(node, TensorLoad) and node.buffer in views:
            return TensorLoad(*moved(node.buffer, node.indices))
        if isinstance(node, BufferStore) and node.buffer in views:
            buffer, indices = moved(node.buffer, node.indices)
            return BufferStore(buffer, node.value, indices)
        return node

    return substitute(post_order_map(body, visit), sizes)
