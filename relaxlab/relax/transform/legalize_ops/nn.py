"""Legalization of operators of neural networks.

Counterpart: ``tvm.relax.transform.legalize_ops.nn``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.nn.softmax").has_attr("FLegalize")
True
"""

import math

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim_ops import const
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import (
    attrs_of,
    legalize_with,
    register_legalize,
)
from relaxlab.relax.transform.legalize_ops.unary import erf
from relaxlab.te import Tensor

__all__: list[str] = []


def gelu(x: Tensor) -> Tensor:
    """Return ``x * (0.5 + 0.5 * erf(x / sqrt(2)))``."""
    half = const(0.5, x.dtype)
    inner = erf(topi.multiply(x, const(0.5**0.5, x.dtype)))
    result: Tensor = topi.multiply(x, topi.add(half, topi.multiply(inner, half)))
    return result


def gelu_tanh(x: Tensor) -> Tensor:
    """Return the approximation of gelu with tanh."""
    one = const(1, x.dtype)
    half = topi.multiply(const(0.5, x.dtype), x)
    scaled = topi.multiply(const(math.sqrt(2 / math.pi), x.dtype), x)
    cubic = topi.multiply(topi.multiply(const(0.044715, x.dtype), x), x)
    inner = topi.tanh(topi.multiply(scaled, topi.add(one, cubic)))
    result: Tensor = topi.multiply(half, topi.add(one, inner))
    return result


def silu(x: Tensor) -> Tensor:
    """Return ``x * sigmoid(x)``."""
    result: Tensor = topi.multiply(x, topi.sigmoid(x))
    return result


def selu(x: Tensor) -> Tensor:
    """Return the scaled exponential linear unit."""
    zero, one = const(0, x.dtype), const(1, x.dtype)
    alpha = const(1.6732632423543772, x.dtype)
    positive = topi.maximum(x, zero)
    negative = topi.minimum(zero, topi.multiply(alpha, topi.subtract(topi.exp(x), one)))
    total = topi.add(positive, negative)
    result: Tensor = topi.multiply(const(1.0507009873554805, x.dtype), total)
    return result


legalize_with("nn.relu", topi.nn.relu, "relu")
legalize_with("nn.gelu", gelu, "gelu")
legalize_with("nn.gelu_tanh", gelu_tanh, "gelu_tanh")
legalize_with("nn.silu", silu, "silu")
legalize_with("nn.selu", selu, "selu")


@register_legalize("nn.leakyrelu")
def _leakyrelu(bb: BlockBuilder, call: Call) -> Expr:
    return bb.call_te(
        topi.nn.leaky_relu, call.args[0], attrs_of(call).alpha, primfunc_name_hint="leaky_relu"
    )


@register_legalize("nn.prelu")
def _prelu(bb: BlockBuilder, call: Call) -> Expr:
    return bb.call_te(topi.nn.prelu, *call.args, attrs_of(call).axis, primfunc_name_hint="prelu")


@register_legalize("nn.softplus")
def _softplus(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)
    return bb.call_te(
        topi.nn.softplus,
        call.args[0],
        attrs.beta,
        attrs.threshold,
        primfunc_name_hint="softplus",
    )


@register_legalize("nn.softmax")
def _softmax(bb: BlockBuilder, call: Call) -> Expr:
    return bb.call_te(
        topi.nn.softmax, call.args[0], attrs_of(call).axis, primfunc_name_hint="softmax"
    )


@register_legalize("nn.log_softmax")
def _log_softmax(bb: BlockBuilder, call: Call) -> Expr:
    return bb.call_te(
        topi.nn.log_softmax, call.args[0], attrs_of(call).axis, primfunc_name_hint="log_softmax"
    )


def dropout(x: Tensor) -> list[Tensor]:
    """Return the input and a mask of ones: at inference nothing is dropped."""
    return [topi.identity(x), topi.full_like(x, 1.0)]


legalize_with("nn.dropout", dropout, "dropout")


_PADDING = {
    "reflect": topi.nn.reflect_pad,
    "replicate": topi.nn.replicate_pad,
    "circular": topi.nn.circular_pad,
}


@register_legalize("nn.pad")
def _pad(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)
    before, after = attrs.pad_width[::2], attrs.pad_width[1::2]
    te_func = _PADDING.get(attrs.pad_mode)
    if te_func is None:
        return bb.call_te(
            topi.nn.pad, call.args[0], before, after, attrs.pad_value, primfunc_name_hint="pad"
        )
    return bb.call_te(
        te_func, call.args[0], before, after, primfunc_name_hint=f"{attrs.pad_mode}_pad"
    )


@register_legalize("nn.pixel_shuffle")
def _pixel_shuffle(bb: BlockBuilder, call: Call) -> Expr:
    return bb.call_te(
        topi.nn.pixel_shuffle,
        call.args[0],
        attrs_of(call).upscale_factor,
        primfunc_name_hint="pixel_shuffle",
    )
