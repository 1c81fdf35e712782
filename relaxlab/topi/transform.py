"""Moving elements: reshape, transpose, join, cut, repeat.

Counterpart: ``tvm.topi.transform``.

Examples
--------
>>> from relaxlab import te
>>> y = transpose(te.placeholder((2, 3), name="x"))
>>> y.name, [d.value for d in y.shape]
('T_transpose', [3, 2])
"""

from collections.abc import Sequence
from itertools import pairwise

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.sym import Analyzer
from relaxlab.te import Tensor
from relaxlab.topi.indices import (
    compute_ax,
    is_one,
    normalize_axes,
    normalize_axis,
    product,
    ravel_index,
    static_extent,
    unravel_index,
    zero_of,
)

__all__ = [
    "concatenate",
    "expand_dims",
    "flip",
    "meshgrid",
    "repeat",
    "reshape",
    "split",
    "squeeze",
    "stack",
    "tile",
    "transpose",
]


def transpose(data: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Permute dimensions; without ``axes`` reverse them.

    Raises
    ------
    ValueError
        If ``axes`` is no permutation.
    """
    order = (
        tuple(reversed(range(data.ndim)))
        if axes is None
        else tuple(normalize_axis(a, data.ndim) for a in axes)
    )
    if sorted(order) != list(range(data.ndim)):
        raise ValueError(f"axes {order} are no permutation of {data.ndim} dimension(s)")

    def body(*indices: Expr) -> Expr:
        place: list[Expr] = list(indices)
        for index, axis in zip(indices, order, strict=True):
            place[axis] = index
        return data(*place)

    return compute_ax([data.shape[a] for a in order], body, "T_transpose", "injective")


def reshape(data: Tensor, newshape: Sequence[Expr | int]) -> Tensor:
    """Read the elements, in row-major order, as another shape of the same size."""
    dims = _dims_like(newshape, data)
    if any(static_extent(d) == 0 for d in dims):
        return compute_ax(dims, lambda *i: prim_ops.const(0, data.dtype), "T_reshape", "injective")
    if not data.ndim:
        return compute_ax(dims, lambda *i: data(), "T_reshape", "injective")
    return compute_ax(
        dims,
        lambda *i: data(*unravel_index(_position(i, dims, data), data.shape)),
        "T_reshape",
        "injective",
    )


def _position(indices: Sequence[Expr], dims: Sequence[Expr], data: Tensor) -> Expr:
    return ravel_index(indices, dims) if dims else zero_of(data.shape[0])


def _dims_like(shape: Sequence[Expr | int], data: Tensor) -> tuple[Expr, ...]:
    """Return dimensions as expressions; plain ints take the index dtype of ``data``."""
    dtype = data.shape[0].dtype if data.shape else "int64"
    return tuple(prim_ops.const(d, dtype) if isinstance(d, int) else d for d in shape)


def expand_dims(data: Tensor, axis: int | Sequence[int], num_newaxis: int = 1) -> Tensor:
    """Insert dimensions of extent 1.

    Parameters
    ----------
    data
        A tensor.
    axis
        Where they lie in the result (several), or where the first of ``num_newaxis`` lies.
    num_newaxis
        How many, when ``axis`` is one number.
    """
    if isinstance(axis, int):
        first = normalize_axis(axis, data.ndim + 1)
        new = tuple(range(first, first + num_newaxis))
        ndim = data.ndim + num_newaxis
    else:
        ndim = data.ndim + len(axis)
        new = normalize_axes(axis, ndim)
    kept = [a for a in range(ndim) if a not in new]
    dtype = data.shape[0].dtype if data.shape else "int64"
    dims = [prim_ops.const(1, dtype)] * ndim
    for place, extent in zip(kept, data.shape, strict=True):
        dims[place] = extent
    result: Tensor = te.compute(
        dims, lambda *i: data(*(i[a] for a in kept)), name="expand_dims", tag="broadcast"
    )
    return result


def squeeze(data: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """Drop dimensions of extent 1; without ``axis`` all that are literally 1."""
    if axis is None:
        dropped = tuple(a for a, extent in enumerate(data.shape) if is_one(extent))
    else:
        dropped = normalize_axes(axis, data.ndim)
    dims = [extent for a, extent in enumerate(data.shape) if a not in dropped]

    def body(*indices: Expr) -> Expr:
        kept = iter(indices)
        return data(*(zero_of(d) if a in dropped else next(kept) for a, d in enumerate(data.shape)))

    return compute_ax(dims, body, "T_squeeze", "injective")


def concatenate(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Join tensors along one axis."""
    first = tensors[0]
    place = normalize_axis(axis, first.ndim)
    total = first.shape[place]
    for tensor in tensors[1:]:
        total = total + tensor.shape[place]
    dims = list(first.shape)
    dims[place] = Analyzer().simplify(total)

    def body(*indices: Expr) -> Expr:
        result: Expr = first(*indices)
        offset = indices[place]
        for before, tensor in pairwise(tensors):
            offset = offset - before.shape[place]
            moved = (*indices[:place], offset, *indices[place + 1 :])
            result = prim_ops.if_then_else(
                prim_ops.greater_equal(offset, zero_of(offset)), tensor(*moved), result
            )
        return result

    return compute_ax(dims, body, "T_concat", "injective")


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Join tensors along a new axis."""
    first = tensors[0]
    place = normalize_axis(axis, first.ndim + 1)
    dtype = first.shape[0].dtype if first.shape else "int64"
    count = prim_ops.const(len(tensors), dtype)
    dims = (*first.shape[:place], count, *first.shape[place:])

    def body(*indices: Expr) -> Expr:
        which = indices[place]
        rest = (*indices[:place], *indices[place + 1 :])
        result: Expr = first(*rest)
        for i, tensor in enumerate(tensors[1:], 1):
            here = prim_ops.equal(which, prim_ops.const(i, which.dtype))
            result = prim_ops.if_then_else(here, tensor(*rest), result)
        return result

    return compute_ax(dims, body, "T_stack", "injective")


def split(
    data: Tensor, indices_or_sections: int | Sequence[Expr | int], axis: int = 0
) -> tuple[Tensor, ...]:
    """Cut a tensor along an axis, into equal sections (the last may be smaller) or at indices."""
    place = normalize_axis(axis, data.ndim)
    extent = data.shape[place]
    if isinstance(indices_or_sections, int | IntImm):
        sections = int(indices_or_sections)
        size = prim_ops.indexdiv(
            extent + prim_ops.const(sections - 1, extent.dtype)
            if isinstance(extent, IntImm)
            else extent + sections - 1,
            sections,
        )
        begins = [zero_of(extent), *(size * i for i in range(1, sections))]
        name = "T_split_sections"
    else:
        given = [
            prim_ops.const(i, extent.dtype)
            if isinstance(i, int)
            else prim_ops.cast(extent.dtype, i)
            for i in indices_or_sections
        ]
        begins = [zero_of(extent), *given]
        name = "T_split"
    begins = [_at_most(begin, extent) for begin in begins]
    ends = [*begins[1:], extent]
    return tuple(
        _section(data, place, begin, end, name) for begin, end in zip(begins, ends, strict=True)
    )


def _at_most(begin: Expr, extent: Expr) -> Expr:
    """Keep a literal cut inside a literal extent, where TVM makes a negative one."""
    if isinstance(begin, IntImm) and isinstance(extent, IntImm):
        return begin if begin.value <= extent.value else extent
    return begin


def _section(data: Tensor, place: int, begin: Expr, end: Expr, name: str) -> Tensor:
    dims = list(data.shape)
    dims[place] = end - begin
    return compute_ax(
        dims,
        lambda *i: data(*i[:place], i[place] + begin, *i[place + 1 :]),
        name,
        "injective",
    )


def repeat(data: Tensor, repeats: int, axis: int | None = None) -> Tensor:
    """Repeat each element ``repeats`` times along an axis; without axis those of all, in order."""
    if axis is None:
        data, axis = reshape(data, (product(data.shape),)), 0
    place = normalize_axis(axis, data.ndim)
    dims = list(data.shape)
    dims[place] = prim_ops.const(repeats, dims[place].dtype) * dims[place]
    return compute_ax(
        dims,
        lambda *i: data(*i[:place], prim_ops.indexdiv(i[place], repeats), *i[place + 1 :]),
        "T_repeat",
        "injective",
    )


def tile(data: Tensor, reps: int | Sequence[int]) -> Tensor:
    """Repeat a tensor as a whole; the shorter of shape and ``reps`` is filled with leading 1s."""
    times = [reps] if isinstance(reps, int) else [int(r) for r in reps]
    dtype = data.shape[0].dtype if data.shape else "int64"
    ndim = max(len(times), data.ndim)
    times = [1] * (ndim - len(times)) + times
    extents = [prim_ops.const(1, dtype)] * (ndim - data.ndim) + list(data.shape)
    dims = [extent * count for extent, count in zip(extents, times, strict=True)]

    def body(*indices: Expr) -> Expr:
        mine = indices[ndim - data.ndim :]
        return data(
            *(prim_ops.indexmod(i, extent) for i, extent in zip(mine, data.shape, strict=True))
        )

    return compute_ax(dims, body, "T_tile", "broadcast")


def flip(data: Tensor, axis: int = 0) -> Tensor:
    """Reverse the order along one axis."""
    place = normalize_axis(axis, data.ndim)
    extent = data.shape[place]
    return compute_ax(
        data.shape,
        lambda *i: data(*i[:place], extent - i[place] - 1, *i[place + 1 :]),
        "T_reverse_sequence",
        "injective",
    )


def meshgrid(tensors: Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """Return, for each vector, its coordinate at every point of the grid they span.

    With ``indexing="xy"`` the first two dimensions of the grid are swapped.

    Raises
    ------
    ValueError
        If ``indexing`` is neither.
    """
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid: indexing must be ij or xy, got {indexing!r}")
    places = list(range(len(tensors)))
    if indexing == "xy" and len(tensors) > 1:
        places[:2] = [1, 0]
    dims: list[Expr] = [tensors[0].shape[0]] * len(tensors)
    for place, tensor in zip(places, tensors, strict=True):
        dims[place] = tensor.shape[0]
    return tuple(
        _coordinate(tensor, dims, place) for place, tensor in zip(places, tensors, strict=True)
    )


def _coordinate(tensor: Tensor, dims: Sequence[Expr], place: int) -> Tensor:
    return compute_ax(dims, lambda *i: tensor(i[place]), "T_meshgrid", "broadcast")
