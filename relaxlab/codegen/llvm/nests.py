"""Loop nests: what they touch, how they accumulate, and which loop is done in lanes.

The loop for the lanes is the one along which most accesses are neighbours in memory. It may be
any loop whose iterations do not depend on each other, or, for a sum, product or extremum, a loop
of the reduction. Counterpart: the loop vectorizer of LLVM, and a scheduler's choice of axes.

Examples
--------
>>> from relaxlab import te
>>> from relaxlab.codegen.llvm.lower import lower
>>> from relaxlab.codegen.llvm.indices import Indices
>>> x = te.placeholder((4, 8), "float32", "x")
>>> y = te.compute((4, 8), lambda i, j: x[i, j] * 2.0, name="y")
>>> nest = read_nest(lower(te.create_prim_func([x, y])).body[0])
>>> choose_lane(nest, Indices()).name
'j'
"""

from dataclasses import dataclass
from typing import Any, Final

from relaxlab.codegen.llvm.host import Host
from relaxlab.codegen.llvm.indices import Indices, Poly, added, as_constant, constant, multiplied
from relaxlab.codegen.llvm.lower import Reduce, ReduceLoop
from relaxlab.codegen.llvm.walk import call_name, loads_in, nodes_in, statements_in
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.node import Node
from relaxlab.ir.prim import Add, And, Cast, Max, Min, Mul, Or, TensorLoad
from relaxlab.ir.prim_functor import substitute
from relaxlab.ir.type import PrimType
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx import scalar
from relaxlab.tirx.buffer import buffer_type
from relaxlab.tirx.stmt import Bind, BufferStore, For, IfThenElse, SeqStmt, Stmt

__all__ = [
    "Accumulation",
    "Nest",
    "accesses",
    "accumulations",
    "choose_lane",
    "flat_offset",
    "is_leaf",
    "lanes_for",
    "may_reorder",
    "read_nest",
    "stores_in",
]

_COMBINE: Final = (Add, Mul, Max, Min, And, Or)


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops right inside each other around simple statements or one reduction.

    Attributes
    ----------
    loops
        Outermost first.
    inner
        A :class:`Reduce`, or stores and what belongs to them.
    """

    loops: tuple[For, ...]
    inner: Stmt

    @property
    def reduction(self) -> tuple[ReduceLoop, ...]:
        """The loops of the reduction, if there is one."""
        return self.inner.loops if isinstance(self.inner, Reduce) else ()

    @property
    def work(self) -> Stmt:
        """What is done most often."""
        return self.inner.body if isinstance(self.inner, Reduce) else self.inner


@dataclass(frozen=True, slots=True)
class Accumulation:
    """``buffer[indices] = combine(buffer[indices], term)``."""

    store: BufferStore
    combine: str
    term: Expr
    dtype: DataType


def read_nest(stmt: Any) -> Nest | None:
    """Return a statement as a nest, or None if it is more complicated."""
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    parts = (stmt.init, stmt.body) if isinstance(stmt, Reduce) else (stmt,)
    if not all(is_leaf(part) for part in parts):
        return None
    seen: set[Var] = set()
    for loop in loops:
        # a box: no extent depends on another loop of the nest
        bounds = (*nodes_in(loop.min), *nodes_in(loop.extent))
        if any(isinstance(n, Var) and n in seen for n in bounds):
            return None
        seen.add(loop.loop_var)
    return Nest(tuple(loops), stmt)


def is_leaf(stmt: Any) -> bool:
    """Say whether a statement only computes and stores elements."""
    match stmt:
        case SeqStmt(seq=statements):
            return all(is_leaf(s) for s in statements)
        case BufferStore(buffer=buffer, value=value, indices=indices):
            return buffer_type(buffer).dtype.lanes == 1 and all(
                _is_simple(e) for e in (value, *indices)
            )
        case Bind(value=value):
            return _is_simple(value)
        case IfThenElse(condition=condition, then_case=yes, else_case=no):
            return _is_simple(condition) and is_leaf(yes) and (no is None or is_leaf(no))
        case _:
            return False


def _is_simple(expr: Expr) -> bool:
    for node in nodes_in(expr):
        if isinstance(node, Call):
            name = call_name(node)
            if name != "if_then_else" and not scalar.is_known_call(name):
                return False
        elif isinstance(node, TensorLoad) and buffer_type(node.buffer).dtype.lanes != 1:
            return False
        dtype = getattr(getattr(node, "ty", None), "dtype", None)
        if isinstance(dtype, DataType) and dtype.lanes != 1:
            return False
    return True


def stores_in(stmt: Node) -> list[BufferStore]:
    """Return all stores inside a statement, in order."""
    return [n for n in statements_in(stmt) if isinstance(n, BufferStore)]


def accesses(stmt: Node) -> list[tuple[Var, tuple[Expr, ...], bool]]:
    """Return (buffer, subscripts, is it a store) of every access inside a statement."""
    return [
        (node.buffer, node.indices, isinstance(node, BufferStore))
        for node in nodes_in(stmt)
        if isinstance(node, TensorLoad | BufferStore)
    ]


def flat_offset(indices: Indices, buffer: Var, subscripts: tuple[Expr, ...]) -> Poly:
    """Return the distance from a dense buffer's start, in elements."""
    total: Poly = {}
    stride = constant(1)
    for index, size in zip(reversed(subscripts), reversed(buffer_type(buffer).shape), strict=True):
        total = added(total, multiplied(indices.of(index), stride))
        stride = multiplied(stride, indices.of(size))
    return total


def accumulations(reduce: Reduce) -> list[Accumulation] | None:
    """Return how a reduction accumulates, if each store combines its element with a new term."""
    statements = reduce.body.seq if isinstance(reduce.body, SeqStmt) else (reduce.body,)
    bound: dict[Var, Expr] = {}
    for stmt in statements:
        if isinstance(stmt, Bind):
            bound[stmt.var] = substitute(stmt.value, bound)
        elif not isinstance(stmt, BufferStore):
            return None
    stores = [s for s in statements if isinstance(s, BufferStore)]
    targets = {s.buffer for s in stores}
    if len(targets) != len(stores):
        return None
    found: list[Accumulation] = []
    indices = Indices()
    for store in stores:
        value: Any = substitute(store.value, bound)
        dtype = buffer_type(store.buffer).dtype
        if not isinstance(value, _COMBINE) or value.a.dtype is not dtype:
            return None
        if _is_same_element(indices, value.a, store):
            term = value.b
        elif _is_same_element(indices, value.b, store) and not isinstance(value, Max | Min):
            term = value.a
        else:
            return None
        if any(load.buffer in targets for load in loads_in(term)):
            return None
        found.append(Accumulation(store, type(value).__name__, term, dtype))
    return found


def _is_same_element(indices: Indices, expr: Any, store: BufferStore) -> bool:
    return (
        isinstance(expr, TensorLoad)
        and expr.buffer is store.buffer
        and all(
            indices.of(a) == indices.of(b) for a, b in zip(expr.indices, store.indices, strict=True)
        )
    )


def may_reorder(accumulation: Accumulation) -> bool:
    """Say whether terms may be combined in any order.

    Sums of 16-bit floats may not: they round too much. Products of floats may not: a partial one
    may leave the range that the whole one stays in.
    """
    if not accumulation.dtype.is_float:
        return True
    if accumulation.combine == "Add":
        return accumulation.dtype.bits > 16
    return accumulation.combine != "Mul"


def lanes_for(stmt: Node, host: Host, registers: int) -> int:
    """Return how many lanes to do a statement in.

    Parameters
    ----------
    stmt
        What is done in every lane.
    host
        The processor.
    registers
        How many of them the widest element that is read or written shall fill. What is wider in
        between, bytes that are added up as float64 say, fills no more than four of them, since
        LLVM takes very long over vectors of many registers.
    """
    stored = max([8, *(_register_bits(buffer_type(b).dtype) for b, _, _ in accesses(stmt))])
    between = (
        n.dtype for n in nodes_in(stmt) if isinstance(n, Cast | Call) and isinstance(n.ty, PrimType)
    )
    widest = max([stored, *(_register_bits(dtype) for dtype in between)])
    return min(registers * host.lanes(stored), max(registers, 4) * host.lanes(widest))


def _register_bits(dtype: DataType) -> int:
    # 16-bit floats are computed with as float32
    return 32 if dtype.is_float and dtype.bits < 32 else dtype.bits


# ------------------------------------------------------------------ the choice


def choose_lane(nest: Nest, indices: Indices) -> Var | None:
    """Return the variable of the loop to be done in lanes; None if none gains anything.

    Parameters
    ----------
    nest
        The nest.
    indices
        Its subscripts; sizes of arguments are declared.
    """
    free = _independent(nest, indices)
    # what a reduction accumulates stays in registers
    kept = {s.buffer for s in stores_in(nest.work)} if nest.reduction else set()
    touched = [
        (store, flat_offset(indices, buffer, subscripts))
        for buffer, subscripts, store in accesses(nest.work)
        if store or buffer not in kept
    ]
    best: tuple[int, Var] | None = None
    for loop in nest.loops:
        if loop.loop_var in free:
            extent = indices.of(loop.extent)
            score = _score(indices, touched, loop.loop_var, extent, moved=True)
            if score is not None and (best is None or score >= best[0]):
                best = (score, loop.loop_var)
    if isinstance(nest.inner, Reduce):
        found = accumulations(nest.inner)
        if found is not None and all(may_reorder(a) for a in found):
            for head in nest.inner.loops:
                extent = indices.of(head.extent)
                score = _score(indices, touched, head.var, extent, moved=False)
                if score is not None and (best is None or score > best[0]):
                    best = (score, head.var)
    return None if best is None or best[0] <= 0 else best[1]


def _score(
    indices: Indices, touched: list[tuple[bool, Poly]], var: Var, extent: Poly, *, moved: bool
) -> int | None:
    """Say how well accesses suit lanes along a loop; None if they do not at all."""
    size = as_constant(extent)
    if size is not None and size < 4:
        return None
    total = 0
    for store, offset in touched:
        parts = indices.coefficient(offset, var)
        step = None if parts is None else as_constant(parts[0])
        if store:
            if moved and step == 0 and parts is not None and not parts[0]:
                return None
            if not moved and step != 0:
                return None
            total += 1 if step == 1 else 0 if step == 0 else -6
        elif step == 1:
            total += 3
        elif step == 0:
            total += 1
        elif parts is None:
            total -= 8
        else:
            total -= 5
    return total


def _independent(nest: Nest, indices: Indices) -> set[Var]:
    """Return the loops of which any iterations may be done together.

    All of them, if every written element belongs to one iteration: some subscript is the loop
    variable plus a constant. Else only the innermost, under weaker conditions.
    """
    written = {s.buffer for s in stores_in(nest.inner)}
    elements: dict[Var, tuple[Poly, ...]] = {}
    for buffer, subscripts, _ in [
        *accesses(nest.work),
        *(accesses(nest.inner.init) if isinstance(nest.inner, Reduce) else ()),
    ]:
        if buffer not in written:
            continue
        polys = tuple(indices.of(i) for i in subscripts)
        if elements.setdefault(buffer, polys) != polys:
            return set()
    variables = [loop.loop_var for loop in nest.loops]
    free = set(variables)
    for polys in elements.values():
        own: set[Var] = set()
        for poly in polys:
            inside = [v for v in variables if indices.depends(poly, v)]
            if len(inside) == 1:
                parts = indices.coefficient(poly, inside[0])
                if parts is not None and as_constant(parts[0]) == 1:
                    own.add(inside[0])
        if own != set(variables):
            free &= _innermost(nest, indices, polys)
    return free


def _innermost(nest: Nest, indices: Indices, polys: tuple[Poly, ...]) -> set[Var]:
    if not nest.loops:
        return set()
    var = nest.loops[-1].loop_var
    for poly in polys:
        parts = indices.coefficient(poly, var)
        if parts is not None and as_constant(parts[0]) not in (None, 0):
            return {var}
    return set()
