"""Index expressions as numbers of several digits.

``c // 4`` and ``c % 4`` are digits of ``c``; ``n * 3 + c // 4`` is a number whose digits are
``n`` and ``c // 4``. An expression that is made so can be taken apart again. Counterpart: the
iterator maps of ``tvm.sym`` (``detect_iter_map``), as far as layouts need them.

Examples
--------
>>> from relaxlab.ir import IntImm, Var
>>> c = Var("c", "int64")
>>> reader = DigitReader([c], [IntImm("int64", 10)])
>>> high, low = reader.read(c // 4), reader.read(c % 4)
>>> int(reader.extent(high)), int(reader.extent(low))
(3, 4)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from relaxlab.errors import InternalError
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.prim import Add, FloorDiv, FloorMod, IntImm, Mul
from relaxlab.ir.prim_functor import free_vars
from relaxlab.ir.sym import Analyzer
from relaxlab.runtime.dtype import DataType

__all__ = ["Digit", "DigitReader", "Number", "place_values"]

_INT64 = DataType("int64")
_ZERO, _ONE = IntImm(_INT64, 0), IntImm(_INT64, 1)


@dataclass(eq=False)
class _Source:
    """What digits are taken of: an index variable, or a number made of other digits."""

    extent: Expr
    number: "Number" = ()
    #: Every position at which the value is cut; it is padded to a multiple of all of them.
    cuts: set[int] = field(default_factory=lambda: {1})

    @property
    def base(self) -> int:
        return math.lcm(*self.cuts)


@dataclass(frozen=True)
class Digit:
    """``source // lower % extent``; the whole rest when ``extent`` is None."""

    source: _Source
    lower: int
    extent: int | None


#: Digits with what each is multiplied by.
Number: TypeAlias = tuple[tuple[Digit, Expr], ...]


def _is_one(expr: Expr) -> bool:
    return isinstance(expr, IntImm) and expr.value == 1


def place_values(number: Number, reader: "DigitReader") -> list[tuple[Digit, Expr]]:
    """Return the digits that can be other than 0, the lowest first, checked to be a numeral.

    Raises
    ------
    InternalError
        If a digit is not multiplied by the product of the extents of those below.
    """
    left = [(d, scale) for d, scale in number if not _is_one(reader.digit_extent(d))]
    result: list[tuple[Digit, Expr]] = []
    expected: Expr = _ONE
    while left:
        fits = (item for item in left if reader.analyzer.can_prove_equal(item[1], expected))
        found = next(fits, None)
        if found is None:
            raise InternalError(
                "Could not parse mapping as sum of iterators: two elements may go to one place, "
                "or some places are left out"
            )
        left.remove(found)
        result.append(found)
        expected = reader.analyzer.simplify(expected * reader.digit_extent(found[0]))
    return result


class DigitReader:
    """Reads index expressions.

    Parameters
    ----------
    variables, extents
        The index variables, each from 0 up to, not including, its extent.
    """

    def __init__(self, variables: Sequence[Var], extents: Sequence[Expr]) -> None:
        self.analyzer = Analyzer()
        self._variables = {v: _Source(e) for v, e in zip(variables, extents, strict=True)}
        self._fused: list[_Source] = []

    # --- reading --------------------------------------------------------------------------------

    def read(self, expr: Expr) -> Number | None:
        """Return an expression as a number, None when it is none."""
        match expr:
            case Var():
                source = self._variables.get(expr)
                return None if source is None else ((Digit(source, 1, None), _ONE),)
            case Add():
                a, b = self.read(expr.a), self.read(expr.b)
                return None if a is None or b is None else (*a, *b)
            case Mul():
                for number, factor in ((expr.a, expr.b), (expr.b, expr.a)):
                    if not self._depends(factor) and (terms := self.read(number)) is not None:
                        return tuple((digit, scale * factor) for digit, scale in terms)
                return None
            case FloorDiv() | FloorMod():
                digit, by = self._single(self.read(expr.a)), expr.b
                if digit is None or not isinstance(by, IntImm) or by.value <= 0:
                    return None
                cut = _quotient if isinstance(expr, FloorDiv) else _remainder
                found = cut(digit, by.value)
                if not isinstance(found, Digit):
                    return found
                top = 1 if found.extent is None else found.extent
                digit.source.cuts |= {found.lower, found.lower * top}
                return ((found, _ONE),)
            case IntImm() if expr.value == 0:
                return ()
            case _:
                return None

    def _depends(self, expr: Expr) -> bool:
        return any(var in self._variables for var in free_vars(expr))

    def _single(self, number: Number | None) -> Digit | None:
        """Return a number as a digit of one source, a new one if need be."""
        if not number:
            return None
        if len(number) == 1 and _is_one(number[0][1]):
            return number[0][0]
        for source in self._fused:
            if self._same(source.number, number):
                return Digit(source, 1, None)
        source = _Source(self.extent(number), number)
        self._fused.append(source)
        return Digit(source, 1, None)

    def _same(self, a: Number, b: Number) -> bool:
        return len(a) == len(b) and all(
            x == y and self.analyzer.can_prove_equal(s, t)
            for (x, s), (y, t) in zip(a, b, strict=True)
        )

    # --- extents --------------------------------------------------------------------------------

    def digit_extent(self, digit: Digit) -> Expr:
        """Return how many values a digit has."""
        if digit.extent is not None:
            return IntImm(_INT64, digit.extent)
        padded = self._padded(digit.source)
        return self.analyzer.simplify(prim_ops.floordiv(padded, digit.lower))

    def extent(self, number: Number) -> Expr:
        """Return one more than the largest value of a number."""
        largest: Expr = _ZERO
        for digit, scale in number:
            largest = largest + (self.digit_extent(digit) - 1) * scale
        return self.analyzer.simplify(largest + 1)

    def _is_padded(self, source: _Source) -> bool:
        rest = self.analyzer.simplify(prim_ops.floormod(source.extent, source.base))
        return not (isinstance(rest, IntImm) and rest.value == 0)

    def _padded(self, source: _Source) -> Expr:
        if not self._is_padded(source):
            return source.extent
        return self.analyzer.simplify(
            source.extent - prim_ops.floormod(source.extent, -source.base)
        )

    # --- and back -------------------------------------------------------------------------------

    def invert(self, values: Mapping[Digit, Expr], analyzer: Analyzer) -> tuple[list[Expr], Expr]:
        """Return the index variables in terms of digits that were read, and what is padding.

        Parameters
        ----------
        values
            Of all digits that can be other than 0.
        analyzer
            Knows the ranges of the variables in them.
        """
        known = dict(values)
        padding: Expr = prim_ops.const(False, DataType("bool"))
        for source in reversed(self._fused):
            value = analyzer.simplify(self._value(source, known))
            for digit, scale in place_values(source.number, self):
                part: Expr = prim_ops.floordiv(value, scale)
                extent = self.digit_extent(digit)
                if not self.analyzer.can_prove_equal(scale * extent, source.extent):
                    part = prim_ops.floormod(part, extent)
                known[digit] = part
            if self._is_padded(source):
                padding = prim_ops.logical_or(padding, prim_ops.greater_equal(value, source.extent))
        result = []
        for source in self._variables.values():
            result.append(self._value(source, known))
            if self._is_padded(source):
                padding = prim_ops.logical_or(padding, self._beyond(source, known))
        return result, padding

    def _parts(self, source: _Source, values: Mapping[Digit, Expr]) -> list[Digit]:
        """Return the digits of a source, the highest first, checked to be all of it."""
        digits = sorted((d for d in values if d.source is source), key=lambda d: -d.lower)
        expected: Expr = _ONE
        for digit in reversed(digits):
            if not self.analyzer.can_prove_equal(digit.lower, expected):
                break
            if digit is digits[0] and digit.extent is None:
                return digits  # all of the rest
            expected = self.analyzer.simplify(expected * self.digit_extent(digit))
        if not self.analyzer.can_prove_equal(expected, self._padded(source)):
            raise InternalError(
                "Could not parse mapping as sum of iterators: two elements may go to one place, "
                "or some places are left out"
            )
        return digits

    def _value(self, source: _Source, values: Mapping[Digit, Expr]) -> Expr:
        return _sum(self._parts(source, values), values)

    def _beyond(self, source: _Source, values: Mapping[Digit, Expr]) -> Expr:
        """Return whether the digits say a value past the extent of an index variable."""
        base, extent = source.base, source.extent
        digits = self._parts(source, values)
        high = [d for d in digits if d.lower >= base]
        low = _sum([d for d in digits if d.lower < base], values)
        last = prim_ops.equal(_sum(high, values, base), prim_ops.floordiv(extent, base))
        condition = prim_ops.logical_and(
            last, prim_ops.greater_equal(low, prim_ops.floormod(extent, base))
        )
        if isinstance(extent, IntImm):
            return condition
        ragged = prim_ops.less(prim_ops.floormod(extent, -base), 0)
        return prim_ops.logical_and(ragged, condition)


def _sum(digits: Sequence[Digit], values: Mapping[Digit, Expr], unit: int = 1) -> Expr:
    total: Expr = _ZERO
    for digit in digits:
        total = total + values[digit] * (digit.lower // unit)
    return total


def _quotient(digit: Digit, by: int) -> Digit | Number | None:
    if digit.extent is None:
        return Digit(digit.source, digit.lower * by, None)
    if digit.extent <= by:
        return ()
    if digit.extent % by:
        return None
    return Digit(digit.source, digit.lower * by, digit.extent // by)


def _remainder(digit: Digit, by: int) -> Digit | Number | None:
    if digit.extent is None:
        return Digit(digit.source, digit.lower, by)
    if digit.extent <= by:
        return digit
    if digit.extent % by:
        return None
    return Digit(digit.source, digit.lower, by)
