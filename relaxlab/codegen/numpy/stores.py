"""Nests without reduction: one array statement per store, piece by piece where a guard cuts.

A guard that compares an axis with a bound (``v >= n``, as concatenation and padding have) cuts
the box in two, so that each piece is a plain copy; only other guards become masks.
Counterpart: loop partitioning.

Examples
--------
>>> from relaxlab.codegen.numpy.space import Axis, Space
>>> from relaxlab.ir import IntImm, Var
>>> v = Var("v", "int64")
>>> space = Space([Axis(v, IntImm("int64", 0), IntImm("int64", 8))])
>>> cut = find_cut(space, v >= 3)
>>> cut.place, cut.at.value, cut.true_above
(0, 3, True)
"""

from dataclasses import dataclass
from typing import Any

from relaxlab.codegen.numpy.nest import Nest, loads_of
from relaxlab.codegen.numpy.scalar_code import scalar_code
from relaxlab.codegen.numpy.space import Space, linear
from relaxlab.codegen.numpy.value import Value
from relaxlab.codegen.numpy.vector import VectorCode
from relaxlab.codegen.numpy.writer import BufferState, Unsupported, Writer
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.node import structural_equal
from relaxlab.ir.op import Op
from relaxlab.ir.prim import EQ, GE, GT, LE, LT, NE, And, FloatImm, IntImm, Not, Or, Select
from relaxlab.tirx.stmt import Bind, BufferStore

__all__ = ["Cut", "Target", "find_cut", "find_target", "reads_only_itself", "write_elementwise"]


@dataclass(frozen=True, slots=True)
class Cut:
    """A condition on one axis: true from ``at`` on, or below ``at``."""

    place: int
    at: Expr
    true_above: bool


@dataclass(frozen=True, slots=True)
class Target:
    """Where a store goes.

    Attributes
    ----------
    code
        Text of the part of the buffer that is written, aligned with the space; for a space
        without axes a subscript that can only be assigned to.
    whole
        Whether it is the whole buffer, axis for dimension.
    """

    code: str
    whole: bool


def find_cut(space: Space, condition: Expr) -> Cut | None:
    """Return a condition as a cut through the space, or None if it is none."""
    match condition:
        case Not(a=a):
            cut = find_cut(space, a)
            return None if cut is None else Cut(cut.place, cut.at, not cut.true_above)
        case LE(a=a, b=b):
            return _cut(space, prim_ops.subtract(b, a), 0)
        case LT(a=a, b=b):
            return _cut(space, prim_ops.subtract(b, a), 1)
        case GE(a=a, b=b):
            return _cut(space, prim_ops.subtract(a, b), 0)
        case GT(a=a, b=b):
            return _cut(space, prim_ops.subtract(a, b), 1)
        case _:
            return None


def _cut(space: Space, difference: Expr, least: int) -> Cut | None:
    """Return the cut of ``difference >= least``."""
    found = linear(difference, space.place)
    if found is None or len(found[0]) != 1:
        return None
    ((place, step),) = found[0].items()
    if step == 1:
        # v + rest >= least
        return Cut(place, space.simplify(prim_ops.subtract(least, found[1])), True)
    if step == -1:
        # rest - v >= least: v < rest - least + 1
        at = prim_ops.add(prim_ops.subtract(found[1], least), 1)
        return Cut(place, space.simplify(at), False)
    return None


def find_target(writer: Writer, code: VectorCode, store: BufferStore) -> Target:
    """Return the part of the buffer that a store fills as the axes run.

    Raises
    ------
    Unsupported
        If the index is computed, or an axis does not move it.
    """
    space, state = code.space, writer.state(store.buffer)
    subscripts: list[str] = []
    order: list[int] = []
    whole = True
    for axis, (index, extent) in enumerate(zip(store.indices, state.shape, strict=True)):
        found = linear(index, space.place)
        if found is None or len(found[0]) > 1 or any(step < 1 for step in found[0].values()):
            raise Unsupported
        steps, rest = found
        low, high = space.ends(steps, rest)
        _check_inside(writer, space, store.buffer, axis, low, high, extent)
        text, place, _ = code.subscript(steps, rest, extent)
        subscripts.append(text)
        whole = whole and text == ":" and place == len(order)
        if place is not None:
            order.append(place)
    kept = [p for p in range(space.rank) if not space.axes[p].reduce]
    if sorted(order) != kept:
        raise Unsupported
    text = state.code
    if not whole:
        if not order:
            return Target(f"{text}[{', '.join(subscripts) or '()'}]", False)
        if any(s != ":" for s in subscripts):
            text += f"[{', '.join(subscripts)}]"
        if order != kept:
            moves = [order.index(place) for place in kept]
            text += ".T" if moves == [1, 0] else f".transpose({', '.join(map(str, moves))})"
    return Target(text, whole)


def _check_inside(
    writer: Writer, space: Space, buffer: Var, axis: int, low: Expr, high: Expr, extent: Expr
) -> None:
    last = prim_ops.subtract(extent, 1)
    if space.at_least_zero(low) and space.at_least_zero(prim_ops.subtract(last, high)):
        return
    texts = ", ".join(scalar_code(writer, e) for e in (low, high, extent))
    check = writer.use("check_range")
    writer.line(f"{check}({texts}, {writer.name!r}, 'writes', {buffer.name!r}, {axis})")


def reads_only_itself(nest: Nest) -> bool:
    """Whether a buffer that the nest writes is read only at the index just being written."""
    indices: dict[Var, tuple[Expr, ...]] = {}
    for store in nest.stores:
        before = indices.setdefault(store.buffer, store.indices)
        if not structural_equal(before, store.indices):
            return False
    return all(
        structural_equal(indices[load.buffer], load.indices)
        for load in loads_of(nest.body)
        if load.buffer in indices
    )


def write_elementwise(writer: Writer, nest: Nest, context: Space, defines: set[Var]) -> None:
    """Write a nest in which every iteration is on its own.

    Parameters
    ----------
    writer
        Where lines go.
    nest
        The nest; none of its axes is folded.
    context
        The space without axes: sizes and loops around the nest.
    defines
        Buffers that this nest is the first and only one to write.

    Raises
    ------
    Unsupported
        If iterations depend on each other, or an index is computed.
    """
    if any(axis.reduce for axis in nest.axes) or not reads_only_itself(nest):
        raise Unsupported
    space = Space(nest.axes, context.sizes, context.loops)
    stores = nest.stores
    if len(nest.body) == 1 and len(stores) == 1:
        _Pieces(writer, defines).write(space, stores[0], stores[0].value)
        return
    code = VectorCode(writer, space)
    for statement in nest.body:
        code.expect(statement.value)
    for statement in nest.body:
        if isinstance(statement, Bind):
            code.bound[statement.var] = code.named(code.emit(statement.value))
        else:
            _assign(writer, code, statement, statement.value, defines)


class _Pieces:
    """Writes one store over a box, cutting the box where a guard says so."""

    def __init__(self, writer: Writer, defines: set[Var]) -> None:
        self.writer = writer
        self.defines = defines

    def write(self, space: Space, store: BufferStore, value: Any) -> None:
        choice = _choice(value)
        if choice is not None:
            condition, yes, no = choice
            if isinstance(condition, And):
                inner = prim_ops.if_then_else(condition.b, yes, no)
                self.write(space, store, prim_ops.if_then_else(condition.a, inner, no))
                return
            if isinstance(condition, Or):
                inner = prim_ops.if_then_else(condition.b, yes, no)
                self.write(space, store, prim_ops.if_then_else(condition.a, yes, inner))
                return
            if self._cut_or_none(space, store, condition, yes, no):
                return
        code = VectorCode(self.writer, space)
        code.expect(value)
        _assign(self.writer, code, store, value, self.defines)

    def _cut_or_none(
        self, space: Space, store: BufferStore, condition: Expr, yes: Any, no: Any
    ) -> bool:
        if not space.axes_of(condition):
            with self.writer.block(f"if {scalar_code(self.writer, condition)}:"):
                self._in_piece(space, store, yes)
            with self.writer.block("else:"):
                self._in_piece(space, store, no)
            return True
        if isinstance(condition, EQ | NE):
            return self._cut_point(space, store, condition, yes, no)
        cut = find_cut(space, condition)
        if cut is None:
            return False
        axis = space.axes[cut.place]
        at = space.simplify(prim_ops.min(prim_ops.max(cut.at, axis.low), axis.high))
        below, above = (no, yes) if cut.true_above else (yes, no)
        self._piece(space, cut.place, axis.low, at, store, below)
        self._piece(space, cut.place, at, axis.high, store, above)
        return True

    def _cut_point(
        self, space: Space, store: BufferStore, condition: EQ | NE, yes: Any, no: Any
    ) -> bool:
        found = linear(prim_ops.subtract(condition.a, condition.b), space.place)
        if found is None or len(found[0]) != 1:
            return False
        ((place, step),) = found[0].items()
        if abs(step) != 1:
            return False
        if isinstance(condition, NE):
            yes, no = no, yes
        axis = space.axes[place]
        at = prim_ops.multiply(found[1], -step)
        low = space.simplify(prim_ops.min(prim_ops.max(at, axis.low), axis.high))
        next_one = prim_ops.add(at, 1)
        high = space.simplify(prim_ops.min(prim_ops.max(next_one, axis.low), axis.high))
        self._piece(space, place, axis.low, low, store, no)
        self._piece(space, place, low, high, store, yes)
        self._piece(space, place, high, axis.high, store, no)
        return True

    def _piece(
        self, space: Space, place: int, low: Expr, high: Expr, store: BufferStore, value: Any
    ) -> None:
        extent = space.simplify(prim_ops.subtract(high, low))
        if isinstance(extent, IntImm):
            if extent.value > 0:
                self._in_piece(space.narrowed(place, low, high), store, value)
            return
        texts = [scalar_code(self.writer, e) for e in (low, high)]
        with self.writer.block(f"if {texts[0]} < {texts[1]}:"):
            self._in_piece(space.narrowed(place, low, high), store, value)

    def _in_piece(self, space: Space, store: BufferStore, value: Any) -> None:
        state = self.writer.state(store.buffer)
        if state.holds == "nothing":
            raise Unsupported
        self.write(space, store, value)


def _choice(value: Any) -> tuple[Expr, Expr, Expr] | None:
    if isinstance(value, Select):
        return value.condition, value.true_value, value.false_value
    match value:
        case Call(op=Op(name="tirx.if_then_else"), args=(condition, yes, no)):
            return condition, yes, no
        case _:
            return None


def _assign(
    writer: Writer, code: VectorCode, store: BufferStore, value: Any, defines: set[Var]
) -> None:
    state = writer.state(store.buffer)
    target = find_target(writer, code, store)
    full = tuple(range(code.space.rank))
    if state.holds == "nothing":
        if store.buffer not in defines or not target.whole:
            raise Unsupported
        _define(writer, code, state, value, full)
        return
    reads_target = any(load.buffer is store.buffer for load in loads_of([value]))
    # in place: the last operation may write where it reads, as it goes element by element
    code.hands_down = writer.no_alias and not reads_target
    usable = bool(full) and value.dtype is state.dtype
    out = target.code if usable else None
    if out is not None and not out.isidentifier():
        # a name for the part, so that several operations may write into it
        out = None if _is_leaf(value) else code.named(Value(out, full, state.dtype)).code
    result = code.emit(value, out)
    if out is not None and result.code == out:
        return
    copy_into(writer, target, result, full)


def _is_leaf(value: Any) -> bool:
    return _choice(value) is None and not hasattr(value, "a") and not hasattr(value, "args")


def copy_into(writer: Writer, target: Target, result: Value, full: tuple[int, ...]) -> None:
    """Write the statement that copies a value into its place."""
    if not full:
        writer.line(f"{target.code if not target.whole else target.code + '[()]'} = {result.code}")
    elif target.code.isidentifier():
        writer.line(f"{target.code}[...] = {result.code}")
    elif target.code.endswith("]"):
        writer.line(f"{target.code} = {result.code}")
    else:
        writer.line(f"{target.code}[...] = {result.code}")


def _define(
    writer: Writer, code: VectorCode, state: BufferState, value: Any, full: tuple[int, ...]
) -> None:
    """Let the buffer's name stand for the value itself: nothing is copied."""
    code.wanted_name = state.code
    result = code.emit(value)
    code.wanted_name = None
    if result.dtype is not state.dtype:
        raise Unsupported
    if not full:
        raise Unsupported
    text, holds = result.code, "array" if result.fresh else "view"
    if result.axes != full:
        shape = ", ".join(scalar_code(writer, dim) for dim in state.shape)
        comma = "," if len(state.shape) == 1 else ""
        shape = f"({shape}{comma})"
        if result.axes or isinstance(value, IntImm | FloatImm):
            text, holds = f"np.broadcast_to({text}, {shape})", "view"
        else:
            text, holds = f"np.full({shape}, {text}, {writer.dtype(state.dtype)})", "array"
    if text != state.code:
        writer.line(f"{state.code} = {text}")
    if holds == "view":
        # what the view looks at must stay as it is while the view is in use
        writer.shared.update(load.buffer for load in loads_of([value]))
    state.holds = "array" if holds == "array" else "view"
