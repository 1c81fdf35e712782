"""Activation functions.

Counterpart: ``tvm.topi.nn.elemwise``.

Examples
--------
>>> from relaxlab import te
>>> relu(te.placeholder((4,), name="x")).name
'compute'
"""

from typing import Any

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.te import Tensor
from relaxlab.topi.indices import is_one, normalize_axis, same_extent, zero_of

__all__ = ["leaky_relu", "prelu", "relu", "softplus"]


def _map(x: Tensor, function: Any) -> Tensor:
    result: Tensor = te.compute(x.shape, function, tag="elemwise")
    return result


def relu(x: Tensor) -> Tensor:
    """Return ``max(x, 0)``; a NaN becomes 0."""
    zero = prim_ops.const(0, x.dtype)
    return _map(x, lambda *i: prim_ops.max(x(*i), zero))


def leaky_relu(x: Tensor, alpha: float) -> Tensor:
    """Return ``x`` where positive, else ``alpha * x``."""
    zero, slope = prim_ops.const(0, x.dtype), prim_ops.const(alpha, x.dtype)
    return _map(
        x,
        lambda *i: prim_ops.select(prim_ops.greater(x(*i), zero), x(*i), x(*i) * slope),
    )


def prelu(x: Tensor, slope: Tensor, axis: int = 1) -> Tensor:
    """Return ``x`` where positive, else ``slope * x`` with one slope per index of ``axis``.

    A single slope is for all.

    Raises
    ------
    ValueError
        If there is another number of slopes.
    """
    place = normalize_axis(axis, x.ndim)
    extent, given = x.shape[place], slope.shape[0] if slope.ndim == 1 else None
    if given is None or not (is_one(given) or same_extent(given, extent)):
        raise ValueError(
            f"prelu needs one slope for each of {extent} indices of axis {place}, or a single one; "
            f"got slopes of shape ({', '.join(map(str, slope.shape))})"
        )
    if is_one(given) and not is_one(extent):
        single = slope
        slope = te.compute((extent,), lambda c: single(zero_of(given)), name="slope_broadcasted")
    zero = prim_ops.const(0, x.dtype)
    return _map(
        x,
        lambda *i: prim_ops.select(prim_ops.greater(x(*i), zero), x(*i), x(*i) * slope(i[place])),
    )


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return ``log(1 + exp(beta * x)) / beta``, and ``x`` itself where ``beta * x`` is large."""
    one, limit = prim_ops.const(1, x.dtype), prim_ops.const(threshold, x.dtype)
    factor, inverse = prim_ops.const(beta, x.dtype), prim_ops.const(1.0 / beta, x.dtype)

    def body(*indices: Expr) -> Expr:
        value = x(*indices)
        scaled = factor * value
        smooth = inverse * prim_ops.log(one + prim_ops.exp(scaled))
        return prim_ops.select(prim_ops.greater(scaled, limit), value, smooth)

    return _map(x, body)
