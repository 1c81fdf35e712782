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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from relaxlab.codegen.llvm.indices import Indices, added, as_constant, poly_key
from relaxlab.codegen.llvm.lower import Lowered, Reduce
from relaxlab.codegen.llvm.matmul import is_product
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
from relaxlab.tirx.buffer import buffer_type
from relaxlab.tirx.stmt import BufferStore, For, IfThenElse, Stmt

__all__ = ["inline"]

#: Operations up to which a formula is computed again rather than kept.
_LIGHT: Final = 8


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
    changed = True
    while changed and kernel.locals:
        changed = False
        for buffer in list(kernel.locals):
            changed = _remove(kernel, buffer) or changed


def _remove(kernel: Lowered, buffer: Var) -> bool:
    producer = _producer(kernel, buffer)
    if producer is None:
        return False
    uses = _uses(kernel.body, buffer)
    if uses is None or not uses or any(u.position <= producer.position for u in uses):
        return False
    if not _sources_last(kernel, producer, max(u.position for u in uses)):
        return False
    if not _worth_it(kernel, producer, uses):
        return False

    def visit(node: Any) -> Any:
        if isinstance(node, TensorLoad) and node.buffer is buffer:
            pairs = zip(producer.variables, node.indices, strict=True)
            return substitute(producer.value, {v: i for v, i in pairs if v is not None})
        return node

    for position in {u.position for u in uses}:
        kernel.body[position] = post_order_map(kernel.body[position], visit)
    del kernel.body[producer.position]
    kernel.locals.remove(buffer)
    return True


def _producer(kernel: Lowered, buffer: Var) -> _Producer | None:
    """Return how a buffer is made, if by one statement that gives every element a formula."""
    writers = [k for k, stmt in enumerate(kernel.body) if _writes(stmt, buffer)]
    if len(writers) != 1:
        return None
    loops: dict[Var, For] = {}
    stmt: Any = kernel.body[writers[0]]
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
    if loops or _reads(stmt.value, buffer):
        return None
    dtype = buffer_type(buffer).dtype
    value = stmt.value if stmt.value.dtype is dtype else Cast(dtype, stmt.value)
    return _Producer(writers[0], buffer, tuple(variables), value)


def _writes(stmt: Stmt, buffer: Var) -> bool:
    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, BufferStore) and node.buffer is buffer:
            found.append(node)

    post_order_visit(stmt, visit)
    return bool(found)


def _reads(node: Node, buffer: Var) -> bool:
    found: list[Any] = []
    post_order_visit(node, lambda n: found.append(n) if n is buffer else None)
    return bool(found)


def _uses(body: list[Stmt], buffer: Var) -> list[_Use] | None:
    """Return all reads; None if the buffer is used in any other way than by element."""
    uses: list[_Use] = []
    escaped = False

    def walk(
        node: Any, position: int, loops: tuple[tuple[Var, Expr, Expr], ...], guarded: bool
    ) -> None:
        nonlocal escaped
        match node:
            case For(loop_var=var, min=low, extent=extent, body=inner):
                walk(inner, position, (*loops, (var, low, extent)), guarded)
            case Reduce(loops=heads, init=init, body=inner):
                walk(init, position, loops, guarded)
                own = tuple((h.var, h.min, h.extent) for h in heads)
                walk(inner, position, (*loops, *own), guarded)
            case TensorLoad(buffer=found, indices=inner_indices):
                if found is buffer:
                    uses.append(_Use(position, node, loops, guarded))
                for index in inner_indices:
                    walk(index, position, loops, guarded)
            case BufferStore(value=value, indices=inner_indices):
                walk(value, position, loops, guarded)
                for index in inner_indices:
                    walk(index, position, loops, guarded)
            case Var():
                escaped = escaped or node is buffer
            case Node():
                choice = isinstance(node, Select | And | Or | IfThenElse) or (
                    isinstance(node, Call) and getattr(node.op, "name", "") == "tirx.if_then_else"
                )
                for child in children(node):
                    walk(child, position, loops, guarded or choice)

    for position, stmt in enumerate(body):
        walk(stmt, position, (), False)
    return None if escaped else uses


def _sources_last(kernel: Lowered, producer: _Producer, last: int) -> bool:
    """Say whether what the formula reads is the same at its last reader."""
    sources = {n.buffer for n in _loads(producer.value)}
    between = range(producer.position, last + 1)
    return not any(_writes(kernel.body[k], s) for s in sources for k in between)


def _loads(node: Node) -> Iterator[TensorLoad]:
    found: list[TensorLoad] = []
    post_order_visit(node, lambda n: found.append(n) if isinstance(n, TensorLoad) else None)
    return iter(found)


def _worth_it(kernel: Lowered, producer: _Producer, uses: list[_Use]) -> bool:
    light = _cost(producer.value) <= _LIGHT
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
            total = total and "shift" not in getattr(node.op, "name", "")

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


def _cost(value: Expr) -> int:
    """Return roughly how many simple operations a formula takes."""
    total = 0

    def visit(node: Any) -> None:
        nonlocal total
        if isinstance(node, Call):
            name = getattr(node.op, "name", "").removeprefix("tirx.")
            total += 1 if name in _CHEAP else 20
        elif isinstance(node, Div | FloorDiv | FloorMod | Mod):
            total += 4
        elif isinstance(node, TensorLoad):
            total += 2
        elif isinstance(node, BinaryExpr | Cast):
            total += 1

    post_order_visit(value, visit)
    return total


_CHEAP: Final = frozenset({"fabs", "floor", "ceil", "round", "trunc", "if_then_else", "likely"})
