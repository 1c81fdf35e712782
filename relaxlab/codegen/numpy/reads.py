"""Reads of buffers over an iteration space: views where indices are linear, gathers elsewhere.

In order of preference: a slice, a strided view (several axes along one dimension, as in
convolutions), a reshape, rows by a computed index, single elements. Indices are checked unless
they are proved to stay inside. Counterpart: index handling in TVM's back ends.

Examples
--------
>>> from relaxlab.codegen.numpy.space import Axis
>>> from relaxlab.codegen.numpy.vector import VectorCode
>>> from relaxlab.ir import IntImm
>>> from relaxlab.tirx import decl_buffer
>>> writer, i = Writer("f"), Var("i", "int64")
>>> x = decl_buffer((IntImm("int64", 6),), name="x")
>>> _ = writer.declare(x, "array")
>>> code = VectorCode(writer, Space([Axis(i, IntImm("int64", 0), IntImm("int64", 3))]))
>>> code.load(TensorLoad(x, (i * 2 + 1,)), None).code
'x[1::2]'
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from relaxlab.codegen.numpy.scalar_code import scalar_code
from relaxlab.codegen.numpy.space import Space, linear, variables_of
from relaxlab.codegen.numpy.value import Value, transposed
from relaxlab.codegen.numpy.writer import Unsupported, Writer
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.prim import IntImm, TensorLoad
from relaxlab.ir.prim_functor import substitute
from relaxlab.runtime.dtype import DataType

__all__ = ["Reads"]


@dataclass(frozen=True, slots=True)
class _Part:
    """One dimension of a read: linear steps and rest, or an index that must be computed."""

    index: Expr
    steps: dict[int, int] | None
    rest: Expr


class Reads(ABC):
    """Writes reads of one nest; a subclass writes the expressions around them.

    Parameters
    ----------
    writer
        Where lines go.
    space
        The iteration space.

    Attributes
    ----------
    bound
        Values of variables that the nest binds.
    hands_down
        Whether an operand may be computed in the target of the whole expression.
    wanted_name
        Name for the next new array, so that a buffer's first value is computed under its name.
    guard
        Where reads matter: elsewhere an index may be anything. None means everywhere.
    read_counts
        How often each buffer is read by what is going to be written.
    """

    def __init__(self, writer: Writer, space: Space) -> None:
        self.writer = writer
        self.space = space
        self.bound: dict[Var, Value] = {}
        self.hands_down = writer.no_alias
        self.wanted_name: str | None = None
        self.guard: Value | None = None
        self.read_counts: Counter[Var] = Counter()

    @abstractmethod
    def emit(self, expr: Any, out: str | None = None) -> Value:
        """Write what computes an expression and return its value."""

    # ------------------------------------------------------------ values

    def new_name(self) -> str:
        """Return a name for a new array."""
        name, self.wanted_name = self.wanted_name, None
        return name or self.writer.fresh("t")

    def named(self, value: Value) -> Value:
        """Return the value under a name, so that writing its text twice computes it once."""
        if value.code.isidentifier():
            return value
        name = self.writer.fresh("t")
        self.writer.line(f"{name} = {value.code}")
        return replace(value, code=name)

    def value(self, plain: str, order: Sequence[int], dtype: DataType) -> Value:
        """Return an array whose dimensions follow ``order``, aligned with the space."""
        axes = tuple(sorted(order))
        code = self._aligned(transposed(plain, order, axes), axes)
        return Value(code, axes, dtype, plain=plain, order=tuple(order))

    def _aligned(self, code: str, axes: Sequence[int]) -> str:
        """Return the text of an array, with one dimension per axis, aligned with the space."""
        if not axes:
            return code
        wanted = range(axes[0], self.space.rank)
        if list(wanted) == list(axes):
            return code
        return f"{code}[{', '.join(':' if place in axes else 'None' for place in wanted)}]"

    def compact(self, value: Value, order: Sequence[int]) -> str:
        """Return the text of a value whose dimensions are exactly the axes in ``order``."""
        if value.plain:
            return transposed(value.plain, value.order, order)
        if not value.axes:
            return value.code
        inside = range(value.axes[0], self.space.rank)
        code = value.code
        if list(inside) != list(value.axes):
            code += f"[{', '.join(':' if place in value.axes else '0' for place in inside)}]"
        return transposed(code, value.axes, order)

    def axes_of(self, expr: Expr) -> tuple[int, ...]:
        """Return the places of the axes that an expression may vary along."""
        places = set(self.space.axes_of(expr))
        if self.bound:
            for var in variables_of(expr):
                if var in self.bound:
                    places.update(self.bound[var].axes)
        return tuple(sorted(places))

    def uses_bound(self, expr: Expr) -> bool:
        """Whether an expression uses a variable that the nest binds."""
        return bool(self.bound) and any(v in self.bound for v in variables_of(expr))

    # ------------------------------------------------------------ reads

    def load(self, load: TensorLoad, out: str | None) -> Value:
        """Write a read in the best way that fits its indices; rows may be taken into ``out``."""
        state = self.writer.state(load.buffer)
        if state.holds == "nothing" or len(load.indices) != len(state.shape):
            raise Unsupported
        parts = [self._part(index) for index in load.indices]
        computed = [part for part in parts if part.steps is None]
        guarded = self.guard is not None and not all(
            self.space.inside(part.index, extent)
            for part, extent in zip(parts, state.shape, strict=True)
        )
        if guarded:
            return self._gather(load.buffer, parts)
        if not computed:
            used = [place for part in parts for place in part.steps or ()]
            simple = all(len(part.steps or ()) <= 1 for part in parts)
            if simple and len(used) == len(set(used)):
                value = self._slice(load.buffer, parts)
                return replace(value, fresh=self._may_overwrite(load.buffer, value))
            return self._strided(load.buffer, parts)
        reshaped = self._reshape(load.buffer, parts)
        if reshaped is not None:
            return reshaped
        if len(computed) == 1:
            taken = self._take(load.buffer, parts, out)
            if taken is not None:
                return taken
        return self._gather(load.buffer, parts)

    def _may_overwrite(self, buffer: Var, value: Value) -> bool:
        """Whether a buffer that is read for the last time may take the result."""
        state = self.writer.state(buffer)
        return (
            buffer in self.writer.dying
            and buffer not in self.writer.shared
            and state.holds == "array"
            and self.read_counts[buffer] == 1
            and value.code == state.code
            and value.axes == tuple(range(self.space.rank))
            and not any(axis.reduce for axis in self.space.axes)
        )

    def _part(self, index: Expr) -> _Part:
        if self.uses_bound(index):
            return _Part(index, None, index)
        found = linear(index, self.space.place)
        if found is None and self.space.fixed:
            index = substitute(index, self.space.fixed)
            found = linear(index, self.space.place)
        return _Part(index, None, index) if found is None else _Part(index, *found)

    def _check_ends(self, buffer: Var, axis: int, part: _Part, extent: Expr) -> None:
        """Write a check that a linear index stays inside, unless that is proved."""
        low, high = self.space.ends(part.steps or {}, part.rest)
        if self.space.at_least_zero(low) and self.space.at_least_zero(
            prim_ops.subtract(prim_ops.subtract(extent, 1), high)
        ):
            return
        texts = [scalar_code(self.writer, e) for e in (low, high, extent)]
        check = self.writer.use("check_range")
        self.writer.line(
            f"{check}({', '.join(texts)}, {self.writer.name!r}, 'reads', {buffer.name!r}, {axis})"
        )

    def _slice(self, buffer: Var, parts: list[_Part]) -> Value:
        """Read by slices: every dimension moves with one axis at most."""
        state = self.writer.state(buffer)
        subscripts, order, flips = [], [], []
        for axis, (part, extent) in enumerate(zip(parts, state.shape, strict=True)):
            self._check_ends(buffer, axis, part, extent)
            text, place, flipped = self.subscript(part.steps or {}, part.rest, extent)
            subscripts.append(text)
            if place is not None:
                order.append(place)
                flips.append("::-1" if flipped else ":")
        code = state.code
        if any(text != ":" for text in subscripts):
            code += f"[{', '.join(subscripts)}]"
        if "::-1" in flips:
            code += f"[{', '.join(flips)}]"
        return self.value(code, order, state.dtype)

    def subscript(
        self, steps: dict[int, int], rest: Expr, extent: Expr
    ) -> tuple[str, int | None, bool]:
        """Return the text of one subscript, the axis it moves with, and whether backwards."""
        if not steps:
            return scalar_code(self.writer, self.space.simplify(rest)), None, False
        ((place, step),) = steps.items()
        axis = self.space.axes[place]
        low, high = self.space.ends(steps, rest)
        if (
            step == 1
            and self._is_zero(low)
            and self.space.equal(prim_ops.subtract(axis.high, axis.low), extent)
        ):
            return ":", place, False
        end = self.space.simplify(prim_ops.add(high, 1))
        start_text = "" if self._is_zero(low) else scalar_code(self.writer, low)
        end_text = "" if self.space.equal(end, extent) else scalar_code(self.writer, end)
        text = f"{start_text}:{end_text}"
        if abs(step) != 1:
            text += f":{abs(step)}"
        return text, place, step < 0

    def _is_zero(self, expr: Expr) -> bool:
        return isinstance(expr, IntImm) and expr.value == 0

    def _strided(self, buffer: Var, parts: list[_Part]) -> Value:
        """Read through a view that moves several axes along one dimension, as convolutions do."""
        state = self.writer.state(buffer)
        axes = sorted({place for part in parts for place in part.steps or ()})
        for axis, (part, extent) in enumerate(zip(parts, state.shape, strict=True)):
            self._check_ends(buffer, axis, part, extent)
        offsets = []
        for part in parts:
            at_first = part.rest
            for place, step in (part.steps or {}).items():
                first = prim_ops.multiply(self.space.axes[place].low, step)
                at_first = prim_ops.add(at_first, first)
            offsets.append(scalar_code(self.writer, self.space.simplify(at_first)))
        shape = [scalar_code(self.writer, self.space.extent(place)) for place in axes]
        steps = [[(part.steps or {}).get(place, 0) for part in parts] for place in axes]
        view = self.writer.use("strided_view")
        name = self.writer.fresh("t")
        self.writer.line(
            f"{name} = {view}({state.code}, ({_listed(offsets)}), ({_listed(shape)}), {steps})"
        )
        return self.value(name, axes, state.dtype)

    def _reshape(self, buffer: Var, parts: list[_Part]) -> Value | None:
        """Read in row-major order, if that is what the wrapped indices amount to."""
        state = self.writer.state(buffer)
        places = self.space.axes_of_all([part.index for part in parts])
        axes = [self.space.axes[place] for place in places]
        if any(not self._is_zero(axis.low) for axis in axes):
            return None
        size: Expr = prim_ops.const(1, parts[0].index.dtype)
        position: Expr = prim_ops.const(0, parts[0].index.dtype)
        for axis in axes:
            position = prim_ops.add(prim_ops.multiply(position, axis.high), axis.var)
            size = prim_ops.multiply(size, axis.high)
        whole: Expr = prim_ops.const(1, size.dtype)
        for extent in state.shape:
            whole = prim_ops.multiply(whole, extent)
        if not self.space.equal(size, whole):
            return None
        for part, extent in zip(reversed(parts), reversed(state.shape), strict=True):
            expected = prim_ops.floormod(position, extent)
            if not self._same_index(part.index, expected):
                return None
            position = prim_ops.floordiv(position, extent)
        shape = [scalar_code(self.writer, axis.high) for axis in axes]
        code = f"{state.code}.reshape({', '.join(shape)})"
        return self.value(code, places, state.dtype)

    def _same_index(self, index: Expr, expected: Expr) -> bool:
        if self.space.equal(index, expected):
            return True
        # without the bounds, both may be written in the form that legalization left
        plain = Space([], self.space.sizes)
        return plain.equal(index, expected)

    def _take(self, buffer: Var, parts: list[_Part], out: str | None) -> Value | None:
        """Read rows: one dimension by a computed index, the others by slices."""
        state = self.writer.state(buffer)
        (chosen,) = (axis for axis, part in enumerate(parts) if part.steps is None)
        row_axes = self.axes_of(parts[chosen].index)
        order: list[int] = []
        subscripts = []
        for axis, (part, extent) in enumerate(zip(parts, state.shape, strict=True)):
            if axis == chosen:
                order.extend(row_axes)
                subscripts.append(":")
                continue
            if len(part.steps or ()) > 1:
                return None
            text, place, flipped = self.subscript(part.steps or {}, part.rest, extent)
            if flipped or place in row_axes or place in order:
                return None
            subscripts.append(text)
            if place is not None:
                order.append(place)
        if len(order) != len(set(order)):
            return None
        for axis, (part, extent) in enumerate(zip(parts, state.shape, strict=True)):
            if axis != chosen:
                self._check_ends(buffer, axis, part, extent)
        index = self._index(buffer, chosen, parts[chosen], compact=True)
        code = state.code
        if any(text != ":" for text in subscripts):
            code += f"[{', '.join(subscripts)}]"
        dropped = sum(1 for a, s in enumerate(subscripts) if a < chosen and ":" not in s)
        taken = f"np.take({code}, {index.code}, {chosen - dropped}"
        if out is not None and self.hands_down and order == list(range(self.space.rank)):
            # in bounds already: "clip" only keeps NumPy from going through a buffer of its own
            self.writer.line(f'{taken}, out={out}, mode="clip")')
            return Value(out, tuple(order), state.dtype)
        name = self.new_name()
        self.writer.line(f"{name} = {taken})")
        value = self.value(name, order, state.dtype)
        return replace(value, fresh=value.code == name and bool(order))

    def _index(self, buffer: Var, axis: int, part: _Part, compact: bool = False) -> Value:
        """Write a computed index, checked unless it is proved to stay inside."""
        state = self.writer.state(buffer)
        extent = state.shape[axis]
        value = self.emit(part.index)
        if compact and self.guard is None:
            value = Value(self.compact(value, value.axes), value.axes, value.dtype)
        if self.space.inside(part.index, extent):
            return value
        size = scalar_code(self.writer, extent)
        where = f"{self.writer.name!r}, {buffer.name!r}, {axis}"
        name = self.writer.fresh("index")
        if self.guard is not None:
            guard = self.writer.use("guard_index")
            self.writer.line(f"{name} = {guard}({value.code}, {self.guard.code}, {size}, {where})")
            axes = tuple(sorted({*value.axes, *self.guard.axes}))
            return Value(name, axes, part.index.dtype)
        check = self.writer.use("check_index")
        self.writer.line(f"{name} = {check}({value.code}, {size}, {where})")
        return Value(name, value.axes, value.dtype)

    def _gather(self, buffer: Var, parts: list[_Part]) -> Value:
        """Read element by element position, all dimensions by index arrays."""
        state = self.writer.state(buffer)
        indices = [self._index(buffer, axis, part) for axis, part in enumerate(parts)]
        axes = tuple(sorted({place for index in indices for place in index.axes}))
        name = self.writer.fresh("t")
        self.writer.line(f"{name} = {state.code}[{', '.join(i.code for i in indices)}]")
        return Value(name, axes, state.dtype, fresh=bool(axes))


def _listed(texts: list[str]) -> str:
    return (
        "".join(f"{text}, " for text in texts).rstrip(" ") if len(texts) == 1 else ", ".join(texts)
    )
