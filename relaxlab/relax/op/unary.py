"""Element-wise operators of one tensor.

Counterpart: ``tvm.relax.op.unary``. Three rules cover the family: the result has the operand's
type; the same, but the dtype must be a float; the same with dtype bool.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> exp(Var("x", TensorType([2]))).op.name
'relax.exp'
"""

from collections.abc import Callable
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.type import PrimType, Type
from relaxlab.relax.literals import convert_to_expr
from relaxlab.relax.op.declare import InferenceContext, InferType, call_op, declare
from relaxlab.relax.op.inference import (
    op_name,
    require_float,
    tensor_argument,
    with_dtype,
)
from relaxlab.runtime.dtype import DataType

__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_not",
    "ceil",
    "clip",
    "cos",
    "cosh",
    "erf",
    "exp",
    "floor",
    "isfinite",
    "isinf",
    "isnan",
    "log",
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

Unary = Callable[[Expr], Call]


def same_type(call: Call, ctx: InferenceContext) -> Type:
    """Infer the operand's own type."""
    return tensor_argument(call, 0)


def float_type(call: Call, ctx: InferenceContext) -> Type:
    """Infer the operand's own type; a known dtype that is no float is refused."""
    ty = tensor_argument(call, 0)
    require_float(f"{op_name(call)} requires the input tensor", ty.dtype)
    return ty


def bool_type(call: Call, ctx: InferenceContext) -> Type:
    """Infer the operand's type with dtype bool."""
    return with_dtype(tensor_argument(call, 0), DataType("bool"))


def unary(name: str, infer_type: InferType, summary: str, argument: str = "x") -> Unary:
    """Declare a unary operator and return the function that builds its call."""
    op = declare(name, (argument,), infer_type)

    def build(x: Expr) -> Call:
        return Call(op, (x,))

    build.__name__ = build.__qualname__ = name.rpartition(".")[2]
    build.__doc__ = f"{summary}\n\nThe result has the operand's shape."
    return build


acos = unary("acos", float_type, "Element-wise inverse cosine.")
acosh = unary("acosh", float_type, "Element-wise inverse hyperbolic cosine.")
asin = unary("asin", float_type, "Element-wise inverse sine.")
asinh = unary("asinh", float_type, "Element-wise inverse hyperbolic sine.")
atan = unary("atan", float_type, "Element-wise inverse tangent.")
atanh = unary("atanh", float_type, "Element-wise inverse hyperbolic tangent.")
cos = unary("cos", float_type, "Element-wise cosine.")
cosh = unary("cosh", float_type, "Element-wise hyperbolic cosine.")
erf = unary("erf", float_type, "Element-wise error function.")
exp = unary("exp", float_type, "Element-wise e to the power x.")
log = unary("log", float_type, "Element-wise natural logarithm.")
rsqrt = unary("rsqrt", float_type, "Element-wise reciprocal of the square root.")
sigmoid = unary("sigmoid", float_type, "Element-wise 1 / (1 + exp(-x)).")
sin = unary("sin", float_type, "Element-wise sine.")
sinh = unary("sinh", float_type, "Element-wise hyperbolic sine.")
sqrt = unary("sqrt", float_type, "Element-wise square root.")
tan = unary("tan", float_type, "Element-wise tangent.")
tanh = unary("tanh", float_type, "Element-wise hyperbolic tangent.")

abs = unary("abs", same_type, "Element-wise absolute value.")
bitwise_not = unary("bitwise_not", same_type, "Element-wise inversion of all bits.")
ceil = unary("ceil", same_type, "Element-wise rounding up.")
floor = unary("floor", same_type, "Element-wise rounding down.")
logical_not = unary("logical_not", same_type, "Element-wise logical not.")
negative = unary("negative", same_type, "Element-wise -x.")
round = unary("round", same_type, "Element-wise rounding to the nearest integer, half to even.")
sign = unary("sign", same_type, "Element-wise sign: -1, 0 or 1.")
square = unary("square", same_type, "Element-wise x * x.")
trunc = unary("trunc", same_type, "Element-wise rounding towards zero.")

isfinite = unary("isfinite", bool_type, "Element-wise test for finite values.")
isinf = unary("isinf", bool_type, "Element-wise test for infinity.")
isnan = unary("isnan", bool_type, "Element-wise test for NaN.")


def _infer_clip(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    for name, bound in zip(("min", "max"), call.args[1:], strict=True):
        if not isinstance(bound.ty, PrimType):
            raise InternalError(
                f"The argument `{name}` of relax.clip is expected to be a PrimExpr, but got "
                f"{bound} of type {bound.ty!r}"
            )
    return ty


_CLIP = declare("clip", ("x", "min", "max"), _infer_clip)


def clip(x: Expr, min: Any, max: Any) -> Call:
    """Element-wise limitation to ``[min, max]``.

    Parameters
    ----------
    x
        A tensor.
    min, max
        Numbers or scalar expressions.
    """
    return call_op(_CLIP, x, convert_to_expr(min), convert_to_expr(max))
