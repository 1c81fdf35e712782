"""Index arithmetic that computations share.

Axes counted from the end, broadcasting of two shapes, and the way between an index of several
dimensions and a position in row-major order. Counterpart: ``tvm.topi.detail``.

Examples
--------
>>> normalize_axis(-1, 3)
2
"""

from collections.abc import Callable, Sequence
from typing import Any

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.node import structural_equal
from relaxlab.ir.prim import IntImm
from relaxlab.ir.sym import Analyzer
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.te.tensor import to_shape

__all__ = [
    "broadcast_indices",
    "broadcast_shape",
    "compute_ax",
    "is_one",
    "normalize_axes",
    "normalize_axis",
    "product",
    "ravel_index",
    "same_extent",
    "static_extent",
    "unravel_index",
    "zero_of",
]

_INT64 = DataType("int64")


def normalize_axis(axis: int, ndim: int) -> int:
    """Return the axis counted from the front.

    Raises
    ------
    ValueError
        If there is no such axis.
    """
    axis = int(axis)
    if not -ndim <= axis < ndim:
        raise ValueError(f"axis {axis} is out of range for {ndim} dimension(s)")
    return axis + ndim if axis < 0 else axis


def normalize_axes(axes: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Return axes counted from the front, ascending, each once; None means all."""
    if axes is None:
        return tuple(range(ndim))
    given = (axes,) if isinstance(axes, int | IntImm) else axes
    return tuple(sorted({normalize_axis(int(axis), ndim) for axis in given}))


def static_extent(extent: Expr) -> int | None:
    """Return the value of a literal extent, None for a symbolic one."""
    return extent.value if isinstance(extent, IntImm) else None


def is_one(extent: Expr) -> bool:
    """Say whether an extent is the literal 1."""
    return isinstance(extent, IntImm) and extent.value == 1


def same_extent(a: Expr, b: Expr) -> bool:
    """Say whether two extents are provably equal."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a.value == b.value
    if a is b or structural_equal(a, b):
        return True
    return bool(Analyzer().can_prove_equal(a, b))


def zero_of(extent: Expr) -> Expr:
    """Return 0 in the dtype of an extent."""
    return IntImm(extent.dtype, 0)


def product(extents: Sequence[Expr]) -> Expr:
    """Multiply extents from the left; 1 when there is none."""
    if not extents:
        return IntImm(_INT64, 1)
    result = extents[0]
    for extent in extents[1:]:
        result = result * extent
    return result


def compute_ax(
    shape: Sequence[Expr | int],
    fcompute: Callable[..., Any],
    name: str,
    tag: str = "",
    attrs: dict[str, Any] | None = None,
) -> Tensor:
    """Make a compute whose loops are called ``ax0, ax1, ...``; ``fcompute`` takes ``*indices``."""
    dims = to_shape(shape)

    def body(*indices: Expr) -> Any:
        return fcompute(*indices)

    names = [f"ax{i}" for i in range(len(dims))]
    result: Tensor = te.compute(dims, body, name, tag, attrs, varargs_names=names)
    return result


def broadcast_shape(
    a: Sequence[Expr], b: Sequence[Expr]
) -> tuple[tuple[Expr, ...], tuple[bool, ...], tuple[bool, ...]]:
    """Broadcast two shapes, aligned at the last dimension.

    Returns
    -------
    shape
        The common shape.
    a_moves, b_moves
        Per dimension of ``a`` and of ``b``: whether its index is that of the result (else 0).

    Raises
    ------
    ValueError
        If two literal extents differ and none is 1.
    """
    shape: list[Expr] = []
    a_moves: list[bool] = []
    b_moves: list[bool] = []
    for offset in range(1, max(len(a), len(b)) + 1):
        x = a[-offset] if offset <= len(a) else None
        y = b[-offset] if offset <= len(b) else None
        if x is None or y is None:
            only = y if x is None else x
            assert only is not None
            shape.append(only)
            (b_moves if x is None else a_moves).append(True)
            continue
        extent, x_moves, y_moves = _broadcast_extent(x, y)
        shape.append(extent)
        a_moves.append(x_moves)
        b_moves.append(y_moves)
    return tuple(reversed(shape)), tuple(reversed(a_moves)), tuple(reversed(b_moves))


def _broadcast_extent(x: Expr, y: Expr) -> tuple[Expr, bool, bool]:
    if same_extent(x, y):
        return x, True, True
    if is_one(x):
        return y, False, True
    if is_one(y):
        return x, True, False
    if isinstance(x, IntImm) and isinstance(y, IntImm):
        raise ValueError(f"extents {x.value} and {y.value} do not broadcast")
    if isinstance(x, IntImm):
        return x, True, True
    if isinstance(y, IntImm):
        return y, True, True
    return prim_ops.max(x, y), True, True


def broadcast_indices(
    indices: Sequence[Expr], shape: Sequence[Expr], moves: Sequence[bool]
) -> tuple[Expr, ...]:
    """Return the index into an operand of ``shape``, given that of the broadcast result."""
    mine = indices[len(indices) - len(shape) :]
    return tuple(
        index if move else zero_of(extent)
        for index, extent, move in zip(mine, shape, moves, strict=True)
    )


def ravel_index(indices: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """Return the row-major position of an index."""
    position: Expr | None = None
    for index, extent in zip(indices, shape, strict=True):
        position = index if position is None else position * extent + index
    return IntImm(_INT64, 0) if position is None else position


def unravel_index(position: Expr, shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return the index at a row-major position."""
    indices: list[Expr] = []
    for extent in reversed(shape):
        indices.append(prim_ops.indexmod(position, extent))
        position = prim_ops.indexdiv(position, extent)
    return tuple(reversed(indices))
