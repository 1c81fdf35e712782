"""Pooling: the largest or the mean element of every window of an image.

Counterpart: ``tvm.topi.nn.pool1d``, ``pool2d``, ``pool3d`` and ``adaptive_pool``.

Examples
--------
>>> from relaxlab import te
>>> x = te.placeholder((1, 2, 4, 4), name="x")
>>> pool(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max", layout="NCHW").name
'pool_max'
"""

from collections.abc import Sequence
from typing import Any

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.sym import Analyzer
from relaxlab.te import Tensor
from relaxlab.topi.indices import compute_ax
from relaxlab.topi.layout import Layout

__all__ = ["adaptive_pool", "pad_ax", "pool", "spatial_places", "without_empty_window"]


def spatial_places(layout: str) -> list[int]:
    """Return the places of depth, height and width among the dimensions, those that there are."""
    axes = Layout(layout).axes
    return [axes.index(axis) for axis in "DHW" if axis in axes]


def pad_ax(
    data: Tensor, before: Sequence[int], after: Sequence[int], value: Expr, name: str = "pad_temp"
) -> Tensor:
    """Put ``value`` around a tensor; only what can fail is checked, loops are ``ax0, ...``."""
    simplify = Analyzer().simplify
    dims = [
        simplify(extent + b + a) for extent, b, a in zip(data.shape, before, after, strict=True)
    ]

    def body(*indices: Expr) -> Expr:
        place: list[Expr] = []
        inside: list[Expr] = []
        for index, extent, b, a in zip(indices, data.shape, before, after, strict=True):
            place.append(index - b if b else index)
            if b:
                inside.append(prim_ops.greater_equal(index, b))
            if a:
                inside.append(prim_ops.less(index, simplify(extent + b)))
        element = data(*place)
        return prim_ops.if_then_else(prim_ops.all(*inside), element, value) if inside else element

    return compute_ax(dims, body, name, "pad")


def without_empty_window(count: Expr, stride: int, end: Expr) -> Expr:
    """Return how many of ``count`` windows begin before ``end``: all, or all but the last."""
    begin = (count - 1) * stride
    return prim_ops.if_then_else(prim_ops.greater_equal(begin, end), count - 1, count)


class _Windows:
    """Where the windows lie on the spatial dimensions of an image."""

    def __init__(
        self,
        data: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int],
        dilation: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        layout: str,
    ) -> None:
        self.data, self.kernel, self.stride, self.dilation = data, kernel, stride, dilation
        self.places = spatial_places(layout)
        rank = len(self.places)
        self.head, self.tail = list(padding[:rank]), list(padding[rank:])
        #: How far the image is extended behind; more than ``tail`` for a last, partial window.
        self.extra = [t + s - 1 if ceil_mode else t for t, s in zip(self.tail, stride, strict=True)]
        self.axes = [te.reduce_axis((0, k), f"rv{i}") for i, k in enumerate(kernel)]
        simplify = Analyzer().simplify
        dims = list(data.shape)
        for i, place in enumerate(self.places):
            room = data.shape[place] - (kernel[i] - 1) * dilation[i] - 1
            room = room + self.head[i] + self.extra[i]
            count = prim_ops.indexdiv(room, stride[i]) + 1
            if ceil_mode:
                count = without_empty_window(count, stride[i], data.shape[place] + self.head[i])
            dims[place] = simplify(count)
        self.dims = dims

    def padded(self, value: Expr) -> Tensor:
        """Return the image with its padding, or itself when there is none."""
        if not any((*self.head, *self.extra)):
            return self.data
        before, after = [0] * self.data.ndim, [0] * self.data.ndim
        for i, place in enumerate(self.places):
            before[place], after[place] = self.head[i], self.extra[i]
        return pad_ax(self.data, before, after, value)

    def element(self, indices: Sequence[Expr]) -> list[Expr]:
        """Return the index of the window's current element in the padded image."""
        place = list(indices)
        for i, at in enumerate(self.places):
            place[at] = indices[at] * self.stride[i] + self.axes[i].var * self.dilation[i]
        return place

    def count(self, indices: Sequence[Expr], count_include_pad: bool) -> Expr:
        """Return how many elements of a window count: all, or those inside the image."""
        total: Expr | None = None
        for i, at in enumerate(self.places):
            step, extent = self.dilation[i], self.data.shape[at]
            start: Expr = indices[at] * self.stride[i] - self.head[i]
            end = start + (self.kernel[i] - 1) * step
            if count_include_pad:
                end = prim_ops.min(end, extent + self.tail[i] - 1)
            else:
                end = prim_ops.min(end, extent - 1)
                behind = prim_ops.subtract(step - 1, start)
                start = start + prim_ops.max(prim_ops.div(behind, step), 0) * step
            count = prim_ops.div(end - start, step) + 1
            total = count if total is None else total * count
        assert total is not None, "a pooled image has spatial dimensions"
        return total if count_include_pad else prim_ops.max(total, 1)


def pool(
    data: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> Tensor:
    """Return the largest element, or the mean, of every window.

    Parameters
    ----------
    data
        An image.
    kernel, stride, dilation
        Size of the window, its steps, and the steps inside it, per spatial dimension.
    padding
        Elements before the first of each spatial dimension, then those behind the last.
    pool_type
        ``"max"`` or ``"avg"``.
    ceil_mode
        Whether a last window may reach beyond the padded image.
    layout
        Order of dimensions.
    count_include_pad
        Whether the padding counts in a mean.

    Raises
    ------
    ValueError
        If ``pool_type`` is neither.
    """
    windows = _Windows(data, kernel, stride, dilation, padding, ceil_mode, layout)
    if pool_type == "max":
        lowest = prim_ops.min_value(data.dtype)
        image = windows.padded(lowest)
        return compute_ax(
            windows.dims,
            lambda *i: te.max(image(*windows.element(i)), axis=windows.axes),
            "pool_max",
            "pool_max",
            {"schedule_rule": "meta_schedule.pool_max"},
        )
    if pool_type != "avg":
        raise ValueError(f"pool: pool_type must be max or avg, got {pool_type!r}")
    image = windows.padded(prim_ops.const(0, data.dtype))
    total = compute_ax(
        windows.dims,
        lambda *i: te.sum(image(*windows.element(i)), axis=windows.axes),
        "pool_sum",
        "pool_sum",
    )
    return compute_ax(
        windows.dims,
        lambda *i: prim_ops.div(
            total(*i), prim_ops.cast(data.dtype, windows.count(i, count_include_pad))
        ),
        "pool_avg",
        "elemwise",
        {"schedule_rule": "meta_schedule.pool_avg"},
    )


def adaptive_pool(
    data: Tensor, output_size: Sequence[Expr | int], pool_type: str, layout: str = "NCHW"
) -> Tensor:
    """Return as many means (or largest elements) as asked for, of windows that cover the image.

    Parameters
    ----------
    data
        An image.
    output_size
        How many windows along each spatial dimension.
    pool_type
        ``"max"`` or ``"avg"``.
    layout
        Order of dimensions.

    Raises
    ------
    ValueError
        If ``pool_type`` is neither.
    """
    if pool_type not in ("avg", "max"):
        raise ValueError(f"adaptive_pool: pool_type must be max or avg, got {pool_type!r}")
    places = spatial_places(layout)
    simplify = Analyzer().simplify
    sizes = [prim_ops.const(size) if isinstance(size, int) else size for size in output_size]
    dims = list(data.shape)
    for place, size in zip(places, sizes, strict=True):
        dims[place] = size

    def bounds(indices: Sequence[Expr]) -> list[tuple[Expr, Expr]]:
        """Return (first element, number of elements) on each spatial dimension."""
        found = []
        for place, size in zip(places, sizes, strict=True):
            extent, index = data.shape[place], indices[place]
            first = prim_ops.indexdiv(index * extent, size)
            behind = (index + 1) * extent
            whole = prim_ops.indexdiv(behind, size)
            exact = prim_ops.equal(prim_ops.indexmod(behind, size), 0)
            last = prim_ops.select(exact, whole, whole + 1)
            found.append((simplify(first), simplify(last - first)))
        return found

    def windowed(*indices: Expr) -> Any:
        place, axes = list(indices), []
        for i, (at, (first, count)) in enumerate(zip(places, bounds(indices), strict=True)):
            axis = te.reduce_axis((0, count), f"rv{i}")
            place[at] = first + axis.var
            axes.append(axis)
        return (te.max if pool_type == "max" else te.sum)(data(*place), axis=axes)

    if pool_type == "max":
        rule = {"schedule_rule": "meta_schedule.adaptive_pool_max"}
        return compute_ax(dims, windowed, "adaptive_pool_max", "adaptive_pool_max", rule)
    total = compute_ax(dims, windowed, "adaptive_pool_sum", "adaptive_pool_sum")

    def mean(*indices: Expr) -> Expr:
        divisor: Expr | None = None
        for _, count in bounds(indices):
            factor = prim_ops.cast(data.dtype, prim_ops.cast("int32", count))
            divisor = factor if divisor is None else divisor * factor
        assert divisor is not None, "a pooled image has spatial dimensions"
        return prim_ops.div(total(*indices), divisor)

    rule = {"schedule_rule": "meta_schedule.adaptive_pool_avg"}
    return compute_ax(dims, mean, "adaptive_pool_avg", "elemwise", rule)
