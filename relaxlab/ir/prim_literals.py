"""Literals, and how the dtypes of two operands meet.

A float wins over an integer, then the wider dtype wins, then the unsigned one; a Python number
starts as int32 (int64 when it needs to), float32 or bool. A literal is converted at once and
refused when it is out of range. Counterpart: ``tvm.tirx.const``, ``tvm.tirx.convert``,
``tvm.tirx.min_value``, and the matching inside TVM's operators.

Examples
--------
>>> a, b = match_dtypes(const(1), const(2.5))
>>> str(a.dtype), a.value
('float32', 1.0)
"""

import math
from typing import Any, Final

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Expr, StringImm, Var
from relaxlab.ir.prim import Broadcast, Cast, FloatImm, IntImm
from relaxlab.ir.type import PrimType
from relaxlab.runtime.dtype import DataType, DataTypeCode, dtype_of

__all__ = [
    "as_operand",
    "cast",
    "const",
    "convert",
    "infinity",
    "int_range",
    "is_const_int",
    "match_dtypes",
    "max_value",
    "min_value",
    "scalar_dtype",
    "trunc_div",
    "trunc_mod",
    "wrap_int",
]

_INT32: Final = DataType("int32")
_INT64: Final = DataType("int64")
_FLOAT32: Final = DataType("float32")
_BOOL: Final = DataType("bool")


def convert(value: Any) -> Any:
    """Turn a Python value into an expression; an expression is returned as it is.

    A number becomes a literal (int32, or int64 when it does not fit; float32; bool), a string a
    :class:`StringImm`, a list or tuple a tuple of converted values.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, list | tuple):
        return tuple(convert(item) for item in value)
    variable = getattr(value, "var", None)
    if isinstance(variable, Var):
        # an iteration variable (te.reduce_axis) in an index stands for its variable
        return variable
    return const(value)


def const(value: Any, dtype: DataType | str | None = None, span: Any = None) -> Expr:
    """Return a literal.

    Parameters
    ----------
    value
        A Python or NumPy number, or a literal expression.
    dtype
        Its dtype; without it int32 (int64 when the value needs it), float32 or bool, or the
        dtype of a NumPy value. A vector dtype gives a :class:`Broadcast`.

    Raises
    ------
    ValueError
        If the value is out of the dtype's range.
    """
    if isinstance(value, IntImm | FloatImm):
        value = value.value
    if dtype is None:
        dtype = _literal_dtype(value)
    element = DataType(dtype)
    if element.lanes != 1:
        return Broadcast(const(value, element.with_lanes(1)), element.lanes)
    if element.is_bool:
        return IntImm(element, _bool_value(value))
    if element.is_int or element.is_uint:
        return IntImm(element, _int_value(value, element))
    if element.is_float:
        return FloatImm(element, _float_value(float(value), element))
    raise TypeError(f"no literal of dtype {str(element)!r}: expected a number or bool type")


def _literal_dtype(value: Any) -> DataType:
    if isinstance(value, bool | np.bool_):
        return _BOOL
    if isinstance(value, np.generic):
        return dtype_of(value.dtype)
    if isinstance(value, int):
        return _INT32 if -(2**31) <= value < 2**31 else _INT64
    if isinstance(value, float):
        return _FLOAT32
    raise TypeError(f"expected a number or an expression, got {type(value).__name__}: {value!r}")


def _bool_value(value: Any) -> int:
    number = int(value)
    if isinstance(value, int | np.integer) and number not in (0, 1):
        raise ValueError(f"the literal {value!r} is out of range of bool: expected 0 or 1")
    return number


def int_range(dtype: DataType) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer dtype; (0, 1) for bool."""
    if dtype.is_bool:
        return (0, 1)
    if dtype.is_uint:
        return (0, (1 << dtype.bits) - 1)
    return (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1)


def _int_value(value: Any, dtype: DataType) -> int:
    if isinstance(value, float | np.floating) and not math.isfinite(value):
        raise ValueError(f"the literal {value!r} has no {dtype} value")
    number = int(value)
    low, high = int_range(dtype)
    if not low <= number <= high:
        raise ValueError(
            f"the literal {number} exceeds the range of {dtype}: expected {low} to {high}"
        )
    return number


_FLOAT_LIMITS: Final = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
    "float8_e3m4": 15.5,
    "float8_e4m3": 240.0,
    "float8_e4m3fn": 448.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e4m3b11fnuz": 30.0,
    "float8_e5m2": 57344.0,
    "float8_e5m2fnuz": 57344.0,
    "float8_e8m0fnu": 2.0**127,
    "float6_e2m3fn": 7.5,
    "float6_e3m2fn": 28.0,
    "float4_e2m1fn": 6.0,
}


def _float_value(value: float, dtype: DataType) -> float:
    # the value is kept as written (T.float16(0.1)); only its range is checked
    if math.isfinite(value) and math.fabs(value) > _float_limit(dtype):
        which = "maximum" if value > 0 else "minimum"
        raise ValueError(f"the literal {value!r} exceeds the {which} of {dtype}")
    return value


def _float_limit(dtype: DataType) -> float:
    limit = _FLOAT_LIMITS.get(str(dtype.with_lanes(1)))
    if limit is None:
        raise InternalError(f"no largest value is known for dtype {str(dtype)!r}")
    return limit


def is_const_int(value: Any, expected: int | None = None) -> bool:
    """Say whether ``value`` is an integer literal (of that value, when one is given)."""
    return isinstance(value, IntImm) and (expected is None or value.value == expected)


def min_value(dtype: DataType | str) -> Expr:
    """Return the smallest finite value of a dtype as a literal."""
    element = DataType(dtype)
    if element.is_float:
        return FloatImm(element, -_float_limit(element))
    return IntImm(element, _named_range(element, "min_value")[0])


def max_value(dtype: DataType | str) -> Expr:
    """Return the largest finite value of a dtype as a literal."""
    element = DataType(dtype)
    if element.is_float:
        return FloatImm(element, _float_limit(element))
    return IntImm(element, _named_range(element, "max_value")[1])


def _named_range(dtype: DataType, what: str) -> tuple[int, int]:
    if not (dtype.is_int or dtype.is_uint):
        raise InternalError(f"cannot decide {what} for dtype {str(dtype)!r}: expected a number")
    return int_range(dtype)


def infinity(dtype: DataType | str) -> Expr:
    """Return the positive infinity of a floating point dtype.

    Raises
    ------
    InternalError
        If the dtype has none.
    """
    element = DataType(dtype)
    if element.code != DataTypeCode.FLOAT and element.code != DataTypeCode.BFLOAT:
        raise InternalError(f"cannot decide infinity for dtype {str(element)!r}")
    return FloatImm(element, math.inf)


# ---------------------------------------------------------------- dtypes meet


def match_dtypes(a: Any, b: Any) -> tuple[Expr, Expr]:
    """Convert two operands to expressions of one dtype.

    Raises
    ------
    TypeError
        If an operand is no scalar.
    InternalError
        If lanes differ, or two 8-bit float kinds meet.
    """
    left = a if isinstance(a, Expr) else as_operand(a)
    right = b if isinstance(b, Expr) else as_operand(b)
    x, y = scalar_dtype(left), scalar_dtype(right)
    if x is y:
        return left, right
    if x.lanes != y.lanes:
        if x.lanes == 1:
            left = Broadcast(left, y.lanes)
        elif y.lanes == 1:
            right = Broadcast(right, x.lanes)
        else:
            raise InternalError(f"cannot match dtypes {str(x)!r} and {str(y)!r}: lanes differ")
        x, y = left.dtype, right.dtype
        if x is y:
            return left, right
    if _rank(x) >= _rank(y):
        if _rank(x) == _rank(y):
            raise InternalError(f"cannot match dtypes {str(x)!r} and {str(y)!r}")
        return left, cast(x, right)
    return cast(y, left), right


def as_operand(value: Any) -> Expr:
    """Turn a Python value into one expression; TypeError if it is none."""
    result = convert(value)
    if not isinstance(result, Expr):
        raise TypeError(f"expected a scalar operand, got {type(value).__name__}")
    return result


def scalar_dtype(value: Expr) -> DataType:
    """Return the dtype of a scalar expression; TypeError for any other expression."""
    if not isinstance(value.ty, PrimType):
        raise TypeError(f"expected a scalar operand, got one of type {value.ty!r}: {value!r}")
    return value.ty.dtype


def _rank(dtype: DataType) -> tuple[int, int, int]:
    """Order the dtypes: the higher one wins when two meet."""
    if dtype.code == DataTypeCode.FLOAT:
        return (4, dtype.bits, 0)
    if dtype.code == DataTypeCode.BFLOAT:
        return (3, dtype.bits, 0)
    if dtype.is_float:
        return (2, dtype.bits, 0)
    if dtype.is_bool:
        return (0, 0, 0)
    if dtype.is_int or dtype.is_uint:
        return (1, dtype.bits, int(dtype.is_uint))
    raise TypeError(f"no arithmetic on dtype {str(dtype)!r}")


def cast(dtype: DataType | str, value: Any, span: Any = None) -> Expr:
    """Convert to a dtype; a literal is converted at once, a value of that dtype is returned.

    Raises
    ------
    ValueError, InternalError
        If a literal is out of the new dtype's range.
    """
    target = DataType(dtype)
    source = value if isinstance(value, Expr) else as_operand(value)
    if scalar_dtype(source) is target:
        return source
    if target.lanes == 1 or source.dtype.lanes == target.lanes:
        if isinstance(source, IntImm | FloatImm):
            return _cast_literal(source, target)
        if isinstance(source, Broadcast):
            return Broadcast(cast(target.with_lanes(1), source.value), target.lanes)
        return Cast(target, source)
    if source.dtype.lanes != 1:
        raise InternalError(f"cannot cast {str(source.dtype)!r} to {str(target)!r}: lanes differ")
    return Broadcast(cast(target.with_lanes(1), source), target.lanes)


def _cast_literal(source: IntImm | FloatImm, target: DataType) -> Expr:
    if target.is_uint and source.value < 0:
        raise InternalError(f"cannot make a {target} from the negative value {source.value}")
    if target.is_bool:
        return IntImm(target, _bool_value(int(source.value)))
    return const(source.value, target)


# ---------------------------------------------------------------- integers of the machine


def wrap_int(value: int, dtype: DataType) -> int:
    """Return ``value`` reduced to the dtype as the machine does: modulo two to its bits."""
    if dtype.is_bool:
        return _bool_value(value)
    value &= (1 << dtype.bits) - 1
    if dtype.is_int and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


def trunc_div(a: int, b: int) -> int:
    """Divide integers, rounding towards zero."""
    quotient = a // b
    return quotient + 1 if quotient < 0 and quotient * b != a else quotient


def trunc_mod(a: int, b: int) -> int:
    """Return the remainder that goes with :func:`trunc_div`; it has the sign of ``a``."""
    return a - trunc_div(a, b) * b
