"""Intervals with symbolic ends: the largest value of ``n * 4`` when only ``m`` is bounded.

Memory planning asks for the largest value of a dimension when some of its variables have an
upper bound and others do not. Counterpart: ``tvm.sym.IntervalSet`` and ``Analyzer.int_set``.

Examples
--------
>>> from relaxlab.ir import IntImm, Var
>>> from relaxlab.ir.sym import Analyzer
>>> n, m = Var("n", "int64"), Var("m", "int64")
>>> zero, ten = IntImm("int64", 0), IntImm("int64", 10)
>>> Analyzer().int_set(n + 1, {n: IntervalSet(zero, ten)}).max_value.value
11
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.op import Op
from relaxlab.ir.prim import (
    Add,
    Cast,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mul,
    Select,
    Sub,
)

__all__ = ["IntervalSet", "evaluate_interval"]


@dataclass(frozen=True, slots=True)
class IntervalSet:
    """The integers from ``min_value`` to ``max_value``, both included; None is unbounded."""

    min_value: Expr | None
    max_value: Expr | None

    @property
    def is_point(self) -> bool:
        """Whether both ends are the same expression."""
        return self.min_value is not None and self.min_value is self.max_value


_EVERYTHING: Final = IntervalSet(None, None)


class _Simplifier(Protocol):
    def simplify(self, expr: Expr) -> Expr:
        """Simplify an expression."""

    def can_prove_greater_equal(self, expr: Expr, lower: int) -> bool:
        """Whether an expression is at least a number for sure."""


def evaluate_interval(
    analyzer: _Simplifier, expr: Expr, domains: Mapping[Var, IntervalSet]
) -> IntervalSet:
    """Return the interval that ``expr`` lies in when its variables lie in ``domains``."""
    result = _Evaluator(analyzer, domains).visit(expr)
    if result.is_point and result.min_value is not None:
        point = analyzer.simplify(result.min_value)
        return IntervalSet(point, point)
    return IntervalSet(
        None if result.min_value is None else analyzer.simplify(result.min_value),
        None if result.max_value is None else analyzer.simplify(result.max_value),
    )


def _apply(function: Callable[[Any, Any], Expr], a: Expr | None, b: Expr | None) -> Expr | None:
    return None if a is None or b is None else function(a, b)


class _Evaluator:
    def __init__(self, analyzer: _Simplifier, domains: Mapping[Var, IntervalSet]) -> None:
        self.analyzer = analyzer
        self.domains = domains

    def visit(self, expr: Any) -> IntervalSet:
        handler = _HANDLERS.get(type(expr))
        return IntervalSet(expr, expr) if handler is None else handler(self, expr)

    def _positive(self, expr: Expr | None) -> bool:
        return expr is not None and self.analyzer.can_prove_greater_equal(expr, 0)

    def var(self, expr: Any) -> IntervalSet:
        return self.domains.get(expr, IntervalSet(expr, expr))

    def add(self, expr: Any) -> IntervalSet:
        a, b = self.visit(expr.a), self.visit(expr.b)
        if a.is_point and b.is_point:
            return IntervalSet(expr, expr)
        return IntervalSet(
            _apply(prim_ops.add, a.min_value, b.min_value),
            _apply(prim_ops.add, a.max_value, b.max_value),
        )

    def sub(self, expr: Any) -> IntervalSet:
        a, b = self.visit(expr.a), self.visit(expr.b)
        if a.is_point and b.is_point:
            return IntervalSet(expr, expr)
        return IntervalSet(
            _apply(prim_ops.subtract, a.min_value, b.max_value),
            _apply(prim_ops.subtract, a.max_value, b.min_value),
        )

    def mul(self, expr: Any) -> IntervalSet:
        a, b = self.visit(expr.a), self.visit(expr.b)
        if a.is_point and b.is_point:
            return IntervalSet(expr, expr)
        if a.is_point:
            a, b = b, a
        if b.is_point and b.min_value is not None:
            if self._positive(b.min_value):
                low, high = a.min_value, a.max_value
            elif self._positive(prim_ops.negative(b.min_value)):
                low, high = a.max_value, a.min_value
            else:
                return _EVERYTHING
            return IntervalSet(
                _apply(prim_ops.multiply, low, b.min_value),
                _apply(prim_ops.multiply, high, b.min_value),
            )
        if self._positive(a.min_value) and self._positive(b.min_value):
            return IntervalSet(
                _apply(prim_ops.multiply, a.min_value, b.min_value),
                _apply(prim_ops.multiply, a.max_value, b.max_value),
            )
        return _EVERYTHING

    def floor_div(self, expr: Any) -> IntervalSet:
        a, b = self.visit(expr.a), self.visit(expr.b)
        if a.is_point and b.is_point:
            return IntervalSet(expr, expr)
        divisor = b.min_value
        if not b.is_point or divisor is None:
            return _EVERYTHING
        if not self.analyzer.can_prove_greater_equal(divisor, 1):
            return _EVERYTHING
        return IntervalSet(
            _apply(prim_ops.floordiv, a.min_value, divisor),
            _apply(prim_ops.floordiv, a.max_value, divisor),
        )

    def floor_mod(self, expr: Any) -> IntervalSet:
        a, b = self.visit(expr.a), self.visit(expr.b)
        if a.is_point and b.is_point:
            return IntervalSet(expr, expr)
        high = b.max_value
        if b.min_value is None or not self.analyzer.can_prove_greater_equal(b.min_value, 1):
            return _EVERYTHING
        zero = prim_ops.const(0, expr.dtype)
        return IntervalSet(zero, None if high is None else prim_ops.subtract(high, 1))

    def either(self, expr: Any) -> IntervalSet:
        a, b = self.visit(expr.a), self.visit(expr.b)
        if a.is_point and b.is_point:
            return IntervalSet(expr, expr)
        smaller = isinstance(expr, Min)
        function = prim_ops.min if smaller else prim_ops.max
        low = _apply(function, a.min_value, b.min_value)
        high = _apply(function, a.max_value, b.max_value)
        # the better of an end and no end at all
        if smaller and high is None:
            high = b.max_value if a.max_value is None else a.max_value
        if not smaller and low is None:
            low = b.min_value if a.min_value is None else a.min_value
        return IntervalSet(low, high)

    def select(self, expr: Any) -> IntervalSet:
        return self._union(expr, expr.true_value, expr.false_value)

    def call(self, expr: Any) -> IntervalSet:
        if isinstance(expr.op, Op) and expr.op.name == "tirx.if_then_else":
            return self._union(expr, expr.args[1], expr.args[2])
        return IntervalSet(expr, expr)

    def _union(self, expr: Expr, first: Expr, second: Expr) -> IntervalSet:
        a, b = self.visit(first), self.visit(second)
        if a.is_point and b.is_point:
            return IntervalSet(expr, expr)
        return IntervalSet(
            _apply(prim_ops.min, a.min_value, b.min_value),
            _apply(prim_ops.max, a.max_value, b.max_value),
        )

    def cast(self, expr: Any) -> IntervalSet:
        inner = self.visit(expr.value)
        if inner.is_point:
            return IntervalSet(expr, expr)
        return IntervalSet(
            None if inner.min_value is None else prim_ops.cast(expr.dtype, inner.min_value),
            None if inner.max_value is None else prim_ops.cast(expr.dtype, inner.max_value),
        )


_HANDLERS: Final[dict[type, Callable[[_Evaluator, Any], IntervalSet]]] = {
    Add: _Evaluator.add,
    Call: _Evaluator.call,
    Cast: _Evaluator.cast,
    FloorDiv: _Evaluator.floor_div,
    FloorMod: _Evaluator.floor_mod,
    Max: _Evaluator.either,
    Min: _Evaluator.either,
    Mul: _Evaluator.mul,
    Select: _Evaluator.select,
    Sub: _Evaluator.sub,
    Var: _Evaluator.var,
}
