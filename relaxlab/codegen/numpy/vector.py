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
from dataclasses import replace
from typing import Any, Final

import numpy as np

from relaxlab.codegen.numpy.reads import Reads
from relaxlab.codegen.numpy.scalar_code import scalar_code
from relaxlab.codegen.numpy.space import Space
from relaxlab.codegen.numpy.value import Value
from relaxlab.codegen.numpy.writer import Unsupported, Writer
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
from relaxlab.ir.prim_functor import post_order_visit
from relaxlab.ir.type import PrimType
from relaxlab.runtime.dtype import DataType

__all__ = ["VectorCode"]

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


class VectorCode(Reads):
    """Writes the expressions of one nest.

    Parameters
    ----------
    writer
        Where lines go.
    space
        The iteration space.
    """

    def __init__(self, writer: Writer, space: Space) -> None:
        super().__init__(writer, space)
        self._counts: Counter[Any] = Counter()
        self._shared: dict[Any, Value] = {}
        self._keys: dict[int, tuple[Expr, Any]] = {}

    # ------------------------------------------------------------ shared subexpressions

    def expect(self, expr: Expr) -> None:
        """Note the parts of an expression that is going to be written, to share equal ones."""
        self._count(expr)
        post_order_visit(
            expr,
            lambda n: self.read_counts.update([n.buffer]) if isinstance(n, TensorLoad) else None,
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
        if not axes and not self.uses_bound(expr):
            return self._scalar(expr)
        if isinstance(expr, Var):
            return self._axis(expr)
        key = self._key(expr)
        shared = self._shared.get(key)
        if shared is not None:
            return shared
        is_shared = self._counts[key] > 1 and self.guard is None
        value = self._compute(expr, None if is_shared else out)
        if is_shared:
            value = replace(self.named(value), fresh=False)
            self._shared[key] = value
        return value

    def _scalar(self, expr: Expr) -> Value:
        match expr:
            case IntImm(dtype=dtype, value=value) | FloatImm(dtype=dtype, value=value):
                return Value(self.writer.literal(value, dtype), (), dtype)
            case _:
                if not isinstance(expr.ty, PrimType) or expr.dtype.lanes != 1:
                    raise Unsupported
                if self.guard is not None and not self._safe(expr):
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
        return self.value(text, [place], var.dtype)

    def _compute(self, expr: Any, out: str | None) -> Value:
        if expr.dtype.lanes != 1:
            raise Unsupported
        match expr:
            case TensorLoad():
                return self.load(expr, out)
            case Min(a=a, b=b) | Max(a=a, b=b):
                return self._extremum(expr, a, b, out)
            case Select(condition=condition, true_value=yes, false_value=no):
                return self._choose(condition, yes, no, expr.dtype)
            case Not(a=a):
                return self._apply("np.logical_not", [a], expr.dtype, out)
            case Cast(dtype=dtype, value=value):
                return self._cast(value, dtype)
            case Let(var=var, value=value, body=body):
                # it may be read again: nothing may be written over it
                self.bound[var] = replace(self.named(self.emit(value)), fresh=False)
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
        axes = tuple(sorted({a for operand in operands for a in self.axes_of(operand)}))
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

    def _fills(self, operand: Expr, dtype: DataType, axes: tuple[int, ...]) -> bool:
        if isinstance(operand, TensorLoad | Var) or operand.dtype is not dtype:
            return False
        return self.axes_of(operand) == axes and self._counts[self._key(operand)] <= 1

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
        outer = self.guard
        try:
            self.guard = self._both(outer, test)
            first = self.emit(yes)
            negated = Value(f"np.logical_not({test.code})", test.axes, test.dtype)
            self.guard = self._both(outer, negated)
            second = self.emit(no)
        finally:
            self.guard = outer
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
