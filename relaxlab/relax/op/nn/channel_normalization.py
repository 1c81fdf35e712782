"""Normalizations with one parameter per channel. Counterpart: part of ``tvm.relax.op.nn``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> x, g = Var("x", TensorType([2, 4, 3])), Var("g", TensorType([4]))
>>> group_norm(x, g, g, 2, 1, [2]).attrs.num_groups
2
"""

from collections.abc import Sequence

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import TupleType, Type
from relaxlab.relax.op.declare import InferenceContext, InferType, call_op, declare
from relaxlab.relax.op.inference import (
    BFLOAT_AND_FLOAT,
    attributes,
    dims_of,
    dtype_name,
    normalize_axes,
    normalize_axis,
    op_name,
    tensor_argument,
)
from relaxlab.relax.op.nn.normalization import infer_normalization
from relaxlab.relax.op.statistical import to_axes

__all__ = ["batch_norm", "group_norm", "instance_norm"]


def _infer_batch_norm(call: Call, ctx: InferenceContext) -> Type:
    names = ("gamma", "beta", "moving_mean", "moving_var")
    data = infer_normalization(call, ctx, names, (attributes(call).axis,))
    return TupleType((data, tensor_argument(call, 3), tensor_argument(call, 4)))


_BATCH_NORM = declare(
    "nn.batch_norm",
    ("data", "gamma", "beta", "moving_mean", "moving_var"),
    _infer_batch_norm,
    attributes=("axis", "epsilon", "center", "scale", "momentum", "training"),
)


def batch_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    moving_mean: Expr,
    moving_var: Expr,
    axis: int,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    momentum: float = 0.1,
    training: bool = True,
) -> Call:
    """Normalize each channel; a tuple of the result and the statistics to remember.

    Parameters
    ----------
    data
        A float tensor.
    gamma, beta
        Scale and offset, one per channel.
    moving_mean, moving_var
        Remembered statistics.
    axis
        The dimension of the channels.
    epsilon
        Added to the variance.
    center, scale
        Whether ``beta`` and ``gamma`` are applied.
    momentum
        How much of the new statistics is remembered.
    training
        Whether to use, and remember, the statistics of this batch.
    """
    return call_op(
        _BATCH_NORM,
        data,
        gamma,
        beta,
        moving_mean,
        moving_var,
        axis=int(axis),
        epsilon=float(epsilon),
        center=bool(center),
        scale=bool(scale),
        momentum=float(momentum),
        training=bool(training),
    )


def _infer_per_channel(grouped: bool) -> InferType:
    def infer(call: Call, ctx: InferenceContext) -> Type:
        name, attrs = op_name(call), attributes(call)
        data = tensor_argument(call, 0)
        params = [tensor_argument(call, 1), tensor_argument(call, 2)]
        channel = attrs.channel_axis
        if data.ndim != -1:
            channel = normalize_axis(name, channel, data.ndim)
            axes = normalize_axes(name, attrs.axes, data.ndim)
            if channel in axes:
                raise ValueError(
                    f"{name} expects that channel_axis must not be in axes, but got "
                    f"channel_axis: {channel}, axes: {tuple(axes)}"
                )
        if grouped and data.dtype is not None and data.dtype.code not in BFLOAT_AND_FLOAT:
            raise TypeError(
                f"{name} expects that data must be float, but got {dtype_name(data.dtype)}"
            )
        dims = dims_of(data)
        if dims is not None and grouped:
            extent = dims[channel]
            if isinstance(extent, IntImm) and extent.value % attrs.num_groups:
                raise ValueError(
                    f"{name} expects that the size of channel_axis must be divisible by "
                    f"{attrs.num_groups}, but got {extent}"
                )
        for i, param in enumerate(params):
            if param.dtype is not data.dtype:
                raise TypeError(
                    f"{name} expects that all inputs must have the same dtype, but got "
                    f"{dtype_name(param.dtype)} and {dtype_name(data.dtype)}"
                )
            if param.ndim not in (-1, 1):
                raise ValueError(
                    f"{name} expects that all inputs must have ndim=1, but got {param.ndim}"
                )
            own = dims_of(param)
            if dims is None or own is None:
                continue
            a, b = own[0], dims[channel]
            if isinstance(a, IntImm) and isinstance(b, IntImm) and a.value != b.value:
                raise ValueError(
                    f"{name} expects that the size of input {i + 1} must be equal to the size of "
                    f"channel_axis, but got {a} and {b}"
                )
        return data

    return infer


_GROUP_NORM = declare(
    "nn.group_norm",
    ("data", "gamma", "beta"),
    _infer_per_channel(grouped=True),
    attributes=("num_groups", "channel_axis", "axes", "epsilon", "center", "scale"),
)
_INSTANCE_NORM = declare(
    "nn.instance_norm",
    ("data", "gamma", "beta"),
    _infer_per_channel(grouped=False),
    attributes=("channel_axis", "axes", "epsilon", "center", "scale"),
)


def group_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    num_groups: int,
    channel_axis: int,
    axes: int | Sequence[int],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """Normalize over some dimensions and the channels of each group.

    Parameters
    ----------
    data
        A float tensor.
    gamma, beta
        Scale and offset, one per channel.
    num_groups
        Into how many groups the channels are divided.
    channel_axis
        The dimension of the channels.
    axes
        The other dimensions to normalize over.
    epsilon
        Added to the variance.
    center, scale
        Whether ``beta`` and ``gamma`` are applied.
    """
    return call_op(
        _GROUP_NORM,
        data,
        gamma,
        beta,
        num_groups=int(num_groups),
        channel_axis=int(channel_axis),
        axes=to_axes(axes),
        epsilon=float(epsilon),
        center=bool(center),
        scale=bool(scale),
    )


def instance_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    channel_axis: int,
    axes: int | Sequence[int],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """Normalize each channel of each image over ``axes``; parameters as :func:`group_norm`."""
    return call_op(
        _INSTANCE_NORM,
        data,
        gamma,
        beta,
        channel_axis=int(channel_axis),
        axes=to_axes(axes),
        epsilon=float(epsilon),
        center=bool(center),
        scale=bool(scale),
    )
