"""What an integer expression is modulo something: every value is ``coeff * k + base``.

Counterpart: ``tvm.sym.ModularSet`` and its analyzer.

Examples
--------
>>> from relaxlab.ir import Var
>>> v = Var("v", "int64")
>>> ModularAnalyzer()(v * 4 + 3)
ModularSet(coeff=4, base=3)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.op import Op
from relaxlab.ir.prim import (
    EQ,
    Add,
    And,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Select,
    Sub,
)
from relaxlab.runtime.dtype import DataType

__all__ = ["ModularAnalyzer", "ModularSet"]


@dataclass(frozen=True, slots=True)
class ModularSet:
    """The numbers ``coeff * k + base``; a ``coeff`` of 0 means the one number ``base``."""

    coeff: int
    base: int

    def modulo(self, divisor: int) -> "ModularSet":
        """Return what the floor remainder by ``divisor`` can be, as a step and a start."""
        step = math.gcd(self.coeff, divisor)
        return ModularSet(step, self.base % step) if step else self


_EVERYTHING: Final = ModularSet(1, 0)


def _normal(coeff: int, base: int) -> ModularSet:
    coeff = abs(coeff)
    return ModularSet(coeff, base % coeff if coeff else base)


def _union(a: ModularSet, b: ModularSet) -> ModularSet:
    step = math.gcd(math.gcd(a.coeff, b.coeff), a.base - b.base)
    return _normal(step, a.base)


class ModularAnalyzer:
    """Computes modular sets; remembers those of variables."""

    def __init__(self) -> None:
        self._vars: dict[Var, ModularSet] = {}

    def update(self, var: Var, known: ModularSet) -> None:
        """Set what is known of a variable."""
        self._vars[var] = known

    def forget(self, var: Var) -> None:
        """Drop what is known of a variable."""
        self._vars.pop(var, None)

    def enter(self, condition: Expr) -> Callable[[], None]:
        """Assume a condition (``x % 4 == 1``) until the returned function is called."""
        before = dict(self._vars)
        self._learn(condition)

        def leave() -> None:
            self._vars = before

        return leave

    def _learn(self, condition: Expr) -> None:
        match condition:
            case And(a=a, b=b):
                self._learn(a)
                self._learn(b)
            case EQ(a=FloorMod(a=Var() as var, b=IntImm(value=step)), b=IntImm(value=base)):
                if step > 0:
                    self._intersect(var, _normal(step, base))
            case EQ(a=Var() as var, b=IntImm(value=value)):
                self._vars[var] = ModularSet(0, value)
            case _:
                pass

    def _intersect(self, var: Var, new: ModularSet) -> None:
        # the finer of the two is kept: enough for what conditions say in practice
        old = self._vars.get(var, _EVERYTHING)
        if old.coeff != 0 and new.coeff % old.coeff == 0:
            self._vars[var] = new

    def __call__(self, expr: Expr) -> ModularSet:
        """Return the modular set of an integer expression."""
        compute = _COMPUTE.get(type(expr))
        return compute(self, expr) if compute is not None else _EVERYTHING

    def _literal(self, expr: Any) -> ModularSet:
        return ModularSet(0, expr.value)

    def _var(self, expr: Any) -> ModularSet:
        return self._vars.get(expr, _EVERYTHING)

    def _cast(self, expr: Any) -> ModularSet:
        source: DataType = expr.value.dtype
        target: DataType = expr.dtype
        if not (source.is_int or source.is_uint) or not target.is_int:
            return _EVERYTHING
        # a narrowing conversion adds multiples of two to the width
        inner = self(expr.value)
        if target.bits > source.bits or (target.bits == source.bits and source.is_int):
            return inner
        return _normal(math.gcd(inner.coeff, 1 << target.bits), inner.base)

    def _add(self, expr: Any) -> ModularSet:
        a, b = self(expr.a), self(expr.b)
        return _normal(math.gcd(a.coeff, b.coeff), a.base + b.base)

    def _sub(self, expr: Any) -> ModularSet:
        a, b = self(expr.a), self(expr.b)
        return _normal(math.gcd(a.coeff, b.coeff), a.base - b.base)

    def _mul(self, expr: Any) -> ModularSet:
        a, b = self(expr.a), self(expr.b)
        # (p x + n)(q y + m) = pq xy + pm x + qn y + nm
        step = math.gcd(math.gcd(a.coeff * b.coeff, a.coeff * b.base), b.coeff * a.base)
        return _normal(step, a.base * b.base)

    def _floor_div(self, expr: Any) -> ModularSet:
        divisor = self(expr.b)
        if divisor.coeff == 0 and divisor.base != 0:
            return self._exact_quotient(self(expr.a), divisor.base)
        return _EVERYTHING

    def _exact_quotient(self, a: ModularSet, divisor: int) -> ModularSet:
        if a.coeff % divisor == 0:
            if a.coeff == 0:
                return ModularSet(0, a.base // divisor)
            if divisor > 0:
                return _normal(a.coeff // divisor, a.base // divisor)
        return _EVERYTHING

    def _trunc_div(self, expr: Any) -> ModularSet:
        divisor = self(expr.b)
        a = self(expr.a)
        # only where nothing is cut off, so that the rounding does not matter
        if divisor.coeff == 0 and divisor.base != 0 and a.base % divisor.base == 0:
            return self._exact_quotient(a, divisor.base)
        return _EVERYTHING

    def _floor_mod(self, expr: Any) -> ModularSet:
        divisor = self(expr.b)
        if divisor.coeff == 0 and divisor.base > 0:
            a = self(expr.a)
            step = math.gcd(a.coeff, divisor.base)
            if step == divisor.base or a.coeff == 0:
                return ModularSet(0, a.base % divisor.base)
            return _normal(step, a.base)
        return _EVERYTHING

    def _trunc_mod(self, expr: Any) -> ModularSet:
        divisor = self(expr.b)
        if divisor.coeff == 0 and divisor.base != 0:
            a = self(expr.a)
            return _normal(math.gcd(a.coeff, divisor.base), a.base)
        return _EVERYTHING

    def _either(self, expr: Any) -> ModularSet:
        return _union(self(expr.a), self(expr.b))

    def _select(self, expr: Any) -> ModularSet:
        return _union(self(expr.true_value), self(expr.false_value))

    def _let(self, expr: Any) -> ModularSet:
        before = dict(self._vars)
        self._vars[expr.var] = self(expr.value)
        try:
            return self(expr.body)
        finally:
            self._vars = before

    def _call(self, expr: Any) -> ModularSet:
        if isinstance(expr.op, Op) and expr.op.name == "tirx.shift_right":
            amount = self(expr.args[1])
            if amount.coeff == 0 and 0 <= amount.base < expr.dtype.bits:
                return self._exact_quotient(self(expr.args[0]), 1 << amount.base)
        return _EVERYTHING


_COMPUTE: Final[dict[type, Callable[[ModularAnalyzer, Any], ModularSet]]] = {
    IntImm: ModularAnalyzer._literal,
    Var: ModularAnalyzer._var,
    Cast: ModularAnalyzer._cast,
    Add: ModularAnalyzer._add,
    Sub: ModularAnalyzer._sub,
    Mul: ModularAnalyzer._mul,
    Div: ModularAnalyzer._trunc_div,
    Mod: ModularAnalyzer._trunc_mod,
    FloorDiv: ModularAnalyzer._floor_div,
    FloorMod: ModularAnalyzer._floor_mod,
    Min: ModularAnalyzer._either,
    Max: ModularAnalyzer._either,
    Select: ModularAnalyzer._select,
    Let: ModularAnalyzer._let,
    Call: ModularAnalyzer._call,
}
