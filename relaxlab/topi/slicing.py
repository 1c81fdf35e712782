"""Choosing elements: by a list of indices, by a range with a stride.

Counterpart: ``take`` and ``strided_slice`` of ``tvm.topi.transform``.

Examples
--------
>>> from relaxlab import te
>>> y = take(te.placeholder((4, 3), name="x"), te.placeholder((2,), "int32", "i"), axis=0)
>>> y.name, [d.value for d in y.shape]
('T_take', [2, 3])
"""

from collections.abc import Sequence
from typing import Any

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.prim import IntImm
from relaxlab.ir.sym import Analyzer
from relaxlab.te import Tensor
from relaxlab.topi.indices import compute_ax, normalize_axis, product, static_extent, unravel_index

__all__ = [
    "dynamic_slice_shape",
    "dynamic_strided_slice",
    "gather",
    "slice_length",
    "strided_slice",
    "take",
]


def take(
    data: Tensor, indices: Tensor | Expr, axis: int | None = None, mode: str = "fast"
) -> Tensor:
    """Pick elements along an axis.

    Parameters
    ----------
    data
        Where from.
    indices
        Which; a scalar expression drops the axis.
    axis
        Which axis the indices count on; None for the flattened tensor.
    mode
        ``"fast"`` trusts the indices, ``"clip"`` limits them, ``"wrap"`` counts modulo,
        ``"nan"`` gives NaN for those out of range.

    Raises
    ------
    ValueError
        If ``mode`` is not known.
    """
    if mode not in ("fast", "clip", "wrap", "nan"):
        raise ValueError(f"take: unknown mode {mode!r}; expected fast, clip, wrap or nan")
    place = None if axis is None else normalize_axis(axis, data.ndim)
    ahead = data.shape[:place] if place is not None else ()
    behind = data.shape[place + 1 :] if place is not None else ()
    middle = indices.shape if isinstance(indices, Tensor) else ()
    extent = product(data.shape) if place is None else data.shape[place]

    def body(*index: Expr) -> Expr:
        begin = len(ahead)
        end = begin + len(middle)
        chosen = indices(*index[begin:end]) if isinstance(indices, Tensor) else indices
        inside = _in_range(chosen, extent, mode)
        if place is None:
            value: Expr = data(*unravel_index(inside, data.shape))
        else:
            value = data(*index[:begin], inside, *index[end:])
        if mode != "nan":
            return value
        valid = prim_ops.logical_and(
            prim_ops.greater_equal(chosen, 0), prim_ops.less(chosen, extent)
        )
        nan = prim_ops.const(float("nan"), data.dtype)
        return prim_ops.if_then_else(valid, value, nan)

    return compute_ax((*ahead, *middle, *behind), body, "T_take", "injective")


def _in_range(index: Expr, extent: Expr, mode: str) -> Expr:
    if mode == "clip":
        return prim_ops.min(prim_ops.max(0, index), extent - 1)
    if mode == "wrap":
        return prim_ops.truncmod(prim_ops.truncmod(index, extent) + extent, extent)
    return index


def _canonical(index: Expr, extent: Expr, stride: int) -> Expr:
    """Count a slice bound from the front and keep it inside the extent."""
    low: Any = -1 if stride < 0 else 0
    high = extent - 1 if stride < 0 else extent
    if isinstance(index, Var) and index is extent:
        return high
    if not (isinstance(index, IntImm) and index.value >= 0):
        index = prim_ops.if_then_else(prim_ops.less(index, 0), index + extent, index)
    return prim_ops.min(prim_ops.max(index, low), high)


def slice_length(
    begin: Expr, end: Expr, stride: int, extent: Expr, assume_inbound: bool = False
) -> Expr:
    """Return how many elements ``begin:end:stride`` of an extent has, simplified.

    With ``assume_inbound`` the bounds are taken as they are.
    """
    if not assume_inbound:
        begin, end = _canonical(begin, extent, stride), _canonical(end, extent, stride)
    if stride < 0:
        length = prim_ops.ceildiv(begin - end, -stride)
    else:
        length = prim_ops.ceildiv(end - begin, stride)
    simplified: Expr = Analyzer().simplify(length)
    if isinstance(simplified, IntImm) and simplified.value < 0:
        return IntImm(simplified.dtype, 0)  # nothing lies between
    return simplified


def strided_slice(
    data: Tensor,
    begin: Sequence[Expr | int],
    end: Sequence[Expr | int],
    strides: Sequence[Expr | int] | None = None,
    axes: Sequence[int] | None = None,
    assume_inbound: bool = False,
) -> Tensor:
    """Take every ``strides[i]``-th element from ``begin[i]`` up to ``end[i]`` on ``axes[i]``.

    Negative bounds count from the end; bounds outside are limited unless ``assume_inbound``.

    Raises
    ------
    ValueError
        If a stride is 0 or no literal.
    """
    places = (
        tuple(range(len(begin)))
        if axes is None
        else tuple(normalize_axis(int(a), data.ndim) for a in axes)
    )
    steps = [1] * len(places) if strides is None else [_literal_stride(s) for s in strides]
    first = [_bound(b, data.shape[a]) for b, a in zip(begin, places, strict=True)]
    last = [_bound(e, data.shape[a]) for e, a in zip(end, places, strict=True)]
    known = all(static_extent(d) is not None for d in (*data.shape, *first, *last))
    trusted = assume_inbound and not known  # what is known is made sure of
    dims = list(data.shape)
    starts: dict[int, tuple[Expr, int]] = {}
    for place, b, e, step in zip(places, first, last, steps, strict=True):
        extent = data.shape[place]
        dims[place] = slice_length(b, e, step, extent, trusted)
        starts[place] = (b if trusted else _canonical(b, extent, step), step)

    def body(*indices: Expr) -> Expr:
        return data(
            *(i * starts[a][1] + starts[a][0] if a in starts else i for a, i in enumerate(indices))
        )

    name = "T_strided_slice_with_axes" if known else "T_dynamic_strided_slice_with_axes"
    return compute_ax(dims, body, name, "injective")


def _bound(value: Expr | int, extent: Expr) -> Expr:
    return prim_ops.const(value, extent.dtype) if isinstance(value, int) else value


def _literal_stride(stride: Expr | int) -> int:
    if isinstance(stride, IntImm):
        stride = stride.value
    if not isinstance(stride, int) or stride == 0:
        raise ValueError(f"strided_slice: a stride must be a literal other than 0, got {stride!r}")
    return stride


def gather(data: Tensor, axis: int, indices: Tensor) -> Tensor:
    """Pick, at every place of ``indices``, the element that it names on one axis."""
    place = normalize_axis(axis, data.ndim)
    return compute_ax(
        indices.shape,
        lambda *i: data(*i[:place], indices(*i), *i[place + 1 :]),
        "T_gather",
        "injective",
    )


def dynamic_strided_slice(
    data: Tensor, begin: Tensor, end: Tensor, strides: Tensor, output_shape: Sequence[Expr]
) -> Tensor:
    """Slice every axis, with bounds that only the running program knows.

    Parameters
    ----------
    data
        What is sliced.
    begin, end, strides
        int64 vectors with one element per axis.
    output_shape
        Extents of the result, which :func:`dynamic_slice_shape` computes.
    """

    def place(axis: int, index: Expr) -> Expr:
        extent, stride = data.shape[axis], strides(axis)
        backwards = prim_ops.less(stride, 0)
        first: Expr = begin(axis)
        first = prim_ops.if_then_else(prim_ops.less(first, 0), first + extent, first)
        low = prim_ops.if_then_else(
            backwards, prim_ops.const(-1, extent.dtype), prim_ops.const(0, extent.dtype)
        )
        high = prim_ops.if_then_else(backwards, extent - 1, extent)
        start: Expr = prim_ops.min(prim_ops.max(first, low), high) + index * stride
        return start

    return compute_ax(
        output_shape,
        lambda *i: data(*(place(axis, index) for axis, index in enumerate(i))),
        "T_strided_slice_dynamic",
        "injective",
    )


def dynamic_slice_shape(data: Tensor, begin: Tensor, end: Tensor, strides: Tensor) -> Tensor:
    """Return the extents of :func:`dynamic_strided_slice` as an int64 vector."""

    def body(i: Expr) -> Expr:
        stride = strides(i)
        backwards = prim_ops.less(stride, 0)
        extent = prim_ops.const(-1, "int64")
        for axis, dim in enumerate(data.shape):
            extent = prim_ops.select(prim_ops.equal(i, axis), dim, extent)

        def inside(bound: Expr) -> Expr:
            counted = prim_ops.select(prim_ops.less(bound, 0), bound + extent, bound)
            low = prim_ops.select(
                backwards, prim_ops.const(-1, "int64"), prim_ops.const(0, "int64")
            )
            high = prim_ops.select(backwards, extent - 1, extent)
            return prim_ops.min(prim_ops.max(counted, low), high)

        first, last = inside(begin(i)), inside(end(i))
        return prim_ops.select(
            backwards,
            prim_ops.ceildiv(first - last, prim_ops.negative(stride)),
            prim_ops.ceildiv(last - first, stride),
        )

    count = prim_ops.const(data.ndim, "int64")
    result: Tensor = te.compute((count,), body, name="T_shape_func_strided_slice_dynamic")
    return result
