"""Rearranging the elements of images. Counterpart: part of ``tvm.relax.op.nn``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> pixel_shuffle(Var("x", TensorType([1, 4, 2, 3])), 2).attrs
Attrs({'upscale_factor': 2})
"""

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import Type
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import attributes, dims_of, tensor_argument
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.topi.indices import product

__all__ = ["batch_flatten", "pixel_shuffle"]


def _infer_batch_flatten(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    if ty.ndim not in (-1, 0) and ty.ndim < 2:
        raise ValueError(
            f"batch_flatten expects input tensor to have at least 2 dimensions, but got {ty.ndim}"
        )
    dims = dims_of(ty)
    if dims is None:
        return TensorType(None, ty.dtype, ty.vdevice, 2)
    if len(dims) == 2:
        return ty
    return TensorType(ShapeExpr((dims[0], product(dims[1:]))), ty.dtype, ty.vdevice)


_BATCH_FLATTEN = declare("nn.batch_flatten", ("data",), _infer_batch_flatten)


def batch_flatten(data: Expr) -> Call:
    """Make one dimension of all but the first."""
    return call_op(_BATCH_FLATTEN, data)


def _infer_pixel_shuffle(call: Call, ctx: InferenceContext) -> Type:
    ty, factor = tensor_argument(call, 0), attributes(call).upscale_factor
    if ty.ndim < 3:
        raise InternalError("PixelShuffle requires at least 3D input tensor")
    if factor <= 0:
        raise InternalError("Upscale factor must be positive")
    dims = dims_of(ty)
    if dims is None:
        return ty
    channels, height, width = dims[-3:]
    if isinstance(channels, IntImm) and channels.value % (factor * factor):
        raise InternalError(
            "Number of input channels must be divisible by the square of the upscale factor"
        )
    simplify = ctx.analyzer.simplify
    outer = (simplify(channels // (factor * factor)),)
    inner = (simplify(height * factor), simplify(width * factor))
    return TensorType(ShapeExpr((*dims[:-3], *outer, *inner)), ty.dtype, ty.vdevice)


_PIXEL_SHUFFLE = declare(
    "nn.pixel_shuffle", ("data",), _infer_pixel_shuffle, attributes=("upscale_factor",)
)


def pixel_shuffle(data: Expr, upscale_factor: int) -> Call:
    """Make of ``r * r`` channels one, ``r`` times as high and wide.

    Parameters
    ----------
    data
        An image; the last three dimensions are channel, height and width.
    upscale_factor
        ``r``.
    """
    return call_op(_PIXEL_SHUFFLE, data, upscale_factor=int(upscale_factor))
