"""Sampling an image at places that a tensor names, and the places of an affine map.

Places run from -1 to 1 along each axis, in the order x, y, z. Counterpart:
``tvm.topi.image.grid_sample``.

Examples
--------
>>> from relaxlab import te
>>> y = affine_grid(te.placeholder((1, 2, 3), name="theta"), (4, 5))
>>> [d.value for d in y.shape]
[1, 2, 4, 5]
"""

from collections.abc import Callable, Sequence
from typing import Final

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.prim import IntImm
from relaxlab.te import Tensor
from relaxlab.topi.image.interpolate import Tap, cubic_weights, linear

__all__ = ["METHODS", "PADDINGS", "affine_grid", "grid_sample"]

METHODS: Final = ("bilinear", "nearest", "bicubic")
PADDINGS: Final = ("zeros", "border", "reflection")
#: The coefficient of cubic interpolation here, as in PyTorch.
_ALPHA: Final = -0.75
_AXES: Final = ("d", "h", "w")


def affine_grid(data: Tensor, target_shape: Sequence[int], align_corners: bool = True) -> Tensor:
    """Return the places to which affine maps take the pixels of an image.

    Parameters
    ----------
    data
        Maps, of shape ``(n, s, s + 1)`` for ``s`` spatial axes.
    target_shape
        Extents of the image that is wanted.
    align_corners
        Whether -1 and 1 are the centres of the first and the last pixel; otherwise they are the
        edges of the image.

    Raises
    ------
    ValueError
        If corners are to be aligned along an axis of one pixel.
    """
    rank = len(target_shape)
    if align_corners and min(target_shape) <= 1:
        raise ValueError(
            "affine_grid with align_corners=True needs at least two pixels along each axis, got "
            f"{tuple(target_shape)}"
        )
    # a little less than 2, as in TVM, so that rounding leaves no place outside
    span = 2.0 - 1e-7
    steps = [span / (n - 1) if align_corners else 2.0 / n for n in target_shape]
    starts = [-1.0 if align_corners else -1.0 + 1.0 / n for n in target_shape]

    def body(n: Expr, dim: Expr, *index: Expr) -> Expr:
        result = data(n, dim, prim_ops.const(rank, "int64"))
        for axis in range(rank):
            step = prim_ops.const(steps[axis], "float32")
            place = prim_ops.const(starts[axis], "float32") + (
                prim_ops.cast("float32", index[axis]) * step
            )
            result = result + data(n, dim, prim_ops.const(rank - 1 - axis, "int64")) * place
        return result

    dims: list[Expr | int] = [data.shape[0], prim_ops.const(rank, "int64"), *target_shape]
    names = [f"i{axis}" for axis in range(rank)]
    result: Tensor = te.compute(dims, body, tag="injective", varargs_names=names)
    return result


def grid_sample(
    data: Tensor,
    grid: Tensor,
    method: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Tensor:
    """Return the values of an image at places.

    Parameters
    ----------
    data
        An image of shape ``(n, c, [d,] h, w)``.
    grid
        Places of shape ``(n, s, ...)``, the component along the last axis of ``data`` first.
    method
        ``"bilinear"``, ``"nearest"`` or, along two axes, ``"bicubic"``.
    padding_mode
        What is outside of the image: ``"zeros"``, its nearest pixel (``"border"``) or its mirror
        image (``"reflection"``).
    align_corners
        As for :func:`affine_grid`.

    Raises
    ------
    ValueError
        If the method or the padding are not known, or ``"bicubic"`` is to work on a volume.
    """
    rank = data.ndim - 2
    if method not in METHODS or padding_mode not in PADDINGS:
        raise ValueError(
            f"grid_sample knows the methods {', '.join(METHODS)} and the paddings "
            f"{', '.join(PADDINGS)}; got {method!r} and {padding_mode!r}"
        )
    if method == "bicubic" and rank != 2:
        raise ValueError("grid_sample interpolates volumes with method='bilinear' or 'nearest'")
    extents = data.shape[2:]

    def body(n: Expr, c: Expr, *index: Expr) -> Expr:
        def at(pixels: Sequence[Expr]) -> Expr:
            low = [prim_ops.const(0, "int64") <= pixel for pixel in pixels]
            high = [pixel < extent for pixel, extent in zip(pixels, extents, strict=True)]
            zero = prim_ops.const(0.0, data.dtype)
            return prim_ops.if_then_else(prim_ops.all(*low, *high), data(n, c, *pixels), zero)

        places = []
        for axis in range(rank):
            place = grid(n, prim_ops.const(rank - 1 - axis, "int64"), *index)
            position = _position(place, extents[axis], align_corners)
            if method != "bicubic":
                position = _inside(position, extents[axis], padding_mode, align_corners)
            places.append(position)
        if method == "nearest":
            return at([prim_ops.cast("int64", prim_ops.nearbyint(place)) for place in places])
        whole = [prim_ops.cast("int64", prim_ops.floor(place)) for place in places]

        def pixel(axis: int, offset: int) -> Expr:
            where: Expr = whole[axis] + offset
            if method != "bicubic" or padding_mode == "zeros":
                # a neighbour beyond the edge has no weight
                return where
            moved = _inside(
                prim_ops.cast("float32", where), extents[axis], padding_mode, align_corners
            )
            return prim_ops.cast("int64", moved)

        taps = [linear(place) if method == "bilinear" else _cubic(place) for place in places]
        return _sum_of_products(taps, at, pixel)

    names = _AXES[-rank:]
    dims = (*data.shape[:2], *grid.shape[2:])
    result: Tensor = te.compute(dims, body, tag="grid_sample", varargs_names=names)
    return result


def _sum_of_products(
    taps: Sequence[Sequence[Tap]],
    at: Callable[[Sequence[Expr]], Expr],
    pixel: Callable[[int, int], Expr],
) -> Expr:
    """Return the sum over all neighbours of their value times their weights along each axis."""
    chosen: list[list[Tap]] = [[]]
    for axis_taps in taps:
        chosen = [[*before, tap] for before in chosen for tap in axis_taps]
    total: Expr | None = None
    for combination in chosen:
        term = at([pixel(axis, tap.offset) for axis, tap in enumerate(combination)])
        # of a volume, TVM weighs along the last axis first
        for tap in combination if len(combination) == 2 else reversed(combination):
            term = term * tap.weight
        total = term if total is None else total + term
    assert total is not None
    return total


def _cubic(position: Expr) -> list[Tap]:
    fraction = linear(position)[1].weight
    weights = cubic_weights(fraction, _ALPHA)
    return [Tap(offset, weight) for offset, weight in zip(range(-1, 3), weights, strict=True)]


def _position(place: Expr, extent: Expr, align_corners: bool) -> Expr:
    """Return where a place from -1 to 1 is, counted in pixels."""
    span = prim_ops.cast(place.dtype, extent - 1 if align_corners else extent)
    result: Expr = (place + 1.0) * span / 2.0
    return result if align_corners else prim_ops.const(-0.5, "float32") + result


def _inside(position: Expr, extent: Expr, padding_mode: str, align_corners: bool) -> Expr:
    """Return a position that is moved into the image as the padding says."""
    if padding_mode == "zeros":
        return position
    last = prim_ops.cast("float32", extent - 1)
    if padding_mode == "reflection":
        low = 0.0 if align_corners else -0.5
        if isinstance(extent, IntImm) and extent.value == 1 and align_corners:
            return prim_ops.const(0.0, "float32")
        span = last if align_corners else prim_ops.cast("float32", extent)
        # how far from the lower edge, in periods of there and back
        away = prim_ops.abs(position - low)
        turns = prim_ops.floor(away / span)
        rest = away - turns * span
        is_back = prim_ops.equal(prim_ops.truncmod(prim_ops.cast("int32", turns), 2), 1)
        position = prim_ops.if_then_else(is_back, span - rest, rest) + low
    return prim_ops.min(prim_ops.max(position, 0.0), last)
