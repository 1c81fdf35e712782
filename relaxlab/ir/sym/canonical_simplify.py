"""Simplification by normal form: a sum of scaled terms, each a slice of an index.

A term ("split") is ``((index % upper) // lower) * scale``. Integer arithmetic is collected into
sums of such terms plus a number: equal terms merge, ``(x // 4) * 4 + x % 4`` joins to ``x``, and
division by a number takes out the terms that it divides. Everything else goes by the rules of the
rewrite simplifier. Counterpart: ``canonical_simplify`` of ``tvm.sym.Analyzer``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.ir.sym import Analyzer
>>> x, y = Var("x", "int64"), Var("y", "int64")
>>> Analyzer().canonical_simplify((x * 8 + y) // 8 - y // 8) is x
True
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Union

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.prim import LT, Cast, Div, FloorDiv, FloorMod, IntImm, Mod, Mul
from relaxlab.ir.sym.pattern import same
from relaxlab.ir.sym.rewrite_simplify import RewriteSimplifier, is_index
from relaxlab.runtime.dtype import DataType

__all__ = ["CanonicalSimplifier", "Split", "Sum"]

#: An upper factor that cuts nothing off.
_NO_LIMIT: Final = 2**62
Inner = Union[Expr, "Split", "Sum"]


@dataclass(frozen=True, slots=True)
class Split:
    """The term ``((index % upper) // lower) * scale``; ``floor`` says which division."""

    index: Expr
    lower: int = 1
    upper: int = _NO_LIMIT
    scale: int = 1
    floor: bool = False  # of a term without division it only says who comes first

    def fits_mode(self, floor: bool) -> bool:
        """Whether the term means the same under that kind of division."""
        return self.floor == floor or (self.upper == _NO_LIMIT and self.lower == 1)

    def normalize(self, factor: int = 1) -> Expr:
        """Return the term times ``factor`` as an expression."""
        dtype = self.index.dtype
        scale = self.scale * factor
        if scale == 0:
            return prim_ops.const(0, dtype)
        result = self.index
        if self.upper != _NO_LIMIT:
            result = _mod(result, prim_ops.const(self.upper, dtype), self.floor)
        if self.lower != 1:
            result = _div(result, prim_ops.const(self.lower, dtype), self.floor)
        return result if scale == 1 else prim_ops.multiply(result, prim_ops.const(scale, dtype))


def _div(a: Expr, b: Expr, floor: bool) -> Expr:
    return prim_ops.floordiv(a, b) if floor else prim_ops.truncdiv(a, b)


def _mod(a: Expr, b: Expr, floor: bool) -> Expr:
    return prim_ops.floormod(a, b) if floor else prim_ops.truncmod(a, b)


@dataclass(slots=True)
class Sum:
    """Terms plus a number. Terms of one index stay together, larger ``lower`` first."""

    dtype: DataType
    terms: list[Split] = field(default_factory=list)
    base: int = 0

    def copy(self) -> "Sum":
        """Return a sum that can be changed independently."""
        return Sum(self.dtype, list(self.terms), self.base)

    @property
    def is_zero(self) -> bool:
        """Whether there is nothing in it."""
        return self.base == 0 and not self.terms

    def add_term(self, term: Split, factor: int) -> None:
        """Add ``term * factor``, merging it with an equal one."""
        if term.scale == 0:
            return
        scaled = replace(term, scale=term.scale * factor)
        start = 0
        while start < len(self.terms) and not same(self.terms[start].index, term.index):
            start += 1
        for j in range(start, len(self.terms)):
            other = self.terms[j]
            if not same(other.index, term.index) or term.lower > other.lower:
                self.terms.insert(j, scaled)
                return
            if (
                term.lower == other.lower
                and term.upper == other.upper
                and term.fits_mode(other.floor)
            ):
                self.terms[j] = replace(other, scale=other.scale + scaled.scale)
                return
        self.terms.append(scaled)

    def add_sum(self, other: "Sum", factor: int) -> None:
        """Add ``other * factor``."""
        for term in other.terms:
            self.add_term(term, factor)
        self.base += other.base * factor

    def multiply(self, factor: int) -> None:
        """Multiply by a number."""
        self.terms = [replace(term, scale=term.scale * factor) for term in self.terms]
        self.base *= factor

    def divide(self, divisor: int) -> None:
        """Divide by a number that divides everything."""
        self.terms = [replace(term, scale=term.scale // divisor) for term in self.terms]
        self.base //= divisor

    def normalize(self) -> Expr:
        """Return the sum as an expression: positive terms, number, negative terms."""
        terms = _join_terms(self.terms)
        low = -(1 << (self.dtype.bits - 1))
        result = prim_ops.const(0, self.dtype)
        for term in terms:
            if term.scale > 0:
                result = prim_ops.add(result, term.normalize())
        if self.base > 0 or self.base == low:
            result = prim_ops.add(result, self._literal(self.base))
        for term in terms:
            if term.scale < 0:
                result = prim_ops.subtract(result, term.normalize(-1))
        if low != self.base < 0:
            result = prim_ops.subtract(result, self._literal(-self.base))
        return result

    def _literal(self, value: int) -> Expr:
        return IntImm(self.dtype, prim_ops.wrap_int(value, self.dtype))


def _join_terms(given: list[Split]) -> list[Split]:
    """Merge neighbouring slices of one index, then order by scale."""
    terms = list(given)
    for i in range(len(terms)):
        if terms[i].scale == 0:
            continue
        for j in range(i + 1, len(terms)):
            left, right = terms[i], terms[j]
            if not same(left.index, right.index) or left.upper < right.lower:
                break
            if not left.fits_mode(right.floor):
                continue
            if left.upper == right.upper and left.lower == right.lower:
                terms[j] = replace(right, scale=left.scale + right.scale)
                terms[i] = replace(left, scale=0)
                break
            if (
                left.lower == right.upper
                and right.scale != 0
                and left.scale % right.scale == 0
                and left.lower == (left.scale // right.scale) * right.lower
            ):
                # (x % (c*s)) // s * s + x % s  is  x % (c*s)
                terms[j] = replace(right, upper=left.upper, floor=left.floor or right.floor)
                terms[i] = replace(left, scale=0)
                break
    terms.sort(key=lambda t: (-t.scale, -t.lower, -t.upper, not t.floor))
    return terms


class CanonicalSimplifier(RewriteSimplifier):
    """Simplifies to normal form; conditions and choices go by rules."""

    #: The normal form of a normal form is itself.
    passes: ClassVar[int] = 1

    # ------------------------------------------------------------ between the two worlds

    def visit(self, expr: Any) -> Any:
        """Simplify a node to an expression."""
        return self._normalize(self.inner(expr))

    def inner(self, expr: Any) -> Any:
        """Simplify a node to an expression, a term or a sum."""
        return super().visit(expr)

    def _normalize(self, value: Any) -> Any:
        return value.normalize() if isinstance(value, Split | Sum) else value

    def to_split(self, value: Any) -> Split:
        """Return the value as one term."""
        if isinstance(value, Split):
            return value
        if isinstance(value, Sum) and value.base == 0 and len(value.terms) == 1:
            return value.terms[0]
        return Split(self._normalize(value))

    def to_sum(self, value: Any) -> Sum:
        """Return the value as a sum of its own."""
        if isinstance(value, Sum):
            return value.copy()
        if isinstance(value, IntImm):
            return Sum(value.dtype, [], value.value)
        term = self.to_split(value)
        return Sum(term.index.dtype, [term])

    # ------------------------------------------------------------ sums

    def visit_add(self, expr: Any) -> Any:
        """Collect a sum."""
        return self._collect(expr, 1) if is_index(expr) else super().visit_add(expr)

    def visit_sub(self, expr: Any) -> Any:
        """Collect a difference."""
        return self._collect(expr, -1) if is_index(expr) else super().visit_sub(expr)

    def _collect(self, expr: Any, factor: int) -> Any:
        a, b = self.inner(expr.a), self.inner(expr.b)
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return prim_ops.add(a, b) if factor > 0 else prim_ops.subtract(a, b)
        result = self.to_sum(a)
        if isinstance(b, IntImm):
            result.base += b.value * factor
        elif isinstance(b, Sum):
            result.add_sum(b, factor)
        else:
            result.add_term(self.to_split(b), factor)
        return result

    def visit_mul(self, expr: Any) -> Any:
        """Scale a sum by a number; other products are put in order, numbers last."""
        if not is_index(expr):
            return super().visit_mul(expr)
        a, b = self.inner(expr.a), self.inner(expr.b)
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return prim_ops.multiply(a, b)
        if isinstance(a, IntImm):
            a, b = b, a
        if isinstance(b, IntImm):
            if b.value == 0:
                return b
            if isinstance(a, Sum):
                result = a.copy()
                result.multiply(b.value)
                return result
            term = self.to_split(a)
            return replace(term, scale=term.scale * b.value)
        return self._product(self._normalize(a), self._normalize(b))

    def _product(self, a: Expr, b: Expr) -> Any:
        scale, factors = 1, []
        for factor in (*_factors(a), *_factors(b)):
            if isinstance(factor, IntImm):
                scale *= factor.value
            else:
                factors.append(factor)
        result = prim_ops.const(1, a.dtype)
        for factor in factors:
            result = prim_ops.multiply(result, factor)
        return prim_ops.multiply(result, IntImm(a.dtype, prim_ops.wrap_int(scale, a.dtype)))

    # ------------------------------------------------------------ quotients and remainders

    def visit_floor_div(self, expr: Any) -> Any:
        """Divide a sum by a number, term by term where that is exact."""
        if not is_index(expr):
            return super().visit_floor_div(expr)
        a, b = self.inner(expr.a), self._normalize(self.inner(expr.b))
        if isinstance(a, IntImm) and isinstance(b, IntImm) and b.value:
            return prim_ops.floordiv(a, b)
        if isinstance(b, IntImm) and b.value > 0:
            return self._divide(a, b.value, floor=True)
        return self._symbolic_quotient(expr, self._normalize(a), b, FloorDiv)

    def visit_div(self, expr: Any) -> Any:
        """Divide a sum by a number, truncating: exact where nothing is negative."""
        if not is_index(expr):
            return super().visit_div(expr)
        a, b = self.inner(expr.a), self._normalize(self.inner(expr.b))
        if isinstance(a, IntImm) and isinstance(b, IntImm) and b.value:
            return prim_ops.truncdiv(a, b)
        if isinstance(b, IntImm) and b.value > 0:
            return self._divide(a, b.value, floor=False)
        return self._symbolic_quotient(expr, self._normalize(a), b, Div)

    def visit_floor_mod(self, expr: Any) -> Any:
        """Reduce a sum modulo a number."""
        if not is_index(expr):
            return super().visit_floor_mod(expr)
        a, b = self.inner(expr.a), self._normalize(self.inner(expr.b))
        if isinstance(a, IntImm) and isinstance(b, IntImm) and b.value:
            return prim_ops.floormod(a, b)
        if isinstance(b, IntImm) and b.value > 0:
            return self._remainder(a, b.value, floor=True)
        return self._symbolic_remainder(expr, self._normalize(a), b, FloorMod)

    def visit_mod(self, expr: Any) -> Any:
        """Reduce a sum modulo a number, truncating."""
        if not is_index(expr):
            return super().visit_mod(expr)
        a, b = self.inner(expr.a), self._normalize(self.inner(expr.b))
        if isinstance(a, IntImm) and isinstance(b, IntImm) and b.value:
            return prim_ops.truncmod(a, b)
        if isinstance(b, IntImm) and b.value > 0:
            return self._remainder(a, b.value, floor=False)
        return self._symbolic_remainder(expr, self._normalize(a), b, Mod)

    def _divide(self, a: Any, divisor: int, floor: bool) -> Any:
        if divisor == 1:
            return a
        if isinstance(a, Sum):
            exact, extra = self._separate(a, divisor)
            if extra.is_zero:
                exact.divide(divisor)
                return exact
            rest = extra.normalize()
            # truncation moves over the sum only where no sign changes
            if floor or (self.at_least(exact.normalize(), 0) and self.at_least(rest, 0)):
                exact.divide(divisor)
                if isinstance(rest, IntImm):
                    exact.base += rest.value // divisor
                elif not self._is_small(rest, divisor):
                    exact.add_term(self._split_div(Split(rest), divisor, floor), 1)
                return exact
        elif self._is_small(self._normalize(a), divisor):
            return prim_ops.const(0, self._normalize(a).dtype)
        return self._split_div(self.to_split(a), divisor, floor)

    def _is_small(self, expr: Expr, limit: int) -> bool:
        return self.at_least(expr, 0) and self.below(expr, limit)

    def _separate(self, a: Sum, divisor: int) -> tuple[Sum, Sum]:
        """Split a sum into what the number divides and the rest."""
        exact, extra = Sum(a.dtype), Sum(a.dtype)
        (exact if a.base % divisor == 0 else extra).base = a.base
        for term in a.terms:
            (exact if term.scale % divisor == 0 else extra).terms.append(term)
        return exact, extra

    def _as_mode(self, term: Split, floor: bool) -> Split:
        if term.fits_mode(floor):
            return replace(term, floor=floor)
        # opaque from here on: the other kind of division stays inside
        return Split(term.normalize(), floor=floor)

    def _may_merge(self, term: Split, floor: bool) -> bool:
        """Say whether two divisions of the term may become one.

        A negative factor between them turns floor into ceiling.
        """
        return term.scale > 0 or term.lower == 1 or not floor

    def _split_div(self, given: Split, divisor: int, floor: bool) -> Split:
        term = self._as_mode(given, floor)
        if term.scale % divisor == 0:
            return replace(term, scale=term.scale // divisor)
        if divisor % term.scale == 0 and self._may_merge(term, floor):
            step = term.lower * (divisor // term.scale)
            if term.upper == _NO_LIMIT or term.upper % step == 0:
                return replace(term, scale=1, lower=step)
            if 0 < term.upper <= (step if floor else abs(step)):
                return Split(prim_ops.const(0, term.index.dtype), scale=0)
            index = _mod(term.index, prim_ops.const(term.upper, term.index.dtype), floor)
            return replace(term, index=index, upper=_NO_LIMIT, scale=1, lower=step)
        return Split(term.normalize(), lower=divisor, floor=floor)

    def _remainder(self, a: Any, divisor: int, floor: bool) -> Any:
        if divisor == 1:
            return prim_ops.const(0, self._normalize(a).dtype)
        if isinstance(a, Sum):
            exact, extra = self._separate(a, divisor)
            rest = extra.normalize()
            if floor or (self.at_least(exact.normalize(), 0) and self.at_least(rest, 0)):
                if isinstance(rest, IntImm):
                    return prim_ops.const(rest.value % divisor, rest.dtype)
                if self._is_small(rest, divisor):
                    return rest
                a = extra
            base = a.base % divisor
            if floor or (base != a.base and self._stays_positive(a, base)):
                a = Sum(a.dtype, a.terms, base)
        elif self._is_small(self._normalize(a), divisor):
            return a
        return self._split_mod(self.to_split(a), divisor, floor)

    def _stays_positive(self, a: Sum, base: int) -> bool:
        low = self.knowledge.const_int_bound(a.normalize()).min_value
        return low >= 0 and low - a.base + base >= 0

    def _split_mod(self, given: Split, divisor: int, floor: bool) -> Split:
        term = self._as_mode(given, floor)
        if term.scale % divisor == 0:
            return replace(term, scale=0)
        if divisor % term.scale == 0 and self._may_merge(term, floor):
            upper = term.lower * (divisor // term.scale)
            if term.upper == _NO_LIMIT or term.upper % upper == 0:
                if term.upper == _NO_LIMIT or upper >= term.upper:
                    return replace(term, upper=upper)
                # a smaller remainder of the index may simplify further
                inner = _mod(term.index, prim_ops.const(upper, term.index.dtype), floor)
                reduced = self.to_split(self.inner(inner))
                if term.lower != 1:
                    reduced = self._split_div(reduced, term.lower, floor)
                return replace(reduced, scale=reduced.scale * term.scale)
            if upper % term.upper == 0 and (term.scale > 0 or not floor):
                return term
        return Split(term.normalize(), upper=divisor, floor=floor)

    def _symbolic_quotient(self, expr: Any, a: Expr, b: Expr, kind: Any) -> Any:
        _, top, bottom = _cancel(a, b)
        operator = super().visit_floor_div if kind is FloorDiv else super().visit_div
        if top is a or isinstance(b, IntImm):
            return operator(kind(a, b))
        if isinstance(bottom, IntImm) and bottom.value == 1:
            return top
        return operator(kind(top, bottom))

    def _symbolic_remainder(self, expr: Any, a: Expr, b: Expr, kind: Any) -> Any:
        common, top, bottom = _cancel(a, b)
        operator = super().visit_floor_mod if kind is FloorMod else super().visit_mod
        if top is a or isinstance(b, IntImm):
            return operator(kind(a, b))
        if isinstance(bottom, IntImm) and bottom.value == 1:
            return prim_ops.const(0, a.dtype)
        return prim_ops.multiply(operator(kind(top, bottom)), common)

    # ------------------------------------------------------------ comparison

    def visit_lt(self, expr: Any) -> Any:
        """Simplify ``a < b``, dividing by what divides every term of ``a - b``.

        With ``a - b = d*s + rest`` and ``0 <= rest < d`` it is ``s < 0``.
        """
        if is_index(expr.a):
            difference = self.to_sum(self._collect(expr, -1))
            scales = [abs(term.scale) for term in difference.terms]
            step = math.gcd(difference.base, *(scale for scale in scales if scale > 1))
            if step > 1 and max(scales, default=1) > 1:
                exact, extra = self._separate(difference, step)
                if self._is_small(extra.normalize(), step):
                    exact.divide(step)
                    zero = prim_ops.const(0, difference.dtype)
                    return super().visit_lt(LT(exact.normalize(), zero))
        return super().visit_lt(expr)

    # ------------------------------------------------------------ conversions

    def visit_cast(self, expr: Any) -> Any:
        """Move a conversion into a sum where nothing can overflow."""
        if is_index(expr) and is_index(expr.value):
            value = self.inner(expr.value)
            if isinstance(value, Sum | Split) and expr.dtype is not expr.value.dtype:
                moved = self._move_cast(value, expr.dtype)
                if moved is not None:
                    return moved
            return super().visit_cast(Cast(expr.dtype, self._normalize(value)))
        return super().visit_cast(expr)

    def _move_cast(self, value: Any, dtype: DataType) -> Any:
        """Convert the terms instead of the sum; None where a narrower dtype may overflow."""
        total = self.to_sum(value)
        if dtype.bits < total.dtype.bits and not self._fits(total, dtype):
            return None
        moved = Sum(dtype, base=total.base)
        for term in total.terms:
            moved.terms.append(replace(term, index=super().visit_cast(Cast(dtype, term.index))))
        return moved

    def _fits(self, total: Sum, dtype: DataType) -> bool:
        low, high = prim_ops.int_range(dtype)
        parts = [total.normalize()]
        for term in total.terms:
            parts.extend((term.index, term.normalize()))
        bounds = [self.knowledge.const_int_bound(part) for part in parts]
        return all(low <= b.min_value and b.max_value <= high for b in bounds)


def _factors(expr: Expr) -> list[Expr]:
    """Return the factors of a product, left to right."""
    if isinstance(expr, Mul):
        return [*_factors(expr.a), *_factors(expr.b)]
    return [expr]


def _cancel(a: Expr, b: Expr) -> tuple[Expr, Expr, Expr]:
    """Return the common factor of two products, and what remains of each.

    ``a`` itself comes back when there is nothing in common.
    """
    one = prim_ops.const(1, a.dtype)
    top_scale, top = _split_factors(a)
    bottom_scale, bottom = _split_factors(b)
    common: list[Expr] = []
    for factor in list(bottom):
        for other in top:
            if same(factor, other):
                common.append(factor)
                bottom.remove(factor)
                top.remove(other)
                break
    scale = math.gcd(top_scale, bottom_scale)
    if not common and (scale <= 1):
        return one, a, b
    if top_scale < 0 and bottom_scale < 0:
        scale = -scale

    def build(factors: list[Expr], number: int) -> Expr:
        result = one
        for factor in factors:
            result = prim_ops.multiply(result, factor)
        return prim_ops.multiply(result, prim_ops.const(number, a.dtype))

    return (
        build(common, scale),
        build(top, top_scale // scale),
        build(bottom, bottom_scale // scale),
    )


def _split_factors(expr: Expr) -> tuple[int, list[Expr]]:
    scale, factors = 1, []
    for factor in _factors(expr):
        if isinstance(factor, IntImm):
            scale *= factor.value
        else:
            factors.append(factor)
    return scale, factors
