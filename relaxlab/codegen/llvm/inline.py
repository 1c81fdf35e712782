"""Intermediate buffers that need not exist: the second step towards machine code.

Where a buffer holds one formula per element, whoever reads an element computes the formula
instead. A chain of elementwise blocks becomes one block, which reads memory once and writes it
once. A buffer stays when computing its elements again would cost more than reading them: several
blocks read it and the formula is expensive, or a loop around the reading block would repeat it.
Counterpart: the ``compute_inline`` that TVM's default CPU build does not do.

Examples
--------
>>> from relaxlab import te
>>> from relaxlab.codegen.llvm.lower import lower
>>> x = te.placeholder((4,), "float32", "x")
>>> y = te.compute((4,), lambda i: x[i] * 2.0, name="y")
>>> z = te.compute((4,), lambda i: y[i] + 1.0, name="z")
>>> kernel = lower(te.create_prim_func([x, z]))
>>> len(kernel.body), len(kernel.locals)
(2, 1)
>>> inline(kernel)
>>> len(kernel.body), len(kernel.locals)
(1, 0)
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from relaxlab.codegen.llvm.indices import Indices, added, as_constant, poly_key
from relaxlab.codegen.llvm.lower import Lowered, Reduce
from relaxlab.codegen.llvm.matmul import is_product
from relaxlab.codegen.llvm.nests import stores_in
from relaxlab.codegen.llvm.walk import call_name, loads_in, mentions, nodes_in
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.node import Node, children
from relaxlab.ir.prim import (
    And,
    BinaryExpr,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Mod,
    Or,
    Select,
    TensorLoad,
)
from relaxlab.ir.prim_functor import post_order_map, post_order_visit, substitute
from relaxlab.tirx.buffer import buffer_type, is_buffer_var
from relaxlab.tirx.stmt import BufferStore, For, IfThenElse, Stmt

__all__ = ["cost_of_value", "inline"]

#: Operations up to which a formula is computed again rather than kept.
_LIGHT: Final = 8
#: Levels that a formula may have.
_DEEPEST: Final = 64


@dataclass(frozen=True, slots=True)
class _Producer:
    """``buffer[variables] = value`` for every element."""

    position: int
    buffer: Var
    variables: tuple[Var | None, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class _Use:
    """One read of a buffer, with the loops around it, outermost first."""

    position: int
    load: TensorLoad
    loops: tuple[tuple[Var, Expr, Expr], ...]
    guarded: bool


def inline(kernel: Lowered) -> None:
    """Remove intermediate buffers from a kernel, in place."""
    inliner = _Inliner(kernel)
    changed = True
    while changed and kernel.locals:
        changed = False
        for buffer in list(kernel.locals):
            changed = inliner.remove(buffer) or changed


@dataclass(frozen=True, slots=True)
class _Touched:
    """The buffers that a statement writes to, and all that occur in it."""

    statement: Stmt
    written: frozenset[Var]
    all: frozenset[Var]


class _Inliner:
    def __init__(self, kernel: Lowered) -> None:
        self.kernel = kernel
        self._known: dict[int, _Touched] = {}

    def touched(self, position: int) -> _Touched:
        """Return the buffers of a statement."""
        stmt = self.kernel.body[position]
        found = self._known.get(id(stmt))
        if found is None:
            found = self._known[id(stmt)] = _Touched(
                stmt,
                frozenset(s.buffer for s in stores_in(stmt)),
                frozenset(n for n in nodes_in(stmt) if is_buffer_var(n)),
            )
        return found

    def remove(self, buffer: Var) -> bool:
        """Remove a buffer if that is right and worth it."""
        kernel = self.kernel
        everywhere = range(len(kernel.body))
        writers = [k for k in everywhere if buffer in self.touched(k).written]
        if len(writers) != 1:
            return False
        producer = _producer(kernel, buffer, writers[0])
        if producer is None:
            return False
        readers = [
            k for k in everywhere if buffer in self.touched(k).all and k != producer.position
        ]
        uses = _uses(kernel.body, readers, buffer)
        if not uses or readers[0] < producer.position:
            return False
        # what the formula reads must be the same at its last reader
        sources = {n.buffer for n in loads_in(producer.value)}
        between = range(producer.position, readers[-1] + 1)
        if any(sources & self.touched(k).written for k in between):
            return False
        if not _worth_it(kernel, producer, uses):
            return False

        def visit(node: Any) -> Any:
            if isinstance(node, TensorLoad) and node.buffer is buffer:
                pairs = zip(producer.variables, node.indices, strict=True)
                return substitute(producer.value, {v: i for v, i in pairs if v is not None})
            return node

        for position in readers:
            kernel.body[position] = post_order_map(kernel.body[position], visit)
        del kernel.body[producer.position]
        kernel.locals.remove(buffer)
        return True


def _producer(kernel: Lowered, buffer: Var, position: int) -> _Producer | None:
    """Return how a buffer is made, if a statement gives every element a formula."""
    loops: dict[Var, For] = {}
    stmt: Any = kernel.body[position]
    while isinstance(stmt, For):
        loops[stmt.loop_var] = stmt
        stmt = stmt.body
    if not isinstance(stmt, BufferStore) or stmt.buffer is not buffer:
        return None
    indices, variables = Indices(), list[Var | None]()
    for index, size in zip(stmt.indices, buffer_type(buffer).shape, strict=True):
        if isinstance(index, Var) and index in loops:
            loop = loops.pop(index)
            if as_constant(indices.of(loop.min)) != 0 or added(
                indices.of(loop.extent), indices.of(size), -1
            ):
                return None
            variables.append(index)
        elif as_constant(indices.of(index)) == 0 and as_constant(indices.of(size)) == 1:
            variables.append(None)
        else:
            return None
    if loops or mentions(stmt.value, buffer) or _depth(stmt.value) > _DEEPEST:
        return None
    dtype = buffer_type(buffer).dtype
    value = stmt.value if stmt.value.dtype is dtype else Cast(dtype, stmt.value)
    return _Producer(position, buffer, tuple(variables), value)


def _depth(value: Expr) -> int:
    """Return how deep an expression is."""
    depth: dict[int, int] = {}

    def visit(node: Any) -> None:
        depth[id(node)] = 1 + max((depth.get(id(c), 0) for c in children(node)), default=0)

    post_order_visit(value, visit)
    return depth[id(value)]


def _uses(body: list[Stmt], readers: list[int], buffer: Var) -> list[_Use]:
    """Return all reads; none if the buffer is used in any other way than by element."""
    uses: list[_Use] = []
    escaped = False
    seen: set[tuple[int, bool]] = set()
    pending: list[tuple[Any, int, tuple[tuple[Var, Expr, Expr], ...], bool]] = [
        (body[position], position, (), False) for position in readers
    ]
    while pending:
        node, position, loops, guarded = pending.pop()
        if (id(node), guarded) in seen:
            continue
        seen.add((id(node), guarded))
        inside: Iterable[Any] = ()
        match node:
            case For(loop_var=var, min=low, extent=extent, body=inner):
                loops, inside = (*loops, (var, low, extent)), (inner,)
            case Reduce(loops=heads, init=init, body=inner):
                pending.append((init, position, loops, guarded))
                loops, inside = (*loops, *((h.var, h.min, h.extent) for h in heads)), (inner,)
            case TensorLoad(buffer=found, indices=indices):
                if found is buffer:
                    uses.append(_Use(position, node, loops, guarded))
                inside = indices
            case BufferStore(value=value, indices=indices):
                inside = (value, *indices)
            case Var():
                escaped = escaped or node is buffer
            case Node():
                guarded = guarded or _chooses(node)
                inside = children(node)
            case _:
                pass
        pending += ((child, position, loops, guarded) for child in inside)
    return [] if escaped else uses


def _chooses(node: Node) -> bool:
    """Say whether not all parts of a node are always computed."""
    if isinstance(node, Call):
        return call_name(node) == "if_then_else"
    return isinstance(node, Select | And | Or | IfThenElse)


def _worth_it(kernel: Lowered, producer: _Producer, uses: list[_Use]) -> bool:
    light = cost_of_value(producer.value) <= _LIGHT
    movement = isinstance(producer.value, TensorLoad)
    total = _is_total(producer)
    shape = buffer_type(producer.buffer).shape
    known: dict[int, Indices] = {}
    readers: dict[int, set[Any]] = {}
    for use in uses:
        indices = known.setdefault(use.position, Indices())
        for var, low, extent in use.loops:
            indices.enter(var, indices.of(low), indices.of(extent))
        polys = [indices.of(i) for i in use.load.indices]
        for index, size in zip(use.load.indices, shape, strict=True):
            for variable in indices.variables(indices.of(size)):
                indices.declare_size(variable)
            if not (indices.at_least(index, 0) and indices.below(index, indices.of(size))):
                return False
        readers.setdefault(use.position, set()).add(tuple(poly_key(p) for p in polys))
        if not total and (use.guarded or not _covers(producer, use, indices)):
            return False
        if _repeated(indices, polys, use) and not movement:
            return False
        if not movement and is_product(kernel.body[use.position]):
            return False
    if light or movement:
        return True
    return len(readers) == 1 and all(len(found) == 1 for found in readers.values())


def _is_total(producer: _Producer) -> bool:
    """Say whether computing any element cannot fail."""
    indices = Indices()
    for var, size in zip(producer.variables, buffer_type(producer.buffer).shape, strict=True):
        if var is not None:
            indices.enter(var, {}, indices.of(size))
    total = True

    def visit(node: Any) -> None:
        nonlocal total
        if isinstance(node, TensorLoad):
            for index, size in zip(node.indices, buffer_type(node.buffer).shape, strict=True):
                for variable in indices.variables(indices.of(size)):
                    indices.declare_size(variable)
                inside = indices.at_least(index, 0) and indices.below(index, indices.of(size))
                total = total and inside
        elif isinstance(node, Div | Mod | FloorDiv | FloorMod) and not node.a.dtype.is_float:
            total = total and isinstance(node.b, IntImm) and node.b.value != 0
        elif isinstance(node, Call):
            total = total and "shift" not in call_name(node)

    post_order_visit(producer.value, visit)
    return total


def _covers(producer: _Producer, use: _Use, indices: Indices) -> bool:
    """Say whether a read goes through all elements of a buffer, each in an iteration."""
    loops = {var: (low, extent) for var, low, extent in use.loops}
    for index, size in zip(use.load.indices, buffer_type(producer.buffer).shape, strict=True):
        if as_constant(indices.of(size)) == 1:
            continue
        if not isinstance(index, Var) or index not in loops:
            return False
        low, extent = loops.pop(index)
        if as_constant(indices.of(low)) != 0 or added(indices.of(extent), indices.of(size), -1):
            return False
    return True


def _repeated(indices: Indices, polys: list[Any], use: _Use) -> bool:
    """Say whether a loop outside one that selects the element would compute it again."""
    outside = False
    for var, _, extent in use.loops:
        selects = any(indices.depends(p, var) for p in polys)
        if selects and outside:
            return True
        if not selects and as_constant(indices.of(extent)) != 1:
            outside = True
    return False


def cost_of_value(value: Expr) -> int:
    """Return roughly how many simple operations a formula takes."""
    total = 0

    def visit(node: Any) -> None:
        nonlocal total
        if isinstance(node, Call):
            total += 1 if call_name(node) in _CHEAP else 20
        elif isinstance(node, Div | FloorDiv | FloorMod | Mod):
            total += 4
        elif isinstance(node, TensorLoad):
            total += 2
        elif isinstance(node, BinaryExpr | Cast):
            total += 1

    post_order_visit(value, visit)
    return total


_CHEAP: Final = frozenset({"fabs", "floor", "ceil", "round", "trunc", "if_then_else", "likely"})
