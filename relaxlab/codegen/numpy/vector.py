"""Expressions over an iteration space as NumPy text: one array operation per node.

An array value is aligned with the space from the right, with size one along axes that it does
not depend on, so NumPy's broadcasting does the rest. Views are used wherever an index is linear
in the axes; only data-dependent or wrapped indices gather. Counterpart: the loop bodies that
TVM's back ends emit.

Examples
--------
>>> from relaxlab.codegen.numpy.space import Axis, Space
>>> from relaxlab.codegen.numpy.writer import Writer
>>> from relaxlab.ir import IntImm, TensorLoad, Var
>>> from relaxlab.tirx import decl_buffer
>>> writer, i = Writer("f"), Var("i", "int64")
>>> x = decl_buffer((IntImm("int64", 4),), name="x")
>>> _ = writer.declare(x, "array")
>>> space = Space([Axis(i, IntImm("int64", 0), IntImm("int64", 4))])
>>> VectorCode(writer, space).emit(TensorLoad(x, (i,)) * 2.0, out="y").code, writer.lines
('y', ['    np.multiply(x, c0, out=y)'])
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from relaxlab.codegen.numpy.scalar_code import scalar_code
from relaxlab.codegen.numpy.space import Space, linear, variables_of
from relaxlab.codegen.numpy.writer import Unsupported, Writer
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.node import children
from relaxlab.ir.op import Op
from relaxlab.ir.prim import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Select,
    Sub,
    TensorLoad,
)
from relaxlab.ir.prim_functor import post_order_visit, substitute
from relaxlab.ir.type import PrimType
from relaxlab.runtime.dtype import DataType

__all__ = ["Value", "VectorCode", "transposed"]

_BINARY: Final[dict[type, str]] = {
    Add: "np.add",
    Sub: "np.subtract",
    Mul: "np.multiply",
    EQ: "np.equal",
    NE: "np.not_equal",
    LT: "np.less",
    LE: "np.less_equal",
    GT: "np.greater",
    GE: "np.greater_equal",
    And: "np.logical_and",
    Or: "np.logical_or",
}
_DIVISION: Final[dict[type, tuple[str, str]]] = {
    # of literals that are not zero, and of anything
    Div: ("trunc_divide", "trunc_divide"),
    Mod: ("np.fmod", "trunc_mod"),
    FloorDiv: ("np.floor_divide", "floor_divide"),
    FloorMod: ("np.remainder", "floor_mod"),
}
_UNARY_CALLS: Final = {
    "acos": "np.arccos",
    "acosh": "np.arccosh",
    "asin": "np.arcsin",
    "asinh": "np.arcsinh",
    "atan": "np.arctan",
    "atanh": "np.arctanh",
    "ceil": "np.ceil",
    "cos": "np.cos",
    "cosh": "np.cosh",
    "erf": "erf",
    "exp": "np.exp",
    "exp10": "exp10",
    "exp2": "np.exp2",
    "fabs": "np.abs",
    "floor": "np.floor",
    "isfinite": "np.isfinite",
    "isinf": "np.isinf",
    "isnan": "np.isnan",
    "log": "np.log",
    "log10": "np.log10",
    "log1p": "np.log1p",
    "log2": "np.log2",
    "nearbyint": "np.rint",
    "round": "np.rint",
    "rsqrt": "rsqrt",
    "sigmoid": "sigmoid",
    "sin": "np.sin",
    "sinh": "np.sinh",
    "sqrt": "np.sqrt",
    "tan": "np.tan",
    "tanh": "np.tanh",
    "trunc": "np.trunc",
}
_BINARY_CALLS: Final = {
    "atan2": "np.arctan2",
    "bitwise_and": "np.bitwise_and",
    "bitwise_or": "np.bitwise_or",
    "bitwise_xor": "np.bitwise_xor",
    "copysign": "np.copysign",
    "fmod": "np.fmod",
    "hypot": "np.hypot",
    "nextafter": "np.nextafter",
    "pow": "np.power",
}


@dataclass(frozen=True, slots=True)
class Value:
    """The text of a value.

    Attributes
    ----------
    code
        An atom: a name, a call or a subscript.
    axes
        Places of the axes it varies along; none for a scalar.
    dtype
        Its element type.
    fresh
        Whether it is a named array that nothing else refers to, so it may be overwritten.
    plain
        The array before it was aligned with the space; its dimensions follow ``order``.
    order
        Places of the axes, dimension by dimension, of ``plain``.
    """

    code: str
    axes: tuple[int, ...]
    dtype: DataType
    fresh: bool = False
    plain: str = ""
    order: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """One dimension of a read: linear steps and rest, or an index that must be computed."""

    index: Expr
    steps: dict[int, int] | None
    rest: Expr


class VectorCode:
    """Writes the expressions of one nest.

    Parameters
    ----------
    writer
        Where lines go.
    space
        The iteration space.
    """

    def __init__(self, writer: Writer, space: Space) -> None:
        self.writer = writer
        self.space = space
        self.bound: dict[Var, Value] = {}
        self._guard: Value | None = None
        self._counts: Counter[Any] = Counter()
        self._reads: Counter[Var] = Counter()
        self._shared: dict[Any, Value] = {}
        self._keys: dict[int, tuple[Expr, Any]] = {}
        #: Whether an operand may be computed in the target of the whole expression.
        self.hands_down = writer.no_alias
        #: Name for the next new array, so that a buffer's first value is computed under its name.
        self.wanted_name: str | None = None

    def new_name(self) -> str:
        """Return a name for a new array."""
        name, self.wanted_name = self.wanted_name, None
        return name or self.writer.fresh("t")

    # ------------------------------------------------------------ shared subexpressions

    def expect(self, expr: Expr) -> None:
        """Note the parts of an expression that is going to be written, to share equal ones."""
        self._count(expr)
        post_order_visit(
            expr, lambda n: self._reads.update([n.buffer]) if isinstance(n, TensorLoad) else None
        )

    def _count(self, expr: Expr) -> None:
        key = self._key(expr)
        self._counts[key] += 1
        if self._counts[key] == 1:
            for child in children(expr):
                if isinstance(child, Expr) and not isinstance(child, Op):
                    self._count(child)

    def _key(self, expr: Any) -> Any:
        known = self._keys.get(id(expr))
        if known is not None:
            return known[1]
        key: Any
        match expr:
            case Var():
                key = expr
            case IntImm(dtype=dtype, value=value) | FloatImm(dtype=dtype, value=value):
                key = (dtype, repr(value))
            case Call():
                key = (expr.op, *(self._key(arg) for arg in expr.args), expr.ty)
            case Cast():
                key = (Cast, expr.dtype, self._key(expr.value))
            case _:
                parts = (c for c in children(expr) if isinstance(c, Expr))
                key = (type(expr), *(self._key(part) for part in parts))
        self._keys[id(expr)] = (expr, key)
        return key

    # ------------------------------------------------------------ expressions

    def emit(self, expr: Any, out: str | None = None) -> Value:
        """Write what computes an expression and return its value.

        Parameters
        ----------
        expr
            The expression.
        out
            An array of the whole space's shape and of the expression's dtype that the result
            may be written into; the value's code is ``out`` if it was.
        """
        axes = self.space.axes_of(expr)
        if isinstance(expr, Var) and expr in self.bound:
            return self.bound[expr]
        if not axes and not self._uses_bound(expr):
            return self._scalar(expr)
        if isinstance(expr, Var):
            return self._axis(expr)
        key = self._key(expr)
        shared = self._shared.get(key)
        if shared is not None:
            return shared
        is_shared = self._counts[key] > 1 and self._guard is None
        value = self._compute(expr, None if is_shared else out)
        if is_shared:
            value = replace(self.named(value), fresh=False)
            self._shared[key] = value
        return value

    def _uses_bound(self, expr: Expr) -> bool:
        return bool(self.bound) and any(v in self.bound for v in variables_of(expr))

    def named(self, value: Value) -> Value:
        """Return the value under a name, so that writing its text twice computes it once."""
        if value.code.isidentifier():
            return value
        name = self.writer.fresh("t")
        self.writer.line(f"{name} = {value.code}")
        return replace(value, code=name)

    def _scalar(self, expr: Expr) -> Value:
        match expr:
            case IntImm(dtype=dtype, value=value) | FloatImm(dtype=dtype, value=value):
                return Value(self.writer.literal(value, dtype), (), dtype)
            case _:
                if not isinstance(expr.ty, PrimType) or expr.dtype.lanes != 1:
                    raise Unsupported
                if self._guard is not None and not self._safe(expr):
                    raise Unsupported
                text = scalar_code(self.writer, expr)
                return Value(text if text.isidentifier() else f"({text})", (), expr.dtype)

    def _safe(self, expr: Expr) -> bool:
        """Whether all reads inside are in bounds even where the guard is false."""
        loads: list[TensorLoad] = []
        post_order_visit(expr, lambda n: loads.append(n) if isinstance(n, TensorLoad) else None)
        return all(
            self.space.inside(index, extent)
            for load in loads
            for index, extent in zip(
                load.indices, self.writer.state(load.buffer).shape, strict=True
            )
        )

    def _axis(self, var: Var) -> Value:
        place = self.space.place[var]
        axis = self.space.axes[place]
        low, high = axis.low, axis.high
        dtype = self.writer.dtype(var.dtype)
        bounds = scalar_code(self.writer, high)
        if not (isinstance(low, IntImm) and low.value == 0):
            bounds = f"{scalar_code(self.writer, low)}, {bounds}"
        text = f"np.arange({bounds}, dtype={dtype})"
        if isinstance(low, IntImm) and isinstance(high, IntImm):
            values = np.arange(low.value, high.value, dtype=var.dtype.numpy())
            values.setflags(write=False)
            text = self.writer.constant(values, text)
        return self._value(text, [place], var.dtype)

    def _value(self, plain: str, order: Sequence[int], dtype: DataType) -> Value:
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

    def _compute(self, expr: Any, out: str | None) -> Value:
        if expr.dtype.lanes != 1:
            raise Unsupported
        match expr:
            case TensorLoad():
                return self._load(expr, out)
            case Min(a=a, b=b) | Max(a=a, b=b):
                return self._extremum(expr, a, b, out)
            case Select(condition=condition, true_value=yes, false_value=no):
                return self._choose(condition, yes, no, expr.dtype)
            case Not(a=a):
                return self._apply("np.logical_not", [a], expr.dtype, out)
            case Cast(dtype=dtype, value=value):
                return self._cast(value, dtype)
            case Let(var=var, value=value, body=body):
                self.bound[var] = self.named(self.emit(value))
                return self.emit(body, out)
            case Call():
                return self._call(expr, out)
            case _:
                return self._binary(expr, out)

    def _binary(self, expr: Any, out: str | None) -> Value:
        function = _BINARY.get(type(expr))
        if function is None:
            division = _DIVISION.get(type(expr))
            if division is None:
                raise Unsupported
            function = self._division(expr, *division)
        return self._apply(function, [expr.a, expr.b], expr.dtype, out)

    def _division(self, expr: Any, fast: str, checked: str) -> str:
        if expr.dtype.is_float:
            return "np.divide" if isinstance(expr, Div) else "np.fmod"
        divisor = expr.b
        if isinstance(divisor, IntImm) and divisor.value != 0:
            return fast if fast.startswith("np.") else self.writer.use(fast)
        return self.writer.use(checked)

    def _apply(
        self, function: str, operands: Sequence[Expr], dtype: DataType, out: str | None
    ) -> Value:
        """Write one array operation, into ``out`` or an operand that is no longer needed."""
        axes = tuple(sorted({a for operand in operands for a in self._axes(operand)}))
        full = len(axes) == self.space.rank
        target = out if full else None
        values: list[Value] = []
        handed_on = False
        for operand in operands:
            # the first operand that fills the space may use the target meanwhile
            usable = (
                target is not None
                and not handed_on
                and self.hands_down
                and self._fills(operand, dtype, axes)
            )
            value = self.emit(operand, target if usable else None)
            handed_on = handed_on or value.code == target
            values.append(value)
        arguments = ", ".join(value.code for value in values)
        if target is not None:
            self.writer.line(f"{function}({arguments}, out={target})")
            return Value(target, axes, dtype)
        # an index may have turned out not to move with an axis that it mentions
        axes = tuple(sorted({place for value in values for place in value.axes}))
        for value in values:
            if value.fresh and value.axes == axes and value.dtype is dtype:
                self.writer.line(f"{function}({arguments}, out={value.code})")
                return Value(value.code, axes, dtype, fresh=True)
        name = self.new_name()
        self.writer.line(f"{name} = {function}({arguments})")
        return Value(name, axes, dtype, fresh=bool(axes))

    def _axes(self, expr: Expr) -> tuple[int, ...]:
        places = set(self.space.axes_of(expr))
        if self.bound:
            for var in variables_of(expr):
                if var in self.bound:
                    places.update(self.bound[var].axes)
        return tuple(sorted(places))

    def _fills(self, operand: Expr, dtype: DataType, axes: tuple[int, ...]) -> bool:
        if isinstance(operand, TensorLoad | Var) or operand.dtype is not dtype:
            return False
        return self._axes(operand) == axes and self._counts[self._key(operand)] <= 1

    # ------------------------------------------------------------ special nodes

    def _extremum(self, expr: Any, a: Expr, b: Expr, out: str | None) -> Value:
        larger = isinstance(expr, Max)
        name = "maximum" if larger else "minimum"
        if not expr.dtype.is_float or _never_nan(a):
            # a NaN can only be in b, and is the result there
            return self._apply(f"np.{name}", [a, b], expr.dtype, out)
        if _never_nan(b):
            # a NaN in a gives b
            return self._apply("np.fmax" if larger else "np.fmin", [a, b], expr.dtype, out)
        x, y = self.named(self.emit(a)), self.named(self.emit(b))
        axes = tuple(sorted({*x.axes, *y.axes}))
        test = "np.greater" if larger else "np.less"
        name = self.new_name()
        self.writer.line(f"{name} = np.where({test}({x.code}, {y.code}), {x.code}, {y.code})")
        return Value(name, axes, expr.dtype, fresh=bool(axes))

    def _choose(self, condition: Expr, yes: Expr, no: Expr, dtype: DataType) -> Value:
        test = self.named(self.emit(condition))
        outer = self._guard
        try:
            self._guard = self._both(outer, test)
            first = self.emit(yes)
            negated = Value(f"np.logical_not({test.code})", test.axes, test.dtype)
            self._guard = self._both(outer, negated)
            second = self.emit(no)
        finally:
            self._guard = outer
        axes = tuple(sorted({*test.axes, *first.axes, *second.axes}))
        name = self.new_name()
        self.writer.line(f"{name} = np.where({test.code}, {first.code}, {second.code})")
        if not first.axes and not second.axes and dtype.is_int:
            # Python ints have no dtype of their own
            self.writer.line(f"{name} = {name}.astype({self.writer.dtype(dtype)})")
        return Value(name, axes, dtype, fresh=bool(axes))

    def _both(self, outer: Value | None, test: Value) -> Value:
        if outer is None:
            return test
        axes = tuple(sorted({*outer.axes, *test.axes}))
        # written only where an index needs it
        return Value(f"np.logical_and({outer.code}, {test.code})", axes, test.dtype)

    def _cast(self, value: Expr, dtype: DataType) -> Value:
        inner = self.emit(value)
        if inner.dtype is dtype:
            return inner
        if not inner.axes:
            raise Unsupported
        name = self.new_name()
        self.writer.line(f"{name} = {inner.code}.astype({self.writer.dtype(dtype)})")
        return Value(name, inner.axes, dtype, fresh=True)

    def _call(self, call: Call, out: str | None) -> Value:
        name = call.op.name.removeprefix("tirx.") if isinstance(call.op, Op) else ""
        args = call.args
        if name == "if_then_else":
            return self._choose(args[0], args[1], args[2], call.dtype)
        if name == "likely":
            return self.emit(args[0], out)
        if name == "bitwise_not":
            function = "np.logical_not" if call.dtype.is_bool else "np.invert"
            return self._apply(function, args, call.dtype, out)
        if name in _UNARY_CALLS and args[0].dtype.is_float:
            function = _UNARY_CALLS[name]
            if not function.startswith("np."):
                self.writer.use(function)
            return self._apply(function, args, call.dtype, out)
        if name in _BINARY_CALLS and args[0].dtype is args[1].dtype:
            return self._apply(_BINARY_CALLS[name], args, call.dtype, out)
        if name in ("shift_left", "shift_right"):
            direction = "left" if name == "shift_left" else "right"
            amount = args[1]
            if isinstance(amount, IntImm) and 0 <= amount.value < call.dtype.bits:
                return self._apply(f"np.{direction}_shift", args, call.dtype, out)
            return self._apply(self.writer.use(f"shift_{direction}"), args, call.dtype, out)
        if name == "reinterpret" and args[0].dtype.bits == call.dtype.bits:
            inner = self.named(self.emit(args[0]))
            if not inner.axes:
                raise Unsupported
            return Value(
                f"{inner.code}.view({self.writer.dtype(call.dtype)})", inner.axes, call.dtype
            )
        raise Unsupported

    # ------------------------------------------------------------ reads

    def _load(self, load: TensorLoad, out: str | None) -> Value:
        state = self.writer.state(load.buffer)
        if state.holds == "nothing" or len(load.indices) != len(state.shape):
            raise Unsupported
        parts = [self._part(index) for index in load.indices]
        computed = [part for part in parts if part.steps is None]
        guarded = self._guard is not None and not all(
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
            and self._reads[buffer] == 1
            and value.code == state.code
            and value.axes == tuple(range(self.space.rank))
            and not any(axis.reduce for axis in self.space.axes)
        )

    def _part(self, index: Expr) -> _Part:
        if self._uses_bound(index):
            return _Part(index, None, index)
        found = linear(index, self.space.place)
        if found is None and self.space.fixed:
            index = substitute(index, self.space.fixed)
            found = linear(index, self.space.place)
        return _Part(index, None, index) if found is None else _Part(index, *found)

    def _check_ends(self, buffer: Var, axis: int, part: _Part, extent: Expr) -> None:
        """Write a check that a linear index stays inside, unless that is proved."""
        low, high = self.space.ends(part.steps or {}, part.rest)
        zero = prim_ops.const(0, low.dtype)
        if self.space.at_least_zero(low) and self.space.at_least_zero(
            prim_ops.subtract(prim_ops.subtract(extent, 1), high)
        ):
            return
        del zero
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
        return self._value(code, order, state.dtype)

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
        return self._value(name, axes, state.dtype)

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
        return self._value(code, places, state.dtype)

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
        row_axes = self._axes(parts[chosen].index)
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
        value = self._value(name, order, state.dtype)
        return replace(value, fresh=value.code == name and bool(order))

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

    def _index(self, buffer: Var, axis: int, part: _Part, compact: bool = False) -> Value:
        """Write a computed index, checked unless it is proved to stay inside."""
        state = self.writer.state(buffer)
        extent = state.shape[axis]
        value = self.emit(part.index)
        if compact and self._guard is None:
            value = Value(self.compact(value, value.axes), value.axes, value.dtype)
        if self.space.inside(part.index, extent):
            return value
        size = scalar_code(self.writer, extent)
        where = f"{self.writer.name!r}, {buffer.name!r}, {axis}"
        name = self.writer.fresh("index")
        if self._guard is not None:
            guard = self.writer.use("guard_index")
            self.writer.line(f"{name} = {guard}({value.code}, {self._guard.code}, {size}, {where})")
            axes = tuple(sorted({*value.axes, *self._guard.axes}))
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


def transposed(code: str, order: Sequence[int], wanted: Sequence[int]) -> str:
    """Return the text of an array with its dimensions moved from ``order`` to ``wanted``."""
    if list(order) == list(wanted):
        return code
    moves = [list(order).index(place) for place in wanted]
    return code + (".T" if moves == [1, 0] else f".transpose({', '.join(map(str, moves))})")


def _listed(texts: list[str]) -> str:
    return (
        "".join(f"{text}, " for text in texts).rstrip(" ") if len(texts) == 1 else ", ".join(texts)
    )


def _never_nan(expr: Expr) -> bool:
    """Say whether a value is surely no NaN: literals, converted integers, and clipped values."""
    if not expr.dtype.is_float:
        return True
    match expr:
        case FloatImm(value=value):
            return value == value
        case Cast(value=value):
            return not value.dtype.is_float or _never_nan(value)
        case Max(b=b) | Min(b=b):
            return _never_nan(b)
        case Select(true_value=a, false_value=b):
            return _never_nan(a) and _never_nan(b)
        case _:
            return False
