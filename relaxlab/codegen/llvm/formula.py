"""Arithmetic on IR values with Python's operators, so that a formula reads as one.

Counterpart: none.

Examples
--------
>>> b = Builder("f", [("float", "x")], result="float")
>>> x = Formula(b, b.argument("x"))
>>> print(b.finish((x * x + 1.0).value), end="")
define internal float @f(float %x) noinline {
entry:
  %v0 = fmul float %x, %x
  %v1 = fadd float %v0, 0x3FF0000000000000
  ret float %v1
}
"""

from collections.abc import Sequence
from typing import Union

from relaxlab.codegen.llvm.builder import Builder, Value

__all__ = ["Formula"]

Operand = Union["Formula", float, int]


class Formula:
    """An IR value that Python's operators work on.

    Floats use ``fadd`` and its siblings, integers wrap; shifts to the right keep the sign.
    Comparisons are ordered: false when an operand is NaN.

    Parameters
    ----------
    builder
        Where instructions go.
    value
        The value, a scalar or a vector.
    """

    __slots__ = ("b", "value")

    def __init__(self, builder: Builder, value: Value) -> None:
        self.b = builder
        self.value = value

    @property
    def is_float(self) -> bool:
        """Whether elements are floats."""
        return self.value.elem in ("float", "double")

    def like(self, number: float) -> "Formula":
        """Return a literal of the same type."""
        return Formula(self.b, self.b.literal(number, self.value.elem, self.value.lanes))

    def _operand(self, other: Operand) -> Value:
        return other.value if isinstance(other, Formula) else self.like(other).value

    def _binary(self, float_op: str, integer_op: str, other: Operand) -> "Formula":
        op = float_op if self.is_float else integer_op
        return Formula(self.b, self.b.binary(op, self.value, self._operand(other)))

    def __add__(self, other: Operand) -> "Formula":
        return self._binary("fadd", "add", other)

    def __sub__(self, other: Operand) -> "Formula":
        return self._binary("fsub", "sub", other)

    def __mul__(self, other: Operand) -> "Formula":
        return self._binary("fmul", "mul", other)

    def __truediv__(self, other: Operand) -> "Formula":
        return self._binary("fdiv", "sdiv", other)

    def __and__(self, other: Operand) -> "Formula":
        return self._binary("and", "and", other)

    def __or__(self, other: Operand) -> "Formula":
        return self._binary("or", "or", other)

    def __xor__(self, other: Operand) -> "Formula":
        return self._binary("xor", "xor", other)

    def __lshift__(self, other: Operand) -> "Formula":
        return self._binary("shl", "shl", other)

    def __rshift__(self, other: Operand) -> "Formula":
        return self._binary("ashr", "ashr", other)

    def __neg__(self) -> "Formula":
        return Formula(self.b, self.b.unary("fneg", self.value))

    def logical_right(self, count: int) -> "Formula":
        """Shift to the right, filling with zeros."""
        return self._binary("lshr", "lshr", count)

    def _compare(self, op: str, other: Operand) -> "Formula":
        integer = {"olt": "slt", "ogt": "sgt", "oge": "sge", "oeq": "eq", "une": "ne"}
        text = f"fcmp {op}" if self.is_float else f"icmp {integer[op]}"
        return Formula(self.b, self.b.compare(text, self.value, self._operand(other)))

    def below(self, other: Operand) -> "Formula":
        """Return where it is less."""
        return self._compare("olt", other)

    def above(self, other: Operand) -> "Formula":
        """Return where it is greater."""
        return self._compare("ogt", other)

    def equals(self, other: Operand) -> "Formula":
        """Return where it is equal."""
        return self._compare("oeq", other)

    def differs(self, other: Operand) -> "Formula":
        """Return where it is not equal, or one of the two is NaN."""
        return self._compare("une", other)

    def where(self, yes: "Formula", no: Operand) -> "Formula":
        """Return ``yes`` where this condition holds, else ``no``."""
        other = no if isinstance(no, Formula) else yes.like(no)
        return Formula(self.b, self.b.select(self.value, yes.value, other.value))

    def at_most(self, limit: float) -> "Formula":
        """Replace what is greater than a limit by it; NaN stays."""
        return self.above(limit).where(self.like(limit), self)

    def at_least(self, limit: float) -> "Formula":
        """Replace what is less than a limit by it; NaN stays."""
        return self.below(limit).where(self.like(limit), self)

    def times_plus(self, factor: Operand, term: Operand) -> "Formula":
        """Return ``self * factor + term``, rounded once where the machine can."""
        return Formula(self.b, self.b.fma(self.value, self._operand(factor), self._operand(term)))

    def polynomial(self, coefficients: Sequence[float]) -> "Formula":
        """Return the polynomial with the given coefficients, lowest power first."""
        result = self.like(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = result.times_plus(self, coefficient)
        return result

    def size(self) -> "Formula":
        """Return the absolute value of a float."""
        return Formula(self.b, self.b.intrinsic("fabs", self.value))

    def signed_as(self, other: "Formula") -> "Formula":
        """Return the absolute value with the sign of ``other``."""
        return Formula(self.b, self.b.intrinsic("copysign", self.value, other.value))

    def whole(self) -> "Formula":
        """Return the float without its fraction."""
        return Formula(self.b, self.b.intrinsic("trunc", self.value))

    def bits(self) -> "Formula":
        """Return the float's bits as an integer, or the float of an integer's bits."""
        into = {"float": "i32", "double": "i64", "i32": "float", "i64": "double"}
        return self.convert("bitcast", into[self.value.elem])

    def convert(self, op: str, elem: str) -> "Formula":
        """Convert to another element type."""
        return Formula(self.b, self.b.convert(op, self.value, elem))
