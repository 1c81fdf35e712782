"""Arithmetic, comparison, logic and choice on scalars, with constant folding.

Node constructors (``Add(a, b)``) build exactly what they are told. These functions do what a
writer means by ``a + b``: operands of two dtypes meet in one (see ``prim_literals``), literals
are folded at once, and ``x + 0`` is ``x``. Nothing is reordered: that is the analyzer's work.
Counterpart: ``tvm.tirx`` operators (``tvm.tirx.floordiv``, ``tvm.tirx.max``, ...).

Examples
--------
>>> from relaxlab.ir import Var
>>> n = Var("n", "int64")
>>> multiply(n, 1) is n, int(add(3, 4))
(True, 7)
"""

import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Expr
from relaxlab.ir.prim import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Select,
    Sub,
)
from relaxlab.ir.prim_intrinsics import call_intrin
from relaxlab.ir.prim_literals import (
    as_operand,
    cast,
    const,
    match_dtypes,
    scalar_dtype,
    trunc_div,
    trunc_mod,
    wrap_int,
)
from relaxlab.runtime.dtype import DataType, DataTypeCode

__all__ = [
    "add",
    "all",
    "any",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "ceildiv",
    "div",
    "divide",
    "equal",
    "floordiv",
    "floormod",
    "greater",
    "greater_equal",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "less",
    "less_equal",
    "likely",
    "logical_and",
    "logical_not",
    "logical_or",
    "max",
    "min",
    "multiply",
    "negative",
    "not_equal",
    "select",
    "shift_left",
    "shift_right",
    "subtract",
    "truncdiv",
    "truncmod",
]

_BOOL: Final = DataType("bool")


# ---------------------------------------------------------------- folding


def _fold_int(value: int, like: IntImm) -> IntImm:
    return IntImm(like.dtype, wrap_int(value, like.dtype))


def _fold_float(function: Callable[[Any, Any], Any], a: FloatImm, b: FloatImm) -> Expr | None:
    """Compute in the dtype itself; float16 and bfloat16 are left to run time, as in TVM."""
    if a.dtype.code != DataTypeCode.FLOAT or a.dtype.bits not in (32, 64):
        return None
    kind = np.float32 if a.dtype.bits == 32 else np.float64
    with np.errstate(all="ignore"):
        return FloatImm(a.dtype, float(function(kind(a.value), kind(b.value))))


def _is_zero(value: Expr) -> bool:
    return isinstance(value, IntImm | FloatImm) and value.value == 0


def _is_one(value: Expr) -> bool:
    return isinstance(value, IntImm | FloatImm) and value.value == 1


def _index_dtype(dtype: DataType) -> bool:
    return dtype.is_int and dtype.bits in (32, 64)


def _folds_mod(dtype: DataType) -> bool:
    # TVM leaves remainders of narrow signed literals to run time
    return dtype.is_uint or _index_dtype(dtype)


def _no_zero(value: Expr) -> None:
    if _is_zero(value):
        raise InternalError("division by zero: the divisor is the literal 0")


def _integers(a: Any, b: Any, name: str, boolean: bool = False) -> tuple[Expr, Expr]:
    """Match two operands, both of which must be integers (or boolean) before they meet."""
    operands = (as_operand(a), as_operand(b))
    for operand in operands:
        dtype = scalar_dtype(operand)
        if not (dtype.is_int or dtype.is_uint or (boolean and dtype.is_bool)):
            raise InternalError(
                f"{name} needs integer operands, got one of dtype {str(dtype)!r}: {operand!r}"
            )
    return match_dtypes(*operands)


# ---------------------------------------------------------------- arithmetic


def add(a: Any, b: Any) -> Expr:
    """Return ``a + b``."""
    x, y = match_dtypes(a, b)
    if isinstance(x, IntImm) and isinstance(y, IntImm):
        return _fold_int(x.value + y.value, x)
    if isinstance(x, FloatImm) and isinstance(y, FloatImm):
        folded = _fold_float(operator.add, x, y)
        if folded is not None:
            return folded
    if _is_zero(x):
        return y
    if _is_zero(y):
        return x
    return Add(x, y)


def subtract(a: Any, b: Any) -> Expr:
    """Return ``a - b``."""
    x, y = match_dtypes(a, b)
    if isinstance(x, IntImm) and isinstance(y, IntImm):
        return _fold_int(x.value - y.value, x)
    if isinstance(x, FloatImm) and isinstance(y, FloatImm):
        folded = _fold_float(operator.sub, x, y)
        if folded is not None:
            return folded
    return x if _is_zero(y) else Sub(x, y)


def multiply(a: Any, b: Any) -> Expr:
    """Return ``a * b``; a product with a literal 0 is that 0, floats included, as in TVM."""
    x, y = match_dtypes(a, b)
    if isinstance(x, IntImm) and isinstance(y, IntImm):
        return _fold_int(x.value * y.value, x)
    if isinstance(x, FloatImm) and isinstance(y, FloatImm):
        folded = _fold_float(operator.mul, x, y)
        if folded is not None:
            return folded
    if _is_one(x) or _is_zero(y):
        return y
    if _is_one(y) or _is_zero(x):
        return x
    return Mul(x, y)


def negative(a: Any) -> Expr:
    """Return ``-a``, written ``a * -1`` as in TVM."""
    x = as_operand(a)
    return multiply(x, cast(scalar_dtype(x), -1))


def div(a: Any, b: Any) -> Expr:
    """Return ``a / b``: integers truncate towards zero."""
    x, y = match_dtypes(a, b)
    _no_zero(y)
    if isinstance(x, IntImm) and isinstance(y, IntImm):
        return _fold_int(trunc_div(x.value, y.value), x)
    if isinstance(x, FloatImm) and isinstance(y, FloatImm):
        folded = _fold_float(operator.truediv, x, y)
        if folded is not None:
            return folded
    return x if _is_zero(x) or _is_one(y) else Div(x, y)


def divide(a: Any, b: Any) -> Expr:
    """Mean ``a / b`` in Python: refused on signed integers, where it would be ambiguous."""
    x, y = as_operand(a), as_operand(b)
    if scalar_dtype(x).is_int and scalar_dtype(y).is_int:
        raise RuntimeError(
            "integers divide in several ways: say tirx.div or truncdiv (towards zero), or "
            "floordiv / // (towards minus infinity)"
        )
    return div(x, y)


def truncdiv(a: Any, b: Any) -> Expr:
    """Return the integer quotient rounded towards zero."""
    x, y = _integers(a, b, "truncdiv")
    return div(x, y)


def truncmod(a: Any, b: Any) -> Expr:
    """Return the remainder with the sign of ``a``; on floats it is C's ``fmod``."""
    x, y = match_dtypes(a, b)
    if not x.dtype.is_float:
        _no_zero(y)
        if isinstance(x, IntImm) and isinstance(y, IntImm) and _folds_mod(x.dtype):
            return _fold_int(trunc_mod(x.value, y.value), x)
        if _index_dtype(x.dtype):
            if _is_zero(x):
                return x
            if _is_one(y):
                return const(0, x.dtype)
    return Mod(x, y)


def floordiv(a: Any, b: Any) -> Expr:
    """Return the integer quotient rounded towards minus infinity."""
    x, y = _integers(a, b, "floordiv")
    _no_zero(y)
    if isinstance(x, IntImm) and isinstance(y, IntImm):
        return _fold_int(x.value // y.value, x)
    return x if _is_zero(x) or _is_one(y) else FloorDiv(x, y)


def floormod(a: Any, b: Any) -> Expr:
    """Return the remainder that goes with :func:`floordiv`."""
    x, y = _integers(a, b, "floormod")
    _no_zero(y)
    if isinstance(x, IntImm) and isinstance(y, IntImm) and _folds_mod(x.dtype):
        return _fold_int(x.value % y.value, x)
    if _index_dtype(x.dtype):
        if _is_zero(x):
            return x
        if _is_one(y):
            return const(0, x.dtype)
    return FloorMod(x, y)


def indexdiv(a: Any, b: Any) -> Expr:
    """Divide an index that is not negative: :func:`floordiv`."""
    return floordiv(a, b)


def indexmod(a: Any, b: Any) -> Expr:
    """Return the remainder of an index that is not negative: :func:`floormod`."""
    return floormod(a, b)


def ceildiv(a: Any, b: Any) -> Expr:
    """Return the integer quotient rounded towards plus infinity: ``(a + b - 1) // b``."""
    total = add(a, b)
    return floordiv(subtract(total, const(1, total.dtype)), b)


def max(a: Any, b: Any) -> Expr:
    """Return ``a if a > b else b``: a NaN in ``a`` gives ``b``, a NaN in ``b`` is the result."""
    x, y = match_dtypes(a, b)
    if isinstance(x, IntImm | FloatImm) and isinstance(y, IntImm | FloatImm):
        return x if x.value > y.value else y
    return x if x is y else Max(x, y)


def min(a: Any, b: Any) -> Expr:
    """Return ``a if a < b else b``: a NaN in ``a`` gives ``b``, a NaN in ``b`` is the result."""
    x, y = match_dtypes(a, b)
    if isinstance(x, IntImm | FloatImm) and isinstance(y, IntImm | FloatImm):
        return x if x.value < y.value else y
    return x if x is y else Min(x, y)


# ---------------------------------------------------------------- comparison and logic


def _compare(
    node: Callable[[Expr, Expr], Expr], function: Callable[[Any, Any], bool], a: Any, b: Any
) -> Expr:
    x, y = match_dtypes(a, b)
    if isinstance(x, IntImm | FloatImm) and isinstance(y, IntImm | FloatImm):
        return IntImm(_BOOL, function(x.value, y.value))
    return node(x, y)


def equal(a: Any, b: Any) -> Expr:
    """Return the expression ``a == b`` (Python's ``==`` asks for identity)."""
    return _compare(EQ, operator.eq, a, b)


def not_equal(a: Any, b: Any) -> Expr:
    """Return the expression ``a != b``."""
    return _compare(NE, operator.ne, a, b)


def less(a: Any, b: Any) -> Expr:
    """Return ``a < b``."""
    return _compare(LT, operator.lt, a, b)


def less_equal(a: Any, b: Any) -> Expr:
    """Return ``a <= b``."""
    return _compare(LE, operator.le, a, b)


def greater(a: Any, b: Any) -> Expr:
    """Return ``a > b``."""
    return _compare(GT, operator.gt, a, b)


def greater_equal(a: Any, b: Any) -> Expr:
    """Return ``a >= b``."""
    return _compare(GE, operator.ge, a, b)


def _boolean(value: Any, what: str) -> Expr:
    result = as_operand(value)
    if not scalar_dtype(result).is_bool:
        raise InternalError(
            f"expected a boolean operand of {what!r}, got one of dtype {str(result.dtype)!r}: "
            f"{result!r}"
        )
    return result


def logical_and(a: Any, b: Any) -> Expr:
    """Return ``a and b`` of two booleans."""
    x, y = _boolean(a, "and"), _boolean(b, "and")
    if isinstance(x, IntImm):
        return y if x.value else x
    if isinstance(y, IntImm):
        return x if y.value else y
    return And(x, y)


def logical_or(a: Any, b: Any) -> Expr:
    """Return ``a or b`` of two booleans."""
    x, y = _boolean(a, "or"), _boolean(b, "or")
    if isinstance(x, IntImm):
        return x if x.value else y
    if isinstance(y, IntImm):
        return y if y.value else x
    return Or(x, y)


def logical_not(a: Any) -> Expr:
    """Return ``not a`` of a boolean."""
    a = _boolean(a, "not")
    return IntImm(_BOOL, not a.value) if isinstance(a, IntImm) else Not(a)


def all(*conditions: Any) -> Expr:
    """Return the conjunction of one or more booleans."""
    return _chain(logical_and, conditions, "all")


def any(*conditions: Any) -> Expr:
    """Return the disjunction of one or more booleans."""
    return _chain(logical_or, conditions, "any")


def _chain(function: Callable[[Any, Any], Expr], conditions: tuple[Any, ...], name: str) -> Expr:
    if not conditions:
        raise ValueError(f"{name} must take at least 1 argument")
    result = _boolean(conditions[0], name)
    for condition in conditions[1:]:
        result = function(result, condition)
    return result


# ---------------------------------------------------------------- bits


def _bits(name: str, a: Any, b: Any, function: Callable[[int, int], int], boolean: bool) -> Expr:
    # a Python int takes the dtype of the other operand, whatever its own would be
    if type(a) is int and isinstance(b, Expr):
        a = const(a, scalar_dtype(b))
    elif type(b) is int and isinstance(a, Expr):
        b = const(b, scalar_dtype(a))
    x, y = _integers(a, b, name, boolean)
    dtype = x.dtype
    if name.startswith("shift") and isinstance(y, IntImm) and not 0 <= y.value < dtype.bits:
        raise InternalError(
            f"{name}: the shift amount must be 0 to {dtype.bits - 1} for {dtype}, got {y.value}"
        )
    if _index_dtype(dtype):
        if isinstance(x, IntImm) and isinstance(y, IntImm):
            return _fold_int(function(x.value, y.value), x)
        if name.startswith("shift") and _is_zero(y):
            return x
    return call_intrin(dtype, f"tirx.{name}", x, y)


def bitwise_and(a: Any, b: Any) -> Expr:
    """Return ``a & b`` of integers or booleans."""
    return _bits("bitwise_and", a, b, operator.and_, boolean=True)


def bitwise_or(a: Any, b: Any) -> Expr:
    """Return ``a | b`` of integers or booleans."""
    return _bits("bitwise_or", a, b, operator.or_, boolean=True)


def bitwise_xor(a: Any, b: Any) -> Expr:
    """Return ``a ^ b`` of integers or booleans."""
    return _bits("bitwise_xor", a, b, operator.xor, boolean=True)


def bitwise_not(a: Any) -> Expr:
    """Return ``~a`` of an integer or a boolean.

    Raises
    ------
    InternalError
        If ``a`` is a float.
    """
    a = as_operand(a)
    if scalar_dtype(a).is_float:
        raise InternalError(f"bitwise_not needs an integer operand, got {str(a.dtype)!r}: {a!r}")
    return call_intrin(a.dtype, "tirx.bitwise_not", a)


def shift_left(a: Any, b: Any) -> Expr:
    """Return ``a << b``."""
    return _bits("shift_left", a, b, operator.lshift, boolean=False)


def shift_right(a: Any, b: Any) -> Expr:
    """Return ``a >> b``; arithmetic on signed integers."""
    return _bits("shift_right", a, b, operator.rshift, boolean=False)


# ---------------------------------------------------------------- choice


def if_then_else(cond: Any, true_value: Any, false_value: Any, span: Any = None) -> Expr:
    """Return a choice of which only the chosen side is evaluated.

    Raises
    ------
    InternalError
        If the condition is no boolean.
    """
    condition = as_operand(cond)
    if not scalar_dtype(condition).is_bool:
        raise InternalError(
            f"if_then_else needs a boolean condition, got dtype {str(condition.dtype)!r}: "
            f"{condition!r}"
        )
    x, y = match_dtypes(true_value, false_value)
    if isinstance(condition, IntImm):
        return x if condition.value else y
    return call_intrin(x.dtype, "tirx.if_then_else", condition, x, y)


def select(condition: Any, true_value: Any, false_value: Any) -> Expr:
    """Return a choice whose both sides may be evaluated; dtypes are matched first."""
    x, y = match_dtypes(true_value, false_value)
    return Select(_boolean(condition, "select"), x, y)


def likely(cond: Any, span: Any = None) -> Expr:
    """Mark a condition as usually true."""
    condition = as_operand(cond)
    if isinstance(condition, IntImm):
        return condition
    return call_intrin(condition.dtype, "tirx.likely", condition)
