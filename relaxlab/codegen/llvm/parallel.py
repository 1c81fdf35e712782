"""Which loops several threads may share, and how much work there is in one.

A loop may be shared when every element that it writes belongs to one of its iterations, and when
what it needs in between is each iteration's own. That is shown from the subscripts; how the loop
is marked does not count, since ``T.parallel`` also stands on loops that write one element twice.
No sum is ever divided, so results are the same to the last bit, however the iterations are dealt
out. Counterpart: TVM believes the mark.

Examples
--------
>>> from relaxlab import te, topi
>>> from relaxlab.codegen.llvm.lower import lower
>>> x = te.placeholder((64, 8), "float32", "x")
>>> (rows,) = lower(te.create_prim_func([x, topi.cumsum(x, axis=1)])).body
>>> may_be_shared(rows, rows.body, set(), Indices())
True
>>> (columns,) = lower(te.create_prim_func([x, topi.sum(x, axis=0)])).body
>>> may_be_shared(columns, columns.body, set(), Indices())
True
>>> cost_of(columns, Indices(), set())
{(): 2608}
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from relaxlab.codegen.llvm.indices import (
    Indices,
    Poly,
    added,
    as_constant,
    constant,
    multiplied,
    negated,
)
from relaxlab.codegen.llvm.inline import cost_of_value
from relaxlab.codegen.llvm.lower import Lowered, Reduce
from relaxlab.codegen.llvm.nests import accesses, flat_offset, stores_in
from relaxlab.codegen.llvm.walk import call_name, mentions, nodes_in, statements_in
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.node import Node
from relaxlab.ir.prim import IntImm
from relaxlab.tirx import scalar
from relaxlab.tirx.buffer import buffer_type
from relaxlab.tirx.stmt import (
    AllocBuffer,
    Bind,
    BufferStore,
    DeclBuffer,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
)

__all__ = ["LEAST", "SCALAR", "cost_of", "may_be_shared", "own_buffers"]

#: Cost from which a loop is worth waking another thread for.
LEAST: Final = 6_000_000
#: How many times longer a statement takes that is not done in lanes.
SCALAR: Final = 8
#: Iterations of a loop whose extent is not known before it runs.
_GUESS: Final = 8
#: Cost of writing an element: a long loop writes to memory, not to a cache.
_STORE: Final = 6

_KINDS: Final = (
    For,
    Reduce,
    SeqStmt,
    BufferStore,
    IfThenElse,
    Bind,
    AllocBuffer,
    DeclBuffer,
)


def own_buffers(kernel: Lowered, stmt: Stmt) -> set[Var]:
    """Return the buffers that each iteration of an outermost loop has for itself.

    They are allocated inside the loop, or were indexed with its variable before they became
    smaller, or have one element, which every iteration writes before it reads it.
    """
    if not isinstance(stmt, For):
        return set()
    inside = {n.buffer for n in statements_in(stmt) if isinstance(n, AllocBuffer)}
    inside |= {
        n.buffer for n in statements_in(stmt) if isinstance(n, DeclBuffer) and n.data is None
    }
    smaller = {b for b, rows in kernel.rows.items() if stmt.loop_var in rows}
    single = {b for b in kernel.locals if all(_is_one(d) for d in buffer_type(b).shape)}
    elsewhere = [s for s in kernel.body if s is not stmt]
    return inside | {
        b
        for b in smaller | single
        if mentions(stmt, b)
        and not any(mentions(s, b) for s in elsewhere)
        and (b in smaller or _is_first_written(stmt.body, b))
    }


def _is_one(size: Expr) -> bool:
    return isinstance(size, IntImm) and size.value == 1


def _is_first_written(stmt: Any, buffer: Var) -> bool | None:
    """Say whether a buffer is surely written before it is read; None if it does not occur."""
    if not mentions(stmt, buffer):
        return None
    match stmt:
        case SeqStmt(seq=statements):
            found = (_is_first_written(s, buffer) for s in statements)
            return next((f for f in found if f is not None), None)
        case BufferStore(value=value, indices=indices):
            return not any(mentions(e, buffer) for e in (value, *indices))
        case For(extent=extent, body=body):
            return _runs(extent) and bool(_is_first_written(body, buffer))
        case Reduce(loops=heads, init=init, body=body):
            runs = all(_runs(h.extent) for h in heads)
            return runs and bool(_is_first_written(SeqStmt((init, body)), buffer))
        case _:
            return False


def _runs(extent: Expr) -> bool:
    return isinstance(extent, IntImm) and extent.value > 0


def may_be_shared(loop: For, stmt: Node, own: set[Var], indices: Indices) -> bool:
    """Say whether threads may share the iterations of a loop.

    Parameters
    ----------
    loop
        The loop.
    stmt
        What it does, with all other loops.
    own
        Buffers that each iteration has for itself.
    indices
        The subscripts.
    """
    if not _is_orderly(stmt):
        return False
    indices.enter(loop.loop_var, indices.of(loop.min), indices.of(loop.extent))
    inner: set[Var] = {loop.loop_var}
    for node in statements_in(stmt):
        if isinstance(node, For) and node is not loop:
            indices.enter(node.loop_var, indices.of(node.min), indices.of(node.extent))
            inner.add(node.loop_var)
        elif isinstance(node, Reduce):
            for head in node.loops:
                indices.enter(head.var, indices.of(head.min), indices.of(head.extent))
                inner.add(head.var)
        elif isinstance(node, Bind):
            inner.add(node.var)
    written = {s.buffer for s in stores_in(stmt)} - own
    places: dict[Var, list[tuple[Expr, ...]]] = {b: [] for b in written}
    for buffer, subscripts, _ in accesses(stmt):
        if buffer in written:
            places[buffer].append(subscripts)
    return all(_is_divided(loop, buffer, found, inner, indices) for buffer, found in places.items())


def _is_orderly(stmt: Node) -> bool:
    """Say whether a statement only loops, stores and chooses."""
    for node in nodes_in(stmt):
        if isinstance(node, Stmt) and not isinstance(node, _KINDS):
            return False
        if isinstance(node, DeclBuffer) and node.data is not None:
            return False
        if isinstance(node, Call):
            name = call_name(node)
            if name != "if_then_else" and not scalar.is_known_call(name):
                return False
    return True


def _is_divided(
    loop: For,
    buffer: Var,
    places: Sequence[tuple[Expr, ...]],
    inner: set[Var],
    indices: Indices,
) -> bool:
    """Say whether no two iterations touch one element of a buffer."""
    for axis in range(len(places[0])):
        if _is_apart(loop, [indices.of(p[axis]) for p in places], inner, indices):
            return True
    # as an expression once more, so that quotients and remainders come together
    offsets = (indices.expression(flat_offset(indices, buffer, p)) for p in places)
    return _is_apart(loop, [indices.of(o) for o in offsets], inner, indices)


def _is_apart(loop: For, polys: Sequence[Poly], inner: set[Var], indices: Indices) -> bool:
    """Say whether iterations share none of the places that polynomials name.

    All must be ``c * var + fixed + rest``. Either all have ``0 <= fixed + rest - base < c`` for
    one base; or each has ``0 <= rest < c``, and what is fixed lies so far apart that no iteration
    reaches across.
    """
    common: Poly | None = None
    places: list[tuple[Poly, Poly]] = []
    for poly in polys:
        parts = indices.coefficient(poly, loop.loop_var)
        if parts is None or not parts[0] or (common is not None and parts[0] != common):
            return False
        common, other = parts
        fixed: Poly = {}
        rest: Poly = {}
        for product, count in other.items():
            (rest if _moves({product: count}, inner, indices) else fixed)[product] = count
        if (fixed, rest) not in places:
            places.append((fixed, rest))
    if common is None or _moves(common, inner, indices):
        return False
    size = as_constant(common)
    width = common if size is None else constant(abs(size))

    def fits(rest: Poly) -> bool:
        if not rest and size is not None:
            return True
        return indices.is_nonnegative(rest) and indices.is_nonnegative(
            added(width, rest, -1), strict=True
        )

    bases: list[Poly] = []
    for fixed, _ in places:
        if fixed not in bases:
            bases.append(fixed)
    for base in bases:
        if all(fits(added(added(fixed, rest), base, -1)) for fixed, rest in places):
            return True
    reach = multiplied(width, indices.of(loop.extent))
    gaps = [added(a, b, -1) for k, a in enumerate(bases) for b in bases[:k]]
    return all(fits(rest) for _, rest in places) and all(
        indices.is_nonnegative(added(gap, reach, -1))
        or indices.is_nonnegative(added(negated(gap), reach, -1))
        for gap in gaps
    )


def _moves(poly: Poly, inner: set[Var], indices: Indices) -> bool:
    """Say whether a polynomial is not the same throughout the loop."""
    return indices.reads(poly) or bool(indices.variables(poly) & inner)


def cost_of(stmt: Any, indices: Indices, known: AbstractSet[Var], *, store: int = _STORE) -> Poly:
    """Return about how long a statement takes, in a unit of which a nanosecond has 150 or so.

    Parameters
    ----------
    stmt
        The statement.
    indices
        Its subscripts.
    known
        Variables that the cost may depend on.
    store
        What writing an element costs.
    """

    def of(inner: Stmt, store: int = store) -> Poly:
        return cost_of(inner, indices, known, store=store)

    def times(extent: Expr) -> Poly:
        poly = indices.of(extent)
        if indices.reads(poly) or not indices.variables(poly) <= known:
            return constant(_GUESS)
        return poly

    match stmt:
        case SeqStmt(seq=statements):
            total: Poly = {}
            for inner in statements:
                total = added(total, of(inner))
            return total
        case For(extent=extent, body=body):
            return multiplied(times(extent), of(body))
        case Reduce(loops=heads, init=init, body=body):
            # what is accumulated stays in registers
            total = of(body, store=0)
            for head in heads:
                total = multiplied(times(head.extent), total)
            return added(total, of(init))
        case BufferStore(value=value):
            return constant(store + cost_of_value(value))
        case Bind(value=value):
            return constant(1 + cost_of_value(value))
        case IfThenElse(condition=condition, then_case=yes, else_case=no):
            total = added(constant(cost_of_value(condition)), of(yes))
            return total if no is None else added(total, of(no))
        case _:
            return constant(1)
