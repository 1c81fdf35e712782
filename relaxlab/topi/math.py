"""Operations on one operand, element by element.

Counterpart: ``tvm.topi.math``. What TVM writes in Python loops over ``i0, i1, ...`` into a block
called ``compute``; what it takes from C++ loops over ``ax0, ...`` into ``T_<name>``. Both are kept.

Examples
--------
>>> from relaxlab import te
>>> exp(te.placeholder((4,), name="x")).name, sign(te.placeholder((4,), name="x")).name
('compute', 'T_sign')
"""

from collections.abc import Callable
from typing import Any

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import EXPR_OPERATORS, Expr
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.topi.indices import compute_ax

__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_not",
    "cast",
    "ceil",
    "clip",
    "cos",
    "cosh",
    "erf",
    "exp",
    "floor",
    "identity",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log10",
    "log2",
    "logical_not",
    "negative",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]

_Unary = Callable[[Any], Tensor]


def _elementwise(name: str, function: Callable[[Any], Expr]) -> _Unary:
    def operation(x: Tensor) -> Tensor:
        result: Tensor = te.compute(x.shape, lambda *i: function(x(*i)), tag="elemwise")
        return result

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"Return {name} of every element."
    return operation


abs = _elementwise("abs", prim_ops.abs)
acos = _elementwise("acos", prim_ops.acos)
acosh = _elementwise("acosh", prim_ops.acosh)
asin = _elementwise("asin", prim_ops.asin)
asinh = _elementwise("asinh", prim_ops.asinh)
atan = _elementwise("atan", prim_ops.atan)
atanh = _elementwise("atanh", prim_ops.atanh)
ceil = _elementwise("ceil", prim_ops.ceil)
cos = _elementwise("cos", prim_ops.cos)
cosh = _elementwise("cosh", prim_ops.cosh)
erf = _elementwise("erf", prim_ops.erf)
exp = _elementwise("exp", prim_ops.exp)
floor = _elementwise("floor", prim_ops.floor)
identity = _elementwise("identity", lambda value: value)
isfinite = _elementwise("isfinite", prim_ops.isfinite)
isinf = _elementwise("isinf", prim_ops.isinf)
isnan = _elementwise("isnan", prim_ops.isnan)
log = _elementwise("log", prim_ops.log)
log2 = _elementwise("log2", prim_ops.log2)
log10 = _elementwise("log10", prim_ops.log10)
negative = _elementwise("negative", prim_ops.negative)
round = _elementwise("round", prim_ops.nearbyint)
rsqrt = _elementwise("rsqrt", prim_ops.rsqrt)
sigmoid = _elementwise("sigmoid", prim_ops.sigmoid)
sin = _elementwise("sin", prim_ops.sin)
sinh = _elementwise("sinh", prim_ops.sinh)
sqrt = _elementwise("sqrt", prim_ops.sqrt)
tan = _elementwise("tan", prim_ops.tan)
tanh = _elementwise("tanh", prim_ops.tanh)
trunc = _elementwise("trunc", prim_ops.trunc)


def cast(x: Tensor, dtype: DataType | str) -> Tensor:
    """Convert every element; a copy when the dtype is the same."""
    target = DataType(dtype)
    result: Tensor = te.compute(x.shape, lambda *i: prim_ops.cast(target, x(*i)), tag="elemwise")
    return result


def clip(x: Tensor, a_min: Expr | float, a_max: Expr | float) -> Tensor:
    """Limit every element to ``a_min <= x <= a_max``; a NaN becomes ``a_max``."""
    low, high = (
        prim_ops.cast(x.dtype, v) if isinstance(v, Expr) else prim_ops.const(v, x.dtype)
        for v in (a_min, a_max)
    )
    result: Tensor = te.compute(
        x.shape, lambda *i: prim_ops.max(prim_ops.min(x(*i), high), low), tag="elemwise"
    )
    return result


def sign(x: Tensor) -> Tensor:
    """Return -1, 0 or 1 for every element, in its dtype."""
    zero, one, minus = (prim_ops.const(v, x.dtype) for v in (0, 1, -1))

    def body(*indices: Expr) -> Expr:
        value = x(*indices)
        negative_or_zero = prim_ops.select(prim_ops.less(value, zero), minus, zero)
        return prim_ops.select(prim_ops.greater(value, zero), one, negative_or_zero)

    return compute_ax(x.shape, body, "T_sign", "elemwise")


def square(x: Tensor) -> Tensor:
    """Return the square of every element."""
    return compute_ax(x.shape, lambda *i: x(*i) * x(*i), "T_multiply", "broadcast")


def bitwise_not(x: Tensor) -> Tensor:
    """Invert the bits of every element."""
    return compute_ax(x.shape, lambda *i: ~x(*i), "T_bitwise_not", "elemwise")


def logical_not(x: Tensor) -> Tensor:
    """Invert every boolean."""
    return compute_ax(x.shape, lambda *i: prim_ops.logical_not(x(*i)), "T_logical_not", "elemwise")


EXPR_OPERATORS.register("te.negative", negative)
