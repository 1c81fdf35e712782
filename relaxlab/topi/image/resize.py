"""Resizing images along two or three axes.

A pixel of the result asks for a position in the image, which a method takes to a value. The names
of methods, of the ways from one position to the other and of roundings are ONNX's.
Counterpart: ``tvm.topi.image.resize``.

Examples
--------
>>> from relaxlab import te
>>> y = resize(te.placeholder((1, 3, 2, 2), name="x"), (4, 4), "NCHW", "linear")
>>> [d.value for d in y.shape]
[1, 3, 4, 4]
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.prim import IntImm
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.topi.image.interpolate import Tap, cubic, linear, nested_sum

__all__ = ["METHODS", "POSITIONS", "ROUNDINGS", "resize"]

METHODS: Final = ("nearest_neighbor", "linear", "cubic")
POSITIONS: Final = (
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
#: Keeps 2.9999998 from being 2.
_SLACK: Final = 1e-5

ROUNDINGS: Final[dict[str, Callable[[Expr], Expr]]] = {
    "round": prim_ops.round,
    "round_prefer_floor": lambda x: prim_ops.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: prim_ops.floor(x + 0.5),
    "floor": lambda x: prim_ops.floor(x + _SLACK),
    "ceil": lambda x: prim_ops.ceil(x - _SLACK),
}


def resize(
    data: Tensor,
    size: Sequence[Expr | int],
    layout: str,
    method: str = "linear",
    positions: str = "half_pixel",
    rounding: str = "",
    alpha: float = -0.75,
    exclude: bool = False,
    extrapolation_value: float = 0.0,
    roi: Sequence[float] = (),
    out_dtype: DataType | str | None = None,
) -> Tensor:
    """Return the image with another number of pixels along its spatial axes.

    Parameters
    ----------
    data
        The image.
    size
        New extents of the axes D, H, W that ``layout`` has.
    layout
        What the axes of ``data`` are, such as ``"NCHW"``.
    method
        ``"nearest_neighbor"``, ``"linear"`` or ``"cubic"``.
    positions
        Which position a pixel of the result asks for; one of :data:`POSITIONS`.
    rounding
        How ``"nearest_neighbor"`` rounds; one of :data:`ROUNDINGS`, empty for the usual one.
    alpha, exclude
        The coefficient of ``"cubic"``, and whether pixels outside have no weight.
    extrapolation_value, roi
        For ``"tf_crop_and_resize"``: the value outside of the image, and the part of it that is
        resized (all starts, then all ends, from 0 to 1).
    out_dtype
        Dtype of the result, that of ``data`` if None.

    Raises
    ------
    ValueError
        If the method, the positions or the rounding are not known.
    """
    for what, name, known in (
        ("method", method, METHODS),
        ("coordinate_transformation_mode", positions, POSITIONS),
        ("rounding_method", rounding, ("", *ROUNDINGS)),
    ):
        if name not in known:
            raise ValueError(f"resize knows no {what} {name!r}; it knows {', '.join(known)}")
    axes = [axis for axis, name in enumerate(_axis_names(layout)) if name in "DHW"]
    rank = len(axes)
    dims = list(data.shape)
    for axis, extent in zip(axes, size, strict=True):
        dims[axis] = extent if isinstance(extent, Expr) else prim_ops.const(extent, "int64")
    if not rounding:
        rounding = "round" if positions == "align_corners" else "floor"
    dtype = data.dtype if out_dtype is None else DataType(out_dtype)
    is_exact = method == "nearest_neighbor" and positions == "asymmetric" and rounding == "floor"

    def body(*index: Expr) -> Expr:
        places = [
            _place(index[axis], data.shape[axis], dims[axis], positions, roi[i::rank])
            for i, axis in enumerate(axes)
        ]

        def at(where: Sequence[Expr]) -> Expr:
            full = list(index)
            for axis, pixel in zip(axes, where, strict=True):
                last = data.shape[axis] - 1
                full[axis] = prim_ops.max(prim_ops.min(pixel, last), 0)
            return prim_ops.cast("float32", data(*full))

        def neighbour(offsets: tuple[int, ...]) -> Expr:
            whole = [prim_ops.cast("int64", prim_ops.floor(place)) for place in places]
            return at([pixel + offset for pixel, offset in zip(whole, offsets, strict=True)])

        if method == "nearest_neighbor":
            value = at(
                [
                    _nearest(index[axis], place, data.shape[axis], dims[axis], rounding, is_exact)
                    if rank == 2
                    else prim_ops.cast("int64", ROUNDINGS[rounding](place))
                    for axis, place in zip(axes, places, strict=True)
                ]
            )
        elif method == "linear":
            value = nested_sum([linear(place) for place in places], neighbour)
        else:
            taps = [
                _cubic(place, alpha, exclude, data.shape[axis])
                for axis, place in zip(axes, places, strict=True)
            ]
            value = nested_sum(taps, neighbour)
        if positions == "tf_crop_and_resize":
            outside = prim_ops.const(extrapolation_value, "float32")
            for axis, place in zip(axes, places, strict=True):
                last = prim_ops.cast("float32", data.shape[axis] - 1)
                value = prim_ops.if_then_else(last < place, outside, value)
                value = prim_ops.if_then_else(place < 0.0, outside, value)
        return prim_ops.cast(dtype, value)

    result: Tensor = te.compute(dims, body, name="resize", tag="injective")
    return result


def _axis_names(layout: str) -> list[str]:
    """Return one letter for each axis; the digits of ``NCHW4c`` belong to the letter after."""
    return [letter for letter in layout if letter.isalpha()]


def _place(index: Expr, old: Expr, new: Expr, positions: str, roi: Sequence[float]) -> Expr:
    """Return the position in the image that a pixel of the result asks for, along one axis."""
    x = prim_ops.cast("float32", index)
    is_one = isinstance(new, IntImm) and new.value == 1
    place: Expr
    match positions:
        case "align_corners":
            # one pixel asks for the first one
            ratio = prim_ops.const(0.0, "float32") if is_one else _ratio(old - 1, new - 1)
            place = ratio * x
        case "asymmetric":
            place = _ratio(old, new) * x
        case "tf_half_pixel_for_nn":
            place = (x + 0.5) * _ratio(old, new)
        case "tf_crop_and_resize":
            begin, end = roi if len(roi) == 2 else (0.0, 1.0)
            last = prim_ops.cast("float32", old - 1)
            if is_one:
                place = 0.5 * (begin + end) * last
            else:
                part = float(np.float32(end) - np.float32(begin))
                start = prim_ops.const(begin, "float32") * last
                place = start + x * part * last / prim_ops.cast("float32", new - 1)
        case "pytorch_half_pixel" if is_one:
            place = prim_ops.const(-0.5, "float32")
        case _:
            place = (x + 0.5) * _ratio(old, new) - 0.5
    return place


def _ratio(a: Expr, b: Expr) -> Expr:
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return prim_ops.const(float(np.float32(a.value) / np.float32(b.value)), "float32")
    return prim_ops.div(prim_ops.cast("float32", a), prim_ops.cast("float32", b))


def _nearest(index: Expr, place: Expr, old: Expr, new: Expr, rounding: str, is_exact: bool) -> Expr:
    """Return the nearest pixel; whole factors need no floats."""
    if is_exact and isinstance(old, IntImm) and isinstance(new, IntImm):
        factor, rest = divmod(new.value, old.value)
        if not rest:
            return prim_ops.truncdiv(index, factor)
    return prim_ops.cast("int64", ROUNDINGS[rounding](place))


def _cubic(place: Expr, alpha: float, exclude: bool, extent: Expr) -> list[Tap]:
    taps = cubic(place, alpha)
    if not exclude:
        return taps
    whole = prim_ops.cast("int64", prim_ops.floor(place))
    inside = []
    for tap in taps:
        pixel = whole + tap.offset
        outside = prim_ops.any(pixel < 0, pixel > extent - 1)
        inside.append(prim_ops.if_then_else(outside, 0.0, tap.weight))
    total = inside[0]
    for weight in inside[1:]:
        total = total + weight
    return [Tap(tap.offset, weight / total) for tap, weight in zip(taps, inside, strict=True)]
