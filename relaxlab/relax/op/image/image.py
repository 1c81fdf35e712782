"""Resizing images and sampling them at places. Counterpart: ``tvm.relax.op.image.image``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> resize2d(Var("x", TensorType([1, 3, 8, 8])), (4, 4)).attrs.method
'linear'
"""

from collections.abc import Sequence

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import FloatImm, IntImm
from relaxlab.ir.type import PrimType, Type
from relaxlab.relax.op.declare import InferenceContext, InferType, call_op, declare
from relaxlab.relax.op.inference import attributes, dims_of, tensor_argument, type_of
from relaxlab.relax.op.layouts import dims_in, layout_of
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import ShapeType, TensorType
from relaxlab.relax.type_relations import dims_equal
from relaxlab.runtime.dtype import DataType
from relaxlab.topi.layout import Layout, convert_shape

__all__ = ["affine_grid", "grid_sample", "resize2d", "resize3d"]

Size = Expr | int | Sequence[Expr | int]

_RESIZE_ATTRIBUTES = (
    "roi",
    "layout",
    "method",
    "coordinate_transformation_mode",
    "rounding_method",
    "cubic_alpha",
    "cubic_exclude",
    "extrapolation_value",
    "out_dtype",
)
_LAYOUT = {2: "NCHW", 3: "NCDHW"}


def _size_of(size: Size, rank: int) -> Expr:
    """Return a size as a shape; one number is for all of ``rank`` axes."""
    if isinstance(size, int) or (isinstance(size, Expr) and isinstance(size.ty, PrimType)):
        return ShapeExpr((size,) * rank)
    return size if isinstance(size, Expr) else ShapeExpr(tuple(size))


def _size_argument(call: Call, what: str, rank: int | None) -> ShapeType:
    ty = type_of(call.args[1])
    if not isinstance(ty, ShapeType):
        raise TypeError(
            f"{what} expects the given output image size to be a Shape, while the given one is "
            f"{ty!r}"
        )
    if rank is not None and ty.ndim not in (-1, rank):
        raise ValueError(
            f"{what} expects the given output image size to be a {rank}-dim shape, while the "
            f"given one has ndim {ty.ndim}"
        )
    return ty


# ---------------------------------------------------------------- resize


def _infer_resize(rank: int) -> InferType:
    def infer(call: Call, ctx: InferenceContext) -> Type:
        ty, attrs = tensor_argument(call, 0), attributes(call)
        size = _size_argument(call, f"Resize{rank}D", rank)
        layout = layout_of(call, attrs.layout, _LAYOUT[rank], "data")
        dims = dims_in(call, ty, layout, _LAYOUT[rank])
        dtype = ty.dtype if attrs.out_dtype is None else attrs.out_dtype
        if dims is None or size.values is None:
            return TensorType(None, dtype, ty.vdevice, layout.ndim)
        shape = convert_shape(
            (*dims[:2], *size.values, *dims[2 + rank :]), Layout(_LAYOUT[rank]), layout
        )
        return TensorType(ShapeExpr(shape), dtype, ty.vdevice)

    return infer


_RESIZE = {
    rank: declare(
        f"image.resize{rank}d",
        ("data", "size"),
        _infer_resize(rank),
        attributes=_RESIZE_ATTRIBUTES,
    )
    for rank in (2, 3)
}


def _resize(
    rank: int,
    data: Expr,
    size: Size,
    roi: float | Sequence[float] | None,
    layout: str,
    method: str,
    coordinate_transformation_mode: str,
    rounding_method: str,
    cubic_alpha: float,
    cubic_exclude: int,
    extrapolation_value: float,
    out_dtype: str | DataType | None,
) -> Call:
    if roi is None:
        roi = (0.0,) * (2 * rank)
    elif not isinstance(roi, Sequence):
        roi = (roi,) * (2 * rank)
    if len(roi) != 2 * rank:
        raise ValueError(
            f"roi has all starts and then all ends of the part to resize: expected {2 * rank} "
            f"numbers, got {len(roi)}"
        )
    return call_op(
        _RESIZE[rank],
        data,
        _size_of(size, rank),
        roi=tuple(FloatImm(DataType("float32"), float(r)) for r in roi),
        layout=layout,
        method=method,
        coordinate_transformation_mode=coordinate_transformation_mode,
        rounding_method=rounding_method,
        cubic_alpha=float(cubic_alpha),
        cubic_exclude=int(cubic_exclude),
        extrapolation_value=float(extrapolation_value),
        out_dtype=None if out_dtype is None or out_dtype == "" else DataType(out_dtype),
    )


def resize2d(
    data: Expr,
    size: Size,
    roi: float | Sequence[float] | None = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "round",
    cubic_alpha: float = -0.75,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: str | DataType | None = None,
) -> Call:
    """Give an image another height and width.

    Parameters
    ----------
    data
        The image.
    size
        Height and width of the result, one number for both, or a shape.
    roi
        For ``"tf_crop_and_resize"``: the part that is resized, starts then ends, from 0 to 1.
    layout
        What the axes of ``data`` are.
    method
        ``"nearest_neighbor"``, ``"linear"`` or ``"cubic"``.
    coordinate_transformation_mode
        Which position a pixel of the result asks for; ONNX's names.
    rounding_method
        How ``"nearest_neighbor"`` rounds: ``"round"``, ``"floor"``, ``"ceil"``,
        ``"round_prefer_floor"`` or ``"round_prefer_ceil"``.
    cubic_alpha, cubic_exclude
        The coefficient of ``"cubic"``, and whether pixels outside have no weight.
    extrapolation_value
        For ``"tf_crop_and_resize"``: the value outside of the image.
    out_dtype
        Dtype of the result, that of ``data`` if None.
    """
    return _resize(
        2,
        data,
        size,
        roi,
        layout,
        method,
        coordinate_transformation_mode,
        rounding_method,
        cubic_alpha,
        cubic_exclude,
        extrapolation_value,
        out_dtype,
    )


def resize3d(
    data: Expr,
    size: Size,
    roi: float | Sequence[float] | None = None,
    layout: str = "NCDHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.75,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: str | DataType | None = None,
) -> Call:
    """Give a volume another depth, height and width; see :func:`resize2d`."""
    return _resize(
        3,
        data,
        size,
        roi,
        layout,
        method,
        coordinate_transformation_mode,
        rounding_method,
        cubic_alpha,
        cubic_exclude,
        extrapolation_value,
        out_dtype,
    )


# ---------------------------------------------------------------- grids


def _infer_grid_sample(call: Call, ctx: InferenceContext) -> Type:
    ty, grid = tensor_argument(call, 0), tensor_argument(call, 1)
    layout = attributes(call).layout
    if layout not in _LAYOUT.values():
        raise ValueError(
            f"relax.image.grid_sample knows the layouts NCHW and NCDHW, got {layout!r}"
        )
    rank = len(layout) - 2
    for what, each in (("input", ty), ("grid", grid)):
        if each.ndim not in (-1, rank + 2):
            raise ValueError(
                f"GridSample expects the {what} of layout {layout} to be {rank + 2}-dim, but got "
                f"ndim {each.ndim}"
            )
    dims, places = dims_of(ty), dims_of(grid)
    if dims is None or places is None:
        return TensorType(None, ty.dtype, ty.vdevice, rank + 2)
    for what, given, expected in (
        ("the batch", places[0], dims[0]),
        ("the components", places[1], IntImm(DataType("int64"), rank)),
    ):
        literal = isinstance(given, IntImm) and isinstance(expected, IntImm)
        if literal and not dims_equal(given, expected, ctx.analyzer):
            raise ValueError(
                f"GridSample expects {what} of the grid to be {expected}, but got {given}"
            )
    return TensorType(ShapeExpr((*dims[:2], *places[2:])), ty.dtype, ty.vdevice)


_GRID_SAMPLE = declare(
    "image.grid_sample",
    ("data", "grid"),
    _infer_grid_sample,
    attributes=("method", "layout", "padding_mode", "align_corners"),
)


def grid_sample(
    data: Expr,
    grid: Expr,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Call:
    """Return the values of an image at the places that ``grid`` names.

    Parameters
    ----------
    data
        An image or a volume.
    grid
        Places from -1 to 1, of shape ``(n, s, ...)``: the component along the last axis first.
    method
        ``"bilinear"``, ``"nearest"`` or ``"bicubic"``.
    layout
        ``"NCHW"`` or ``"NCDHW"``.
    padding_mode
        What is outside: ``"zeros"``, ``"border"`` or ``"reflection"``.
    align_corners
        Whether -1 and 1 are the centres of the outermost pixels; otherwise the edges of the image.
    """
    return call_op(
        _GRID_SAMPLE,
        data,
        grid,
        method=method,
        layout=layout,
        padding_mode=padding_mode,
        align_corners=bool(align_corners),
    )


def _infer_affine_grid(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    size = _size_argument(call, "AffineGrid", None)
    if ty.ndim not in (-1, 3):
        raise ValueError(f"AffineGrid expects the input to be 3-dim, but got ndim {ty.ndim}")
    dims = dims_of(ty)
    if size.ndim not in (-1, 2, 3):
        raise ValueError(f"AffineGrid expects a size of 2 or 3 dimensions, but got {size.ndim}")
    if dims is None or size.values is None:
        rank = -1 if size.ndim == -1 else size.ndim + 2
        return TensorType(None, ty.dtype, ty.vdevice, rank)
    for which, dim, expected in (
        ("second", dims[1], size.ndim),
        ("third", dims[2], size.ndim + 1),
    ):
        if isinstance(dim, IntImm) and dim.value != expected:
            raise ValueError(
                f"AffineGrid expects the {which} dimension of input to be {expected}, but got "
                f"{dim.value}"
            )
    return TensorType(ShapeExpr((*dims[:2], *size.values)), ty.dtype, ty.vdevice)


_AFFINE_GRID = declare(
    "image.affine_grid", ("data", "size"), _infer_affine_grid, attributes=("align_corners",)
)


def affine_grid(data: Expr, size: Size, align_corners: bool = True) -> Call:
    """Return the places to which affine maps take the pixels of an image.

    Parameters
    ----------
    data
        Maps, of shape ``(n, s, s + 1)``.
    size
        Extents of the image that is wanted, one number for height and width, or a shape.
    align_corners
        Whether -1 and 1 are the centres of the outermost pixels.
    """
    return call_op(_AFFINE_GRID, data, _size_of(size, 2), align_corners=bool(align_corners))
