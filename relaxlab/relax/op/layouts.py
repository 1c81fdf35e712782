"""What operators on images share: layouts of arguments, numbers per spatial dimension.

Counterpart: ``CheckTensorLayout`` and its siblings in TVM's ``src/relax/op/op_common.h``.

Examples
--------
>>> per_dimension("strides", 2, 3)
(2, 2, 2)
>>> padding_of((1, 2), 2)
(1, 2, 1, 2)
"""

from collections.abc import Sequence

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr
from relaxlab.relax.op.inference import Shape, dims_of, op_name
from relaxlab.relax.type import TensorType
from relaxlab.topi.layout import Layout, convert_shape

__all__ = [
    "Numbers",
    "dims_in",
    "layout_of",
    "padding_of",
    "per_dimension",
    "positive",
    "window_count",
]

#: One number for all spatial dimensions, or one for each.
Numbers = int | Sequence[int]


def _numbers(value: Numbers) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(int(v) for v in value)


def per_dimension(what: str, value: Numbers, rank: int) -> tuple[int, ...]:
    """Return one number for each of ``rank`` spatial dimensions.

    Raises
    ------
    InternalError
        If there is another number of them.
    """
    given = _numbers(value)
    if len(given) == 1:
        given *= rank
    if len(given) != rank:
        raise InternalError(
            f"The input {what} length is expected to be {rank}. However, the given {what} is "
            f"{given}"
        )
    return given


def positive(what: str, numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Return numbers that are all at least 1; InternalError otherwise."""
    if min(numbers) <= 0:
        raise InternalError(f"The {what} must be positive, got {numbers}")
    return numbers


def padding_of(value: Numbers, rank: int) -> tuple[int, ...]:
    """Return the padding before every spatial dimension, then that behind every one.

    One number is for all sides, one for each dimension for both its sides.

    Raises
    ------
    InternalError
        If there is another number of them.
    """
    given = _numbers(value)
    if len(given) == 1:
        given *= 2 * rank
    elif len(given) == rank:
        given *= 2
    if len(given) != 2 * rank:
        allowed = "1 or 2" if rank == 1 else f"1, {rank} or {2 * rank}"
        raise InternalError(
            f"The input padding length is expected to be either {allowed}. However, the given "
            f"padding is {given}"
        )
    return given


def layout_of(call: Call, name: str, canonical: str, what: str) -> Layout:
    """Return a layout given by name, which must have the dimensions of ``canonical``.

    Raises
    ------
    ValueError
        If it has others.
    InternalError
        If it is no layout at all.
    """
    layout = Layout(name)
    if not layout.convertible(Layout(canonical)):
        raise ValueError(
            f"{op_name(call)} requires the given {what} layout to be convertible from {canonical} "
            f"layout. However, the given layout {name} is not convertible."
        )
    return layout


def dims_in(call: Call, ty: TensorType, layout: Layout, canonical: str) -> Shape:
    """Return the extents of an image tensor in the canonical order, None when not known.

    Raises
    ------
    ValueError
        If the tensor has another number of dimensions than its layout.
    """
    if ty.ndim not in (-1, layout.ndim):
        raise ValueError(
            f"In {op_name(call)}, layout {layout} requires the input to be {layout.ndim}-dim "
            f"tensor. However, the given input has ndim {ty.ndim}"
        )
    dims = dims_of(ty)
    return None if dims is None else convert_shape(dims, layout, Layout(canonical))


def window_count(extent: Expr, window: Expr | int, step: int, pad: int, dilation: int) -> Expr:
    """Return how many windows fit along a dimension that is extended by ``pad`` elements."""
    result: Expr = (extent + pad - dilation * (window - 1) - 1) // step + 1
    return result
