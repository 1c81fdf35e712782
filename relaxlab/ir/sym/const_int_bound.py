"""How small and how large an integer expression can be: interval arithmetic.

Bounds come from loop ranges, from what is known of symbolic dimensions (they are not negative)
and from conditions that hold where the expression stands.
Counterpart: ``tvm.sym.ConstIntBound`` and its analyzer.

Examples
--------
>>> from relaxlab.ir import Var
>>> bounds = BoundAnalyzer()
>>> v = Var("v", "int64")
>>> bounds.update(v, ConstIntBound(0, 7))
>>> bounds(v // 2 + 1)
ConstIntBound(min_value=1, max_value=4)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.op import Op
from relaxlab.ir.prim import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    Add,
    And,
    Cast,
    CompareExpr,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Select,
    Sub,
)
from relaxlab.ir.prim_literals import int_range, trunc_div
from relaxlab.ir.sym.modular_set import ModularAnalyzer
from relaxlab.ir.sym.pattern import same
from relaxlab.ir.type import PrimType
from relaxlab.runtime.dtype import DataType

__all__ = ["BoundAnalyzer", "ConstIntBound"]

_POS_INF: Final = 2**63 - 1
_NEG_INF: Final = -_POS_INF


@dataclass(frozen=True, slots=True)
class ConstIntBound:
    """The closed interval from ``min_value`` to ``max_value``; infinite at the two limits."""

    min_value: int
    max_value: int

    POS_INF: ClassVar[int] = _POS_INF
    NEG_INF: ClassVar[int] = _NEG_INF

    def intersect(self, other: "ConstIntBound") -> "ConstIntBound":
        """Return what both intervals contain."""
        return ConstIntBound(
            max(self.min_value, other.min_value), min(self.max_value, other.max_value)
        )

    def union(self, other: "ConstIntBound") -> "ConstIntBound":
        """Return the smallest interval that contains both."""
        return ConstIntBound(
            min(self.min_value, other.min_value), max(self.max_value, other.max_value)
        )

    @property
    def is_const(self) -> bool:
        """Whether there is exactly one value."""
        return self.min_value == self.max_value


_EVERYTHING: Final = ConstIntBound(_NEG_INF, _POS_INF)


def _clip(value: int) -> int:
    return _POS_INF if value >= _POS_INF else max(_NEG_INF, value)


def _is_inf(value: int) -> bool:
    return value in (_POS_INF, _NEG_INF)


def _add_limit(x: int, y: int) -> int:
    """Add two limits of one side; an infinite one stays infinite."""
    if _is_inf(x):
        return x
    return y if _is_inf(y) else _clip(x + y)


def _mul_limit(x: int, y: int) -> int:
    return _clip(x * y)


def _dtype_bound(dtype: DataType) -> ConstIntBound:
    if not (dtype.is_int or dtype.is_uint or dtype.is_bool):
        return _EVERYTHING
    low, high = int_range(dtype)
    return ConstIntBound(_clip(low), _clip(high))


def _combine(
    a: ConstIntBound, b: ConstIntBound, function: Callable[[int, int], int]
) -> ConstIntBound:
    """Apply a function that is monotone in each operand to the four corners."""
    corners = [
        function(x, y) for x in (a.min_value, a.max_value) for y in (b.min_value, b.max_value)
    ]
    return ConstIntBound(min(corners), max(corners))


def _divide_limit(x: int, y: int) -> int:
    if _is_inf(x):
        return x if y > 0 else -x
    return trunc_div(x, y)


def _floor_divide_limit(x: int, y: int) -> int:
    if _is_inf(x):
        return x if y > 0 else -x
    return x // y


def _divide(
    a: ConstIntBound, b: ConstIntBound, function: Callable[[int, int], int]
) -> ConstIntBound:
    # the divisor is never 0: the program would not get here
    if b.min_value <= 0 <= b.max_value:
        parts = []
        if b.max_value > 0:
            parts.append(_combine(a, ConstIntBound(1, b.max_value), function))
        if b.min_value < 0:
            parts.append(_combine(a, ConstIntBound(b.min_value, -1), function))
        if not parts:
            return _EVERYTHING
        return parts[0] if len(parts) == 1 else parts[0].union(parts[1])
    return _combine(a, b, function)


def _trunc_mod(a: ConstIntBound, b: ConstIntBound) -> ConstIntBound:
    if b.min_value <= 0:
        return _EVERYTHING
    limit = b.max_value if _is_inf(b.max_value) else b.max_value - 1
    if a.min_value >= 0:
        # smaller than the divisor for sure: unchanged
        if a.max_value < b.min_value:
            return a
        return ConstIntBound(0, min(a.max_value, limit))
    return ConstIntBound(max(a.min_value, _clip(-limit)), min(max(a.max_value, 0), limit))


def _floor_mod(a: ConstIntBound, b: ConstIntBound) -> ConstIntBound:
    # the divisor is never 0: the program would not get here
    if b.min_value >= 0 and b.max_value > 0:
        limit = b.max_value if _is_inf(b.max_value) else b.max_value - 1
        if a.min_value >= 0:
            if a.max_value < b.min_value:
                return a
            return ConstIntBound(0, min(a.max_value, limit))
        return ConstIntBound(0, limit)
    low = b.min_value if _is_inf(b.min_value) else b.min_value + 1
    high = b.max_value if _is_inf(b.max_value) else b.max_value - 1
    return ConstIntBound(min(low, 0), max(high, 0))


@dataclass(frozen=True, slots=True)
class _Fact:
    """A bound of an expression that holds where a condition was entered."""

    expr: Expr
    bound: ConstIntBound


class BoundAnalyzer:
    """Computes bounds; remembers those of variables and the conditions entered."""

    def __init__(self, modular: ModularAnalyzer | None = None) -> None:
        self._modular = modular or ModularAnalyzer()
        self._vars: dict[Var, ConstIntBound] = {}
        self._facts: list[_Fact] = []

    def update(self, var: Var, bound: ConstIntBound) -> None:
        """Set what is known of a variable."""
        self._vars[var] = bound

    def known(self, var: Var) -> ConstIntBound | None:
        """Return what was set for a variable, if anything."""
        return self._vars.get(var)

    def forget(self, var: Var) -> None:
        """Drop what is known of a variable."""
        self._vars.pop(var, None)

    def enter(self, condition: Expr) -> Callable[[], None]:
        """Assume a condition until the returned function is called."""
        mark = len(self._facts)
        self._facts.extend(_facts_of(condition))

        def leave() -> None:
            del self._facts[mark:]

        return leave

    def __call__(self, expr: Expr) -> ConstIntBound:
        """Return the bounds of an integer expression."""
        compute = _COMPUTE.get(type(expr))
        bound = compute(self, expr) if compute is not None else self._default(expr)
        for fact in self._facts:
            if same(fact.expr, expr):
                bound = bound.intersect(fact.bound)
        return bound

    def _default(self, expr: Expr) -> ConstIntBound:
        return _dtype_bound(expr.dtype) if isinstance(expr.ty, PrimType) else _EVERYTHING

    def _literal(self, expr: Any) -> ConstIntBound:
        value = _clip(expr.value)
        return ConstIntBound(value, value)

    def _var(self, expr: Any) -> ConstIntBound:
        return self._vars.get(expr) or self._default(expr)

    def _cast(self, expr: Any) -> ConstIntBound:
        source = expr.value.dtype
        if not (source.is_int or source.is_uint or source.is_bool):
            return self._default(expr)
        inner = self(expr.value)
        target = _dtype_bound(expr.dtype)
        fits = inner.min_value >= target.min_value and inner.max_value <= target.max_value
        return inner if fits else target

    def _add(self, expr: Any) -> ConstIntBound:
        a, b = self(expr.a), self(expr.b)
        return ConstIntBound(
            _add_limit(a.min_value, b.min_value), _add_limit(a.max_value, b.max_value)
        )

    def _sub(self, expr: Any) -> ConstIntBound:
        a, b = self(expr.a), self(expr.b)
        return ConstIntBound(
            _add_limit(a.min_value, -b.max_value), _add_limit(a.max_value, -b.min_value)
        )

    def _mul(self, expr: Any) -> ConstIntBound:
        return _combine(self(expr.a), self(expr.b), _mul_limit)

    def _trunc_div(self, expr: Any) -> ConstIntBound:
        return _divide(self(expr.a), self(expr.b), _divide_limit)

    def _floor_div(self, expr: Any) -> ConstIntBound:
        return _divide(self(expr.a), self(expr.b), _floor_divide_limit)

    def _trunc_mod(self, expr: Any) -> ConstIntBound:
        return _trunc_mod(self(expr.a), self(expr.b))

    def _floor_mod(self, expr: Any) -> ConstIntBound:
        divisor = self(expr.b)
        bound = _floor_mod(self(expr.a), divisor)
        if divisor.is_const and divisor.min_value > 0:
            # (4 * x + 1) % 8 is 1 or 5
            step = self._modular(expr.a).modulo(divisor.min_value)
            if step.coeff > 1:
                highest = step.base + (divisor.min_value - 1 - step.base) // step.coeff * step.coeff
                bound = bound.intersect(ConstIntBound(step.base, highest))
        return bound

    def _min(self, expr: Any) -> ConstIntBound:
        a, b = self(expr.a), self(expr.b)
        return ConstIntBound(min(a.min_value, b.min_value), min(a.max_value, b.max_value))

    def _max(self, expr: Any) -> ConstIntBound:
        a, b = self(expr.a), self(expr.b)
        return ConstIntBound(max(a.min_value, b.min_value), max(a.max_value, b.max_value))

    def _select(self, expr: Any) -> ConstIntBound:
        return self(expr.true_value).union(self(expr.false_value))

    def _let(self, expr: Any) -> ConstIntBound:
        before = self._vars.get(expr.var)
        self._vars[expr.var] = self(expr.value)
        try:
            return self(expr.body)
        finally:
            if before is None:
                del self._vars[expr.var]
            else:
                self._vars[expr.var] = before

    def _call(self, expr: Any) -> ConstIntBound:
        compute = _COMPUTE_CALL.get(expr.op.name) if isinstance(expr.op, Op) else None
        return compute(self, expr) if compute is not None else self._default(expr)

    def _shift_right(self, expr: Any) -> ConstIntBound:
        a, b = (self(arg) for arg in expr.args)
        if b.min_value < 0 or b.max_value >= expr.dtype.bits:
            return self._default(expr)
        return _combine(a, b, lambda x, y: x if _is_inf(x) else x >> y)

    def _shift_left(self, expr: Any) -> ConstIntBound:
        a, b = (self(arg) for arg in expr.args)
        if a.min_value < 0 or b.min_value < 0 or b.max_value >= expr.dtype.bits:
            return self._default(expr)
        bound = _combine(a, b, lambda x, y: _clip(x << y))
        limit = _dtype_bound(expr.dtype)
        return bound if bound.max_value <= limit.max_value else limit

    def _bitwise_and(self, expr: Any) -> ConstIntBound:
        a, b = (self(arg) for arg in expr.args)
        uppers = [bound.max_value for bound in (a, b) if bound.min_value >= 0]
        # a non-negative operand caps the result and clears its sign
        return ConstIntBound(0, min(uppers)) if uppers else self._default(expr)


_COMPUTE: Final[dict[type, Callable[[BoundAnalyzer, Any], ConstIntBound]]] = {
    IntImm: BoundAnalyzer._literal,
    Var: BoundAnalyzer._var,
    Cast: BoundAnalyzer._cast,
    Add: BoundAnalyzer._add,
    Sub: BoundAnalyzer._sub,
    Mul: BoundAnalyzer._mul,
    Div: BoundAnalyzer._trunc_div,
    Mod: BoundAnalyzer._trunc_mod,
    FloorDiv: BoundAnalyzer._floor_div,
    FloorMod: BoundAnalyzer._floor_mod,
    Min: BoundAnalyzer._min,
    Max: BoundAnalyzer._max,
    Select: BoundAnalyzer._select,
    Let: BoundAnalyzer._let,
    Call: BoundAnalyzer._call,
}
_COMPUTE_CALL: Final[dict[str, Callable[[BoundAnalyzer, Any], ConstIntBound]]] = {
    "tirx.bitwise_and": BoundAnalyzer._bitwise_and,
    "tirx.shift_left": BoundAnalyzer._shift_left,
    "tirx.shift_right": BoundAnalyzer._shift_right,
}


def _facts_of(condition: Expr) -> list[_Fact]:
    """Return the bounds that a condition states: ``x < 3`` bounds ``x``, ``and`` joins."""
    match condition:
        case And(a=a, b=b):
            return _facts_of(a) + _facts_of(b)
        case Not(a=LT(a=a, b=b)):
            return _facts_of(GE(a, b))
        case Not(a=LE(a=a, b=b)):
            return _facts_of(GT(a, b))
        case Not(a=GT(a=a, b=b)):
            return _facts_of(LE(a, b))
        case Not(a=GE(a=a, b=b)):
            return _facts_of(LT(a, b))
        case CompareExpr(a=a, b=IntImm(value=value)):
            return _fact(type(condition), a, value)
        case CompareExpr(a=IntImm(value=value), b=b):
            return _fact(_MIRRORED.get(type(condition), type(condition)), b, value)
        case _:
            return []


_MIRRORED: Final[dict[type, type]] = {LT: GT, LE: GE, GT: LT, GE: LE, EQ: EQ}


def _fact(kind: type, expr: Expr, value: int) -> list[_Fact]:
    if kind is LT:
        return [_Fact(expr, ConstIntBound(_NEG_INF, value - 1))]
    if kind is LE:
        return [_Fact(expr, ConstIntBound(_NEG_INF, value))]
    if kind is GT:
        return [_Fact(expr, ConstIntBound(value + 1, _POS_INF))]
    if kind is GE:
        return [_Fact(expr, ConstIntBound(value, _POS_INF))]
    if kind is EQ:
        return [_Fact(expr, ConstIntBound(value, value))]
    return []
