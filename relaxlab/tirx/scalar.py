"""Arithmetic on one element, as the machine does it.

Integers are Python ints reduced to their width after every operation, booleans are Python bools,
floats are NumPy scalars of their own dtype, so that float16 rounds like float16. This is the
meaning of a kernel's expressions; the interpreter only walks them. Counterpart: what TVM's LLVM
back end computes.

Examples
--------
>>> from relaxlab.runtime.dtype import DataType
>>> cast(300, DataType("int8")), binary("FloorDiv", -7, 2, DataType("int32"))
(44, -4)
"""

import math
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from relaxlab.ir.prim_literals import trunc_div, trunc_mod, wrap_int
from relaxlab.runtime.dtype import DataType

__all__ = ["binary", "call", "cast", "is_known_call", "literal"]

Number = Any


def literal(value: Any, dtype: DataType) -> Number:
    """Return a literal as an element of its dtype."""
    if dtype.is_float:
        return dtype.numpy().type(value)
    return bool(value) if dtype.is_bool else wrap_int(int(value), dtype)


def cast(value: Number, dtype: DataType) -> Number:
    """Convert an element: floats truncate towards zero, integers wrap, bool is ``!= 0``."""
    if dtype.is_bool:
        return bool(value != 0)
    if dtype.is_float:
        kind = dtype.numpy()
        if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
            # one rounding, straight from the integer
            return np.int64(value).astype(kind)
        return kind.type(value)
    if isinstance(value, int):
        return wrap_int(int(value), dtype)
    if math.isfinite(value):
        return wrap_int(math.trunc(float(value)), dtype)
    # no integer is right; the same one as whole arrays get
    with np.errstate(invalid="ignore"):
        return int(np.asarray(value).astype(dtype.numpy()))


_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}
_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
}
_INTEGER_DIVISION: Final[dict[str, Callable[[int, int], int]]] = {
    "Div": trunc_div,
    "Mod": trunc_mod,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
}


def binary(name: str, a: Number, b: Number, dtype: DataType) -> Number:
    """Compute a binary node, by its class name, on two elements of ``dtype``.

    ``Max`` is ``a if a > b else b`` and ``Min`` is ``a if a < b else b``, which is what decides
    about NaN: one in ``a`` gives ``b``, one in ``b`` is the result.

    Raises
    ------
    ZeroDivisionError
        If an integer is divided by zero.
    """
    if name in _COMPARE:
        return bool(_COMPARE[name](a, b))
    if name == "Max":
        return a if a > b else b  # noqa: FURB136  # the definition, as it stands in the docs
    if name == "Min":
        return a if a < b else b  # noqa: FURB136  # likewise
    if dtype.is_float:
        if name == "Div":
            return np.divide(a, b)
        if name == "Mod":
            return np.fmod(a, b)
        return _ARITHMETIC[name](a, b)
    if name in _INTEGER_DIVISION:
        if b == 0:
            raise ZeroDivisionError("an integer is divided by zero")
        return wrap_int(_INTEGER_DIVISION[name](int(a), int(b)), dtype)
    result = _ARITHMETIC[name](int(a), int(b))
    return bool(result) if dtype.is_bool else wrap_int(result, dtype)


def _erf(x: Any) -> Any:
    return math.erf(float(x))


def _sigmoid(x: Any) -> Any:
    one = type(x)(1)
    return one / (one + np.exp(-x))


def _rsqrt(x: Any) -> Any:
    return type(x)(1) / np.sqrt(x)


_UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": _erf,
    "exp": np.exp,
    "exp10": lambda x: np.power(type(x)(10), x),
    "exp2": np.exp2,
    "fabs": np.abs,
    "floor": np.floor,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "nearbyint": np.rint,
    "round": np.rint,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}
_BINARY_MATH: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "atan2": np.arctan2,
    "copysign": np.copysign,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "ldexp": lambda x, n: np.ldexp(x, int(n)),
    "nextafter": np.nextafter,
    "pow": np.power,
}
_BITS: Final[dict[str, Callable[[int, int], int]]] = {
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "shift_left": operator.lshift,
    "shift_right": operator.rshift,
}
_OTHER: Final = frozenset(
    {"bitwise_not", "clz", "isfinite", "isinf", "isnan", "likely", "popcount", "reinterpret"}
)


def is_known_call(name: str) -> bool:
    """Say whether :func:`call` computes the operator ``tirx.<name>``."""
    return name in _UNARY or name in _BINARY_MATH or name in _BITS or name in _OTHER


def call(name: str, args: list[Number], dtype: DataType, source: DataType) -> Number:
    """Compute the operator ``tirx.<name>`` on elements.

    Parameters
    ----------
    name
        Name without ``tirx.``.
    args
        Operands.
    dtype
        Result dtype.
    source
        Dtype of the first operand.
    """
    if name in _UNARY:
        return cast(_UNARY[name](_as_float(args[0], source)), dtype)
    if name in _BINARY_MATH:
        return cast(_BINARY_MATH[name](_as_float(args[0], source), args[1]), dtype)
    if name in _BITS:
        return _bits(name, int(args[0]), int(args[1]), dtype)
    return cast(_other(name, args[0], dtype, source), dtype)


def _as_float(x: Number, dtype: DataType) -> Number:
    # mathematics on an integer happens in double precision
    return x if dtype.is_float else np.float64(x)


def _bits(name: str, a: int, b: int, dtype: DataType) -> Number:
    if name.startswith("shift") and not 0 <= b < dtype.bits:
        raise ValueError(f"{name} by {b} bits: expected 0 to {dtype.bits - 1} for {dtype}")
    result = _BITS[name](a, b)
    return bool(result) if dtype.is_bool else wrap_int(result, dtype)


def _other(name: str, x: Number, dtype: DataType, source: DataType) -> Number:
    match name:
        case "bitwise_not":
            return not x if dtype.is_bool else ~int(x)
        case "clz":
            width = source.bits
            return width - (int(x) & ((1 << width) - 1)).bit_length()
        case "popcount":
            return (int(x) & ((1 << source.bits) - 1)).bit_count()
        case "isnan":
            return bool(np.isnan(x))
        case "isinf":
            return bool(np.isinf(x))
        case "isfinite":
            return bool(np.isfinite(x))
        case "reinterpret":
            bits = np.asarray(literal(x, source), source.numpy()).view(dtype.numpy())
            return literal(bits.item() if not dtype.is_float else bits[()], dtype)
        case _:
            return x
