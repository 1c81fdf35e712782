"""Mathematical functions on scalars, and calls out of a kernel.

Each builds a call of a declared operator in the dtype of its (first) operand; only rounding and
``abs`` of literals are computed at once. Counterpart: ``tvm.tirx.exp`` and its siblings.

Examples
--------
>>> exp(1.0).op.name, floor(2.5).value
('tirx.exp', 2.0)
"""

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr, StringImm
from relaxlab.ir.prim import GE, Cast, FloatImm, IntImm, Select, Sub
from relaxlab.ir.prim_arith import equal, logical_and, logical_not
from relaxlab.ir.prim_intrinsics import call_intrin
from relaxlab.ir.prim_literals import as_operand, const, match_dtypes, scalar_dtype
from relaxlab.ir.type import TupleType
from relaxlab.runtime.dtype import DataType

__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "call_extern",
    "call_packed",
    "call_pure_extern",
    "ceil",
    "clz",
    "copysign",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp10",
    "exp2",
    "fabs",
    "floor",
    "fmod",
    "hypot",
    "isfinite",
    "isinf",
    "isnan",
    "isnullptr",
    "ldexp",
    "log",
    "log10",
    "log1p",
    "log2",
    "nearbyint",
    "nextafter",
    "popcount",
    "pow",
    "power",
    "reinterpret",
    "round",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "tvm_tuple",
    "undef",
]

_INT32: Final = DataType("int32")
_FLOAT32: Final = DataType("float32")
_BOOL: Final = DataType("bool")


def _unary(name: str, floats_only: bool = False) -> Callable[[Any], Expr]:
    full = f"tirx.{name}"

    def function(x: Any) -> Expr:
        x = as_operand(x)
        if floats_only and not scalar_dtype(x).is_float:
            raise TypeError(f"{full} only supports floating-point inputs, but got {x.dtype}: {x!r}")
        return call_intrin(x.ty, full, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {name} of ``x``, in the dtype of ``x``."
    if floats_only:
        function.__doc__ += "\n\nRaises\n------\nTypeError\n    If ``x`` is no float.\n"
    return function


def _binary(name: str) -> Callable[[Any, Any], Expr]:
    full = f"tirx.{name}"

    def function(x: Any, y: Any) -> Expr:
        x, y = as_operand(x), as_operand(y)
        return call_intrin(x.ty, full, x, y)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {name} of ``x`` and ``y``, in the dtype of ``x``."
    return function


def _rounding(name: str, literal: Callable[[float], float]) -> Callable[[Any], Expr]:
    full = f"tirx.{name}"

    def function(x: Any) -> Expr:
        operand = as_operand(x)
        if not scalar_dtype(operand).is_float:
            return operand
        if isinstance(operand, FloatImm):
            return FloatImm(operand.dtype, float(literal(operand.value)))
        return call_intrin(operand.dtype, full, operand)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {name} of ``x``; an integer is returned as it is."
    return function


acos = _unary("acos")
acosh = _unary("acosh")
asin = _unary("asin")
asinh = _unary("asinh")
atan = _unary("atan")
atanh = _unary("atanh")
cos = _unary("cos", floats_only=True)
cosh = _unary("cosh")
erf = _unary("erf")
exp = _unary("exp")
exp2 = _unary("exp2")
exp10 = _unary("exp10")
fabs = _unary("fabs")
log = _unary("log")
log1p = _unary("log1p")
log2 = _unary("log2")
log10 = _unary("log10")
popcount = _unary("popcount")
rsqrt = _unary("rsqrt")
sigmoid = _unary("sigmoid")
sin = _unary("sin", floats_only=True)
sinh = _unary("sinh")
sqrt = _unary("sqrt")
tan = _unary("tan", floats_only=True)
tanh = _unary("tanh")

atan2 = _binary("atan2")
copysign = _binary("copysign")
fmod = _binary("fmod")
hypot = _binary("hypot")
ldexp = _binary("ldexp")
nextafter = _binary("nextafter")

ceil = _rounding("ceil", np.ceil)
floor = _rounding("floor", np.floor)
nearbyint = _rounding("nearbyint", np.rint)
round = _rounding("round", np.rint)
trunc = _rounding("trunc", np.trunc)


def power(x: Any, y: Any, span: Any = None) -> Expr:
    """Return ``x`` to the power ``y``, floats only.

    Raises
    ------
    InternalError
        If the operands meet in an integer dtype.
    """
    x, y = match_dtypes(x, y)
    if not x.dtype.is_float:
        raise InternalError(f"power only applies to float, got dtype {str(x.dtype)!r}: {x!r}")
    return call_intrin(x.ty, "tirx.pow", x, y)


pow = power


def abs(x: Any) -> Expr:
    """Return the absolute value; an integer becomes a :class:`Select`.

    Raises
    ------
    InternalError
        If the dtype has no absolute value.
    """
    operand = as_operand(x)
    dtype = scalar_dtype(operand)
    if dtype.is_uint:
        return operand
    if isinstance(operand, IntImm) and dtype.is_int:
        return const(-operand.value if operand.value < 0 else operand.value, dtype)
    if isinstance(operand, FloatImm):
        return FloatImm(dtype, math.fabs(operand.value))
    if dtype.is_int:
        zero = const(0, dtype)
        return Select(GE(operand, zero), operand, Sub(zero, operand))
    if dtype.is_float:
        return fabs(operand)
    raise InternalError(f"abs is not defined on dtype {str(dtype)!r}: {operand!r}")


def isnan(x: Any) -> Expr:
    """Say whether ``x`` is NaN; float16 is widened first, an integer never is.

    Raises
    ------
    InternalError
        If the dtype is neither a float nor an integer.
    """
    x = as_operand(x)
    dtype = scalar_dtype(x)
    if dtype.is_int or dtype.is_uint:
        return const(False, _BOOL.with_lanes(dtype.lanes))
    if not dtype.is_float:
        raise InternalError(f"isnan is not defined on dtype {str(dtype)!r}: {x!r}")
    if isinstance(x, FloatImm):
        return IntImm(_BOOL, math.isnan(x.value))
    if dtype.bits <= 16:
        x = Cast(_FLOAT32.with_lanes(dtype.lanes), x)
    return call_intrin(_BOOL.with_lanes(dtype.lanes), "tirx.isnan", x)


def isinf(x: Any) -> Expr:
    """Say whether ``x`` is an infinity; written with ``fabs`` and ``isnan`` as in TVM.

    Raises
    ------
    InternalError
        If the dtype has no infinity.
    """
    x = as_operand(x)
    dtype = scalar_dtype(x)
    if dtype.is_int or dtype.is_uint:
        return const(False, _BOOL.with_lanes(dtype.lanes))
    if not dtype.is_float:
        raise InternalError(f"isinf is not defined on dtype {str(dtype)!r}: {x!r}")
    infinite = const(math.inf, dtype)
    return logical_and(equal(abs(x), infinite), logical_not(isnan(x)))


def isfinite(x: Any) -> Expr:
    """Say whether ``x`` is neither NaN nor an infinity."""
    return logical_and(logical_not(isinf(x)), logical_not(isnan(x)))


def clz(x: Any) -> Expr:
    """Count the leading zero bits of an integer, as int32."""
    return call_intrin(_INT32, "tirx.clz", as_operand(x))


def reinterpret(dtype: DataType | str, value: Any, span: Any = None) -> Expr:
    """Return the value whose bits those of ``value`` are, in another dtype of equal width."""
    source = as_operand(value)
    target = DataType(dtype)
    return source if source.dtype is target else call_intrin(target, "tirx.reinterpret", source)


# ---------------------------------------------------------------- calls out


def call_packed(*args: Any, span: Any = None) -> Call:
    """Call a packed function by name: ``call_packed("name", a, b)``; the result is int32."""
    return call_intrin(_INT32, "tirx.tvm_call_packed", *(as_operand(arg) for arg in args))


def call_extern(dtype: DataType | str, func_name: str, *args: Any, span: Any = None) -> Call:
    """Call an external function that may do anything."""
    operands = (StringImm(func_name), *(as_operand(arg) for arg in args))
    return call_intrin(dtype, "tirx.call_extern", *operands)


def call_pure_extern(dtype: DataType | str, func_name: str, *args: Any, span: Any = None) -> Call:
    """Call an external function that only computes."""
    operands = (StringImm(func_name), *(as_operand(arg) for arg in args))
    return call_intrin(dtype, "tirx.call_pure_extern", *operands)


def isnullptr(x: Any, span: Any = None) -> Call:
    """Say whether a pointer is null."""
    return call_intrin(_BOOL, "tirx.isnullptr", as_operand(x))


def tvm_tuple(*value: Any) -> Call:
    """Group values, to pass several where one is expected."""
    return call_intrin(TupleType(), "tirx.tvm_tuple", *(as_operand(item) for item in value))


def undef() -> Call:
    """Return a value that is not specified."""
    return call_intrin(_INT32, "tirx.undef")
