"""Pooling over one, two or three spatial dimensions. Counterpart: part of ``tvm.relax.op.nn``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> max_pool2d(Var("x", TensorType([1, 3, 8, 8])), 2, 2).attrs.pool_size
(2, 2)
"""

from collections.abc import Callable

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import Type
from relaxlab.relax.op.declare import InferenceContext, InferType, call_op, declare
from relaxlab.relax.op.inference import attributes, op_name, tensor_argument
from relaxlab.relax.op.layouts import (
    Numbers,
    dims_in,
    layout_of,
    padding_of,
    per_dimension,
    positive,
)
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.topi.layout import Layout, convert_shape
from relaxlab.topi.nn.pooling import without_empty_window

__all__ = [
    "POOL_ATTRIBUTES",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "pool_attributes",
]

#: Attributes of a pooling operator, in printing order.
POOL_ATTRIBUTES = (
    "pool_size",
    "strides",
    "dilation",
    "padding",
    "ceil_mode",
    "count_include_pad",
    "layout",
    "out_layout",
)
_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def pool_attributes(
    rank: int,
    pool_size: Numbers,
    strides: Numbers,
    padding: Numbers,
    dilation: Numbers,
    ceil_mode: bool,
    count_include_pad: bool,
    layout: str,
    out_layout: str | None,
) -> dict[str, object]:
    """Return the attributes of a pooling operator, numbers checked and repeated."""
    return {
        "pool_size": positive("pool_size", per_dimension("pool_size", pool_size, rank)),
        "strides": positive("strides", per_dimension("strides", strides, rank)),
        "dilation": positive("dilation", per_dimension("dilation", dilation, rank)),
        "padding": padding_of(padding, rank),
        "ceil_mode": bool(ceil_mode),
        "count_include_pad": bool(count_include_pad),
        "layout": layout,
        "out_layout": layout if out_layout is None else out_layout,
    }


def _infer_pool(rank: int) -> InferType:
    canonical = _LAYOUT[rank]

    def infer(call: Call, ctx: InferenceContext) -> Type:
        ty, attrs = tensor_argument(call, 0), attributes(call)
        layout = layout_of(call, attrs.layout, canonical, "data")
        out_layout = layout_of(call, attrs.out_layout, canonical, "output")
        dims = dims_in(call, ty, layout, canonical)
        if dims is None:
            return TensorType(None, ty.dtype, ty.vdevice, out_layout.ndim)
        spatial = [_windows(call, ctx, dims[2 + i], i, rank) for i in range(rank)]
        shape = convert_shape((*dims[:2], *spatial), Layout(canonical), out_layout)
        return TensorType(ShapeExpr(shape), ty.dtype, ty.vdevice)

    return infer


def _windows(call: Call, ctx: InferenceContext, extent: Expr, i: int, rank: int) -> Expr:
    """Return how many windows there are along the ``i``-th spatial dimension."""
    attrs = attributes(call)
    step, head = attrs.strides[i], attrs.padding[i]
    room = extent + head + attrs.padding[rank + i]
    room = room - attrs.dilation[i] * (attrs.pool_size[i] - 1) - 1
    if attrs.ceil_mode:
        room = room + (step - 1)
    count = room // step + 1
    if attrs.ceil_mode:
        count = without_empty_window(count, step, extent + head)
    count = ctx.analyzer.simplify(count)
    if isinstance(count, IntImm) and count.value < 0:
        raise ValueError(
            f"{op_name(call)}: the window is larger than the image: {extent} elements with "
            f"{head + attrs.padding[rank + i]} of padding, and a window of {attrs.pool_size[i]} "
            f"elements with a dilation of {attrs.dilation[i]}"
        )
    return count


def _pool(kind: str, rank: int, include_pad: bool) -> Callable[..., Call]:
    name = f"{kind}_pool{rank}d"
    op = declare(f"nn.{name}", ("data",), _infer_pool(rank), attributes=POOL_ATTRIBUTES)

    def build(
        data: Expr,
        pool_size: Numbers = 1,
        strides: Numbers = 1,
        padding: Numbers = 0,
        dilation: Numbers = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = include_pad,
        layout: str = _LAYOUT[rank],
        out_layout: str | None = None,
    ) -> Call:
        attrs = pool_attributes(
            rank,
            pool_size,
            strides,
            padding,
            dilation,
            ceil_mode,
            count_include_pad,
            layout,
            out_layout,
        )
        return call_op(op, data, **attrs)

    what = "largest element" if kind == "max" else "mean"
    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"""Take the {what} of every window over {rank} spatial dimension(s).

    Parameters
    ----------
    data
        An image.
    pool_size, strides, dilation
        Size of the window, its steps, and the steps inside it.
    padding
        Elements around the image: one number for all sides, one for each dimension, or those
        before every dimension followed by those behind.
    ceil_mode
        Whether a last window may reach beyond the padded image.
    count_include_pad
        Whether the padding counts in a mean.
    layout, out_layout
        Orders of dimensions, of the image and of the result.
    """
    return build


max_pool1d, max_pool2d, max_pool3d = (_pool("max", rank, False) for rank in (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = (_pool("avg", rank, rank != 2) for rank in (1, 2, 3))


def _infer_adaptive(rank: int) -> InferType:
    canonical = _LAYOUT[rank]

    def infer(call: Call, ctx: InferenceContext) -> Type:
        ty, attrs = tensor_argument(call, 0), attributes(call)
        layout = layout_of(call, attrs.layout, canonical, "data")
        out_layout = layout_of(call, attrs.out_layout, canonical, "output")
        dims = dims_in(call, ty, layout, canonical)
        if dims is None:
            if layout == out_layout and attrs.output_size is None:
                return ty
            return TensorType(None, ty.dtype, ty.vdevice, out_layout.ndim)
        spatial = dims[2:]
        if attrs.output_size is not None:
            spatial = tuple(
                IntImm(d.dtype, size) for d, size in zip(spatial, attrs.output_size, strict=True)
            )
        shape = convert_shape((*dims[:2], *spatial), Layout(canonical), out_layout)
        return TensorType(ShapeExpr(shape), ty.dtype, ty.vdevice)

    return infer


def _adaptive(rank: int) -> Callable[..., Call]:
    name = f"adaptive_avg_pool{rank}d"
    attributes_ = ("output_size", "layout", "out_layout")
    op = declare(f"nn.{name}", ("data",), _infer_adaptive(rank), attributes=attributes_)

    def build(
        data: Expr,
        output_size: Numbers | None = None,
        layout: str = _LAYOUT[rank],
        out_layout: str | None = None,
    ) -> Call:
        return call_op(
            op,
            data,
            output_size=None if output_size is None else _sizes(output_size, rank),
            layout=layout,
            out_layout=layout if out_layout is None else out_layout,
        )

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"""Take means over {rank} spatial dimension(s), as many as asked for.

    Parameters
    ----------
    data
        An image.
    output_size
        How many along each dimension, or one number for all; None for as many as there are
        elements.
    layout, out_layout
        Orders of dimensions, of the image and of the result.
    """
    return build


def _sizes(output_size: Numbers, rank: int) -> tuple[int, ...]:
    given = (output_size,) if isinstance(output_size, int) else tuple(int(s) for s in output_size)
    if len(given) == 1:
        given *= rank
    if len(given) != rank:
        raise InternalError(
            f"The output_size length is expected to be {rank}. However, the given output_size is "
            f"{given}"
        )
    return given


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = map(_adaptive, (1, 2, 3))
