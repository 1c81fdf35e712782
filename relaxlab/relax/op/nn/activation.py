"""Activation functions. Counterpart: part of ``tvm.relax.op.nn``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> softmax(Var("x", TensorType([2, 3]))).attrs
Attrs({'axis': -1})
"""

from collections.abc import Callable

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.type import Type
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import (
    attributes,
    normalize_axis,
    op_name,
    require_float,
    tensor_argument,
)
from relaxlab.relax.op.unary import clip, float_type, same_type, unary

__all__ = [
    "gelu",
    "gelu_tanh",
    "leakyrelu",
    "log_softmax",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "silu",
    "softmax",
    "softplus",
]

gelu = unary("nn.gelu", float_type, "Element-wise x times the normal distribution function of x.")
gelu_tanh = unary("nn.gelu_tanh", float_type, "Element-wise gelu, approximated by tanh.")
relu = unary("nn.relu", same_type, "Element-wise max(x, 0).")
selu = unary("nn.selu", float_type, "Element-wise scaled exponential linear unit.")
silu = unary("nn.silu", float_type, "Element-wise x * sigmoid(x).")


def relu6(data: Expr) -> Call:
    """Element-wise limitation to ``[0, 6]``."""
    return clip(data, 0, 6)


_LEAKYRELU = declare("nn.leakyrelu", ("data",), float_type, attributes=("alpha",))
_SOFTPLUS = declare("nn.softplus", ("data",), float_type, attributes=("beta", "threshold"))


def leakyrelu(data: Expr, alpha: float = 0.01) -> Call:
    """Element-wise ``x if x > 0 else alpha * x``."""
    return call_op(_LEAKYRELU, data, alpha=float(alpha))


def softplus(data: Expr, beta: float = 1.0, threshold: float = 20.0) -> Call:
    """Element-wise ``log(1 + exp(beta * x)) / beta``, and x where ``beta * x > threshold``."""
    return call_op(_SOFTPLUS, data, beta=float(beta), threshold=float(threshold))


def _infer_softmax(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    if ty.ndim != -1:
        normalize_axis(op_name(call), attributes(call).axis, ty.ndim)
    require_float("Softmax requires the input tensor", ty.dtype)
    return ty


def _softmax(name: str, summary: str) -> Callable[..., Call]:
    op = declare(f"nn.{name}", ("data",), _infer_softmax, attributes=("axis",))

    def build(data: Expr, axis: int = -1) -> Call:
        return call_op(op, data, axis=int(axis))

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{summary} along an axis, of floats."
    return build


def _infer_prelu(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    if ty.ndim != -1:
        normalize_axis(op_name(call), attributes(call).axis, ty.ndim)
    require_float("Prelu requires the input tensor", ty.dtype)
    return ty


_PRELU = declare("nn.prelu", ("data", "alpha"), _infer_prelu, attributes=("axis",))


def prelu(data: Expr, alpha: Expr, axis: int = 1) -> Call:
    """Element-wise ``x if x > 0 else alpha * x``, with one ``alpha`` per index of ``axis``."""
    return call_op(_PRELU, data, alpha, axis=int(axis))


softmax = _softmax("softmax", "exp(x) / sum(exp(x))")
log_softmax = _softmax("log_softmax", "Logarithm of the softmax")
