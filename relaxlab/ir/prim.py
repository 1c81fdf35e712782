"""Scalar expressions: the arithmetic of shapes and kernels.

::

    PrimExpr = IntImm(dtype, value) | FloatImm(dtype, value)
             | Add | Sub | Mul | Div | Mod | FloorDiv | FloorMod | Min | Max   (a, b)
             | EQ | NE | LT | LE | GT | GE | And | Or (a, b) | Not(a)
             | Cast(dtype, value) | Select(condition, true_value, false_value)
             | Let(var, value, body) | Ramp(base, stride, lanes) | Broadcast(value, lanes)
             | TensorLoad(buffer, indices)
             | Var | Call                                              (expr.py)

``Div`` and ``Mod`` truncate towards zero on integers. Constructors build exactly what they are
told; the operators of ``prim_ops.py`` (``a + b``) match dtypes and fold constants.
Counterpart: ``tvm.ir.prim`` / ``tvm.tirx`` expressions.

Examples
--------
>>> IntImm("int64", 3).value
3
"""

from dataclasses import dataclass, field
from typing import Any

from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.node import DEFINES, IGNORED, Node
from relaxlab.ir.source import Span
from relaxlab.ir.type import PRINTERS, PrimType, Type
from relaxlab.runtime.dtype import DataType

__all__ = [
    "Add",
    "And",
    "BinaryExpr",
    "Broadcast",
    "Cast",
    "CompareExpr",
    "Div",
    "EQ",
    "FloatImm",
    "FloorDiv",
    "FloorMod",
    "GE",
    "GT",
    "IntImm",
    "LE",
    "LT",
    "Let",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "NE",
    "Not",
    "Or",
    "Ramp",
    "Range",
    "Select",
    "Sub",
    "TensorLoad",
    "TensorRegion",
]


def _set_ty(node: Expr, ty: Type | None) -> None:
    if node.ty is None and ty is not None:
        object.__setattr__(node, "ty", ty)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class IntImm(Expr):
    """An integer (or boolean) literal."""

    dtype: DataType = field()  # named, since the base class has a property of this name
    value: int

    def __post_init__(self) -> None:
        dtype = DataType(self.dtype)
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "value", int(self.value))
        if not (dtype.is_int or dtype.is_uint or dtype.is_bool):
            raise TypeError(f"IntImm needs an integer or bool dtype, got {str(dtype)!r}")
        _set_ty(self, PrimType(dtype))

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class FloatImm(Expr):
    """A floating point literal."""

    dtype: DataType = field()  # named, since the base class has a property of this name
    value: float

    def __post_init__(self) -> None:
        dtype = DataType(self.dtype)
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "value", float(self.value))
        if not dtype.is_float:
            raise TypeError(f"FloatImm needs a floating point dtype, got {str(dtype)!r}")
        _set_ty(self, PrimType(dtype))

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class BinaryExpr(Expr):
    """Two operands of one dtype; the result has it too."""

    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        _same_dtype(self, self.a, self.b)
        _set_ty(self, self.a.ty)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class CompareExpr(Expr):
    """Two operands of one dtype; the result is bool, with as many lanes."""

    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        _same_dtype(self, self.a, self.b)
        _set_ty(self, PrimType(DataType("bool").with_lanes(self.a.dtype.lanes)))


def _same_dtype(node: Expr, a: Expr, b: Expr) -> None:
    if a.dtype is not b.dtype:
        raise TypeError(
            f"{type(node).__name__} needs operands of one dtype, got {str(a.dtype)!r} and "
            f"{str(b.dtype)!r}; cast one of them"
        )


class Add(BinaryExpr):
    """``a + b``."""

    __slots__ = ()


class Sub(BinaryExpr):
    """``a - b``."""

    __slots__ = ()


class Mul(BinaryExpr):
    """``a * b``."""

    __slots__ = ()


class Div(BinaryExpr):
    """``a / b``; integers truncate towards zero."""

    __slots__ = ()


class Mod(BinaryExpr):
    """The remainder that goes with :class:`Div`."""

    __slots__ = ()


class FloorDiv(BinaryExpr):
    """``a // b``, rounded towards minus infinity."""

    __slots__ = ()


class FloorMod(BinaryExpr):
    """``a % b``, the remainder that goes with :class:`FloorDiv`."""

    __slots__ = ()


class Min(BinaryExpr):
    """``a if a < b else b``."""

    __slots__ = ()


class Max(BinaryExpr):
    """``a if a > b else b``."""

    __slots__ = ()


class EQ(CompareExpr):
    """``a == b``."""

    __slots__ = ()


class NE(CompareExpr):
    """``a != b``."""

    __slots__ = ()


class LT(CompareExpr):
    """``a < b``."""

    __slots__ = ()


class LE(CompareExpr):
    """``a <= b``."""

    __slots__ = ()


class GT(CompareExpr):
    """``a > b``."""

    __slots__ = ()


class GE(CompareExpr):
    """``a >= b``."""

    __slots__ = ()


class And(CompareExpr):
    """``a and b`` of two booleans."""

    __slots__ = ()


class Or(CompareExpr):
    """``a or b`` of two booleans."""

    __slots__ = ()


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Not(Expr):
    """``not a`` of a boolean."""

    a: Expr

    def __post_init__(self) -> None:
        _set_ty(self, self.a.ty)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Cast(Expr):
    """A conversion; float to integer truncates, to bool is ``!= 0``."""

    dtype: DataType = field()  # named, since the base class has a property of this name
    value: Expr

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", DataType(self.dtype))
        _set_ty(self, PrimType(self.dtype))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Select(Expr):
    """A choice whose both sides may be evaluated."""

    condition: Expr
    true_value: Expr
    false_value: Expr

    def __post_init__(self) -> None:
        _same_dtype(self, self.true_value, self.false_value)
        _set_ty(self, self.true_value.ty)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Let(Expr):
    """``body`` with ``var`` standing for ``value``."""

    var: Var = field(metadata=DEFINES)
    value: Expr
    body: Expr

    def __post_init__(self) -> None:
        _set_ty(self, self.body.ty)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Ramp(Expr):
    """The vector ``base, base + stride, ...``."""

    base: Expr
    stride: Expr
    lanes: int

    def __post_init__(self) -> None:
        _set_ty(self, PrimType(self.base.dtype.with_lanes(self.lanes)))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Broadcast(Expr):
    """The vector of ``lanes`` equal values."""

    value: Expr
    lanes: int

    def __post_init__(self) -> None:
        _set_ty(self, PrimType(self.value.dtype.with_lanes(self.lanes)))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TensorLoad(Expr):
    """One element of a buffer (a variable of BufferType); no index for a 0-d buffer."""

    buffer: Var
    indices: tuple[Expr, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "indices", tuple(self.indices))
        element: Any = getattr(self.buffer.ty, "dtype", None)
        if isinstance(element, DataType):
            lanes = self.indices[-1].dtype.lanes if self.indices else 1
            _set_ty(self, PrimType(element.with_lanes(element.lanes * lanes)))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Range(Node):
    """The integers from ``min`` up to, not including, ``min + extent``."""

    min: Expr
    extent: Expr
    span: Span | None = field(metadata=IGNORED, default=None, kw_only=True)

    def __repr__(self) -> str:
        printer = PRINTERS.find("repr")
        return printer(self) if printer else f"<{type(self).__name__}>"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TensorRegion(Node):
    """A box of a buffer: one range per dimension; what a block reads or writes."""

    buffer: Var
    region: tuple[Range, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "region", tuple(self.region))

    def __repr__(self) -> str:
        printer = PRINTERS.find("repr")
        return printer(self) if printer else f"<{type(self).__name__}>"
