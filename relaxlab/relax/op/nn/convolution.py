"""Convolutions over one, two or three spatial dimensions. Counterpart: part of ``tvm.relax.op.nn``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> x, w = Var("x", TensorType([1, 3, 8, 8])), Var("w", TensorType([4, 3, 3, 3]))
>>> conv2d(x, w, padding=1).attrs.padding
(1, 1, 1, 1)
"""

from collections.abc import Callable

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import Type
from relaxlab.relax.op.datatype import to_dtype
from relaxlab.relax.op.declare import InferenceContext, InferType, call_op, declare
from relaxlab.relax.op.inference import (
    Shape,
    attributes,
    binary_dtype,
    broadcast_vdevice,
    op_name,
    tensor_argument,
)
from relaxlab.relax.op.layouts import (
    Numbers,
    dims_in,
    layout_of,
    padding_of,
    per_dimension,
    positive,
    window_count,
)
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType
from relaxlab.topi.layout import Layout, convert_shape

__all__ = [
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
]

#: Value of ``TMixedPrecisionPolicy``: always computed in the narrow type.
_ALWAYS = 0
#: Letters of the spatial dimensions, by their number.
_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
_Output = Callable[[Call, InferenceContext, Shape, Shape], Shape]


def _checked_groups(groups: int) -> int:
    if groups <= 0:
        raise InternalError(
            "The number of groups in convolution is expected to be positive. However, the given "
            f"number of groups is {groups}"
        )
    return int(groups)


def _unequal(a: Expr, b: Expr) -> bool:
    """Say whether two extents differ for sure."""
    return isinstance(a, IntImm) and isinstance(b, IntImm) and a.value != b.value


def _infer(rank: int, kernel_canonical: str, output: _Output) -> InferType:
    canonical = f"NC{_SPATIAL[rank]}"

    def infer(call: Call, ctx: InferenceContext) -> Type:
        data, weight = tensor_argument(call, 0), tensor_argument(call, 1)
        attrs = attributes(call)
        data_layout = layout_of(call, attrs.data_layout, canonical, "data")
        kernel_layout = layout_of(call, attrs.kernel_layout, kernel_canonical, "kernel")
        out_layout = layout_of(call, attrs.out_layout, canonical, "output")
        images = dims_in(call, data, data_layout, canonical)
        filters = dims_in(call, weight, kernel_layout, kernel_canonical)
        dtype = attrs.out_dtype
        if dtype is None:
            dtype = binary_dtype(call, *call.args)
        vdevice = broadcast_vdevice(call, data, weight)
        dims = output(call, ctx, images, filters)
        if dims is None:
            return TensorType(None, dtype, vdevice, out_layout.ndim)
        shape = ShapeExpr(convert_shape(dims, Layout(canonical), out_layout))
        return TensorType(shape, dtype, vdevice)

    return infer


def _conv_shape(call: Call, ctx: InferenceContext, images: Shape, filters: Shape) -> Shape:
    if images is None or filters is None:
        return None
    attrs, name = attributes(call), op_name(call)
    rank, groups = len(images) - 2, attrs.groups
    if _unequal(images[1], filters[1] * groups):
        raise ValueError(
            "The channel size of the data should equal to the product of input channel size of "
            "the weight and the number of groups. However, the data channel size is "
            f"{images[1]} while the weight input channel size and number of groups are "
            f"{filters[1]} and {groups}"
        )
    outputs = filters[0]
    if isinstance(outputs, IntImm) and outputs.value % groups:
        raise ValueError(
            f"Conv{rank}d expects the number of output channels to be divisible by the number of "
            f"groups. However, the number of output channels is {outputs} while the "
            f"number of groups is {groups}"
        )
    spatial = []
    for i in range(rank):
        pad = attrs.padding[i] + attrs.padding[rank + i]
        extent = ctx.analyzer.simplify(
            window_count(images[2 + i], filters[2 + i], attrs.strides[i], pad, attrs.dilation[i])
        )
        if isinstance(extent, IntImm) and extent.value < 0:
            raise ValueError(
                f"{name}: the window is larger than the image: {images[2 + i]} elements with "
                f"{pad} of padding, and filters of {filters[2 + i]} elements with a dilation of "
                f"{attrs.dilation[i]}"
            )
        spatial.append(extent)
    return (images[0], outputs, *spatial)


def _transposed_shape(call: Call, ctx: InferenceContext, images: Shape, filters: Shape) -> Shape:
    if images is None or filters is None:
        return None
    attrs = attributes(call)
    rank, groups = len(images) - 2, attrs.groups
    name = f"Conv{rank}dTranspose"
    if _unequal(images[1], filters[0]):
        raise ValueError(
            f"{name} expects the channel size of the data should equal to the input channel size "
            f"of the weight. However, the data channel size is {images[1]} while the "
            f"weight input channel size is {filters[0]}"
        )
    if isinstance(filters[0], IntImm) and filters[0].value % groups:
        raise ValueError(
            f"{name} expects the number of input channels to be divisible by the number of "
            f"groups. However, the number of input channels is {filters[0]} while the "
            f"number of groups is {groups}"
        )
    if any(o >= s for o, s in zip(attrs.output_padding, attrs.strides, strict=True)):
        raise ValueError(
            f"{name} expects the output padding less than the strides, but the output padding is"
            f"{attrs.output_padding} while the strides are{attrs.strides}"
        )
    simplify = ctx.analyzer.simplify
    spatial = [
        simplify(
            (images[2 + i] - 1) * attrs.strides[i]
            - attrs.padding[i]
            - attrs.padding[rank + i]
            + attrs.dilation[i] * (filters[2 + i] - 1)
            + attrs.output_padding[i]
            + 1
        )
        for i in range(rank)
    ]
    return (images[0], simplify(filters[1] * groups), *spatial)


def _conv(rank: int) -> Callable[..., Call]:
    data_default, kernel_default = f"NC{_SPATIAL[rank]}", f"OI{_SPATIAL[rank]}"
    op = declare(
        f"nn.conv{rank}d",
        ("data", "weight"),
        _infer(rank, kernel_default, _conv_shape),
        attributes=(
            "strides",
            "padding",
            "dilation",
            "groups",
            "data_layout",
            "kernel_layout",
            "out_layout",
            "out_dtype",
        ),
        TMixedPrecisionPolicy=_ALWAYS,
    )

    def build(
        data: Expr,
        weight: Expr,
        strides: Numbers = 1,
        padding: Numbers = 0,
        dilation: Numbers = 1,
        groups: int = 1,
        data_layout: str = data_default,
        kernel_layout: str = kernel_default,
        out_layout: str | None = None,
        out_dtype: DataType | str | None = None,
    ) -> Call:
        return call_op(
            op,
            data,
            weight,
            strides=positive("strides", per_dimension("strides", strides, rank)),
            padding=padding_of(padding, rank),
            dilation=positive("dilation", per_dimension("dilation", dilation, rank)),
            groups=_checked_groups(groups),
            data_layout=data_layout,
            kernel_layout=kernel_layout,
            out_layout=data_layout if out_layout is None else out_layout,
            out_dtype=to_dtype(out_dtype),
        )

    build.__name__ = build.__qualname__ = f"conv{rank}d"
    build.__doc__ = f"""Convolve images with filters over {rank} spatial dimension(s).

    Parameters
    ----------
    data, weight
        Images and filters.
    strides, dilation
        Steps of the window, and inside it.
    padding
        Zeros around the image: one number for all sides, one for each dimension, or those before
        every dimension followed by those behind.
    groups
        Into how many groups the channels are divided.
    data_layout, kernel_layout
        Orders of dimensions.
    out_layout
        That of the result; ``data_layout`` when None.
    out_dtype
        Type of the result and of the sums; that of the operands when None.
    """
    return build


def _conv_transpose(rank: int) -> Callable[..., Call]:
    data_default, kernel_default = f"NC{_SPATIAL[rank]}", f"IO{_SPATIAL[rank]}"
    op = declare(
        f"nn.conv{rank}d_transpose",
        ("data", "weight"),
        _infer(rank, kernel_default, _transposed_shape),
        attributes=(
            "strides",
            "padding",
            "output_padding",
            "dilation",
            "groups",
            "data_layout",
            "kernel_layout",
            "out_layout",
            "out_dtype",
        ),
        TMixedPrecisionPolicy=_ALWAYS,
    )

    def build(
        data: Expr,
        weight: Expr,
        strides: Numbers = 1,
        padding: Numbers = 0,
        output_padding: Numbers = 0,
        dilation: Numbers = 1,
        groups: int = 1,
        data_layout: str = data_default,
        kernel_layout: str = kernel_default,
        out_layout: str | None = None,
        out_dtype: DataType | str | None = None,
    ) -> Call:
        return call_op(
            op,
            data,
            weight,
            strides=positive("strides", per_dimension("strides", strides, rank)),
            padding=padding_of(padding, rank),
            output_padding=per_dimension("output_padding", output_padding, rank),
            dilation=positive("dilation", per_dimension("dilation", dilation, rank)),
            groups=_checked_groups(groups),
            data_layout=data_layout,
            kernel_layout=kernel_layout,
            out_layout=data_layout if out_layout is None else out_layout,
            out_dtype=to_dtype(out_dtype),
        )

    build.__name__ = build.__qualname__ = f"conv{rank}d_transpose"
    build.__doc__ = f"""Transposed convolution: the gradient of ``conv{rank}d`` towards its data.

    Parameters
    ----------
    data, weight
        Images and filters.
    strides, padding, dilation, groups
        Of the convolution that this one undoes.
    output_padding
        How many elements are added at the end of each spatial dimension; less than the stride.
    data_layout, kernel_layout, out_layout
        Orders of dimensions.
    out_dtype
        Type of the result and of the sums; that of the operands when None.
    """
    return build


conv1d, conv2d, conv3d = _conv(1), _conv(2), _conv(3)
conv1d_transpose, conv2d_transpose, conv3d_transpose = map(_conv_transpose, (1, 2, 3))
