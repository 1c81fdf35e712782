"""Reductions over axes.

The block is called after the tensor that is reduced: ``<name>_red``. Counterpart:
``tvm.topi.reduction``.

Examples
--------
>>> from relaxlab import te
>>> y = sum(te.placeholder((2, 3), name="x"), axis=1)
>>> y.name, [d.value for d in y.shape]
('x_red', [2])
"""

from collections.abc import Callable, Sequence
from typing import Any

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.prim import IntImm
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.tirx import IterVar
from relaxlab.topi.indices import compute_ax, normalize_axes, ravel_index

__all__ = ["all", "any", "argmax", "argmin", "collapse_sum", "max", "min", "prod", "sum"]

_Axes = int | Sequence[int] | None


class _Reduction:
    """Where each index of the operand comes from: an output index or a reduction axis."""

    def __init__(self, data: Tensor, axis: _Axes, keepdims: bool) -> None:
        self.data = data
        self.reduced = normalize_axes(axis, data.ndim)
        self.keepdims = keepdims
        self.axes: tuple[IterVar, ...] = tuple(
            te.reduce_axis((0, data.shape[a]), f"k{a}") for a in self.reduced
        )

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Shape of the result."""
        dims = enumerate(self.data.shape)
        if self.keepdims:
            return tuple(IntImm(d.dtype, 1) if i in self.reduced else d for i, d in dims)
        return tuple(d for i, d in dims if i not in self.reduced)

    def operand_index(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the index into the operand for an index of the result."""
        kept = iter([i for a, i in enumerate(indices) if not (self.keepdims and a in self.reduced)])
        axis = iter(self.axes)
        return tuple(
            next(axis).var if a in self.reduced else next(kept) for a in range(self.data.ndim)
        )


def _reduce(data: Tensor, axis: _Axes, keepdims: bool, reducer: Callable[..., Any]) -> Tensor:
    name = f"{data.name}_red"
    if data.ndim == 0:
        return compute_ax((), lambda: data(), name, "elemwise")
    reduction = _Reduction(data, axis, keepdims)
    return compute_ax(
        reduction.shape,
        lambda *i: reducer(data(*reduction.operand_index(i)), axis=reduction.axes),
        name,
        "comm_reduce",
    )


_TRUE, _FALSE = (IntImm(DataType("bool"), v) for v in (1, 0))
_all = te.comm_reducer(prim_ops.logical_and, lambda dtype: _TRUE, name="all")
_any = te.comm_reducer(prim_ops.logical_or, lambda dtype: _FALSE, name="any")


def sum(data: Tensor, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Add up; for booleans whether any is true."""
    return _reduce(data, axis, keepdims, _any if data.dtype.is_bool else te.sum)


def prod(data: Tensor, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Multiply; for booleans whether all are true."""
    return _reduce(data, axis, keepdims, _all if data.dtype.is_bool else te.prod)


def max(data: Tensor, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Return the largest value."""
    return _reduce(data, axis, keepdims, te.max)


def min(data: Tensor, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Return the smallest value."""
    return _reduce(data, axis, keepdims, te.min)


def all(data: Tensor, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Say whether all booleans are true."""
    return _reduce(data, axis, keepdims, _all)


def any(data: Tensor, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Say whether any boolean is true."""
    return _reduce(data, axis, keepdims, _any)


def _extreme(
    better: Callable[[Any, Any], Expr], worst: Callable[[Any], Expr], name: str
) -> Callable[..., Any]:
    """Make a reducer over (position, value) that keeps the first of the best values."""

    def combine(lhs: Sequence[Expr], rhs: Sequence[Expr]) -> tuple[Expr, Expr]:
        (left_at, left), (right_at, right) = lhs, rhs
        ahead = better(left, right)
        first = prim_ops.logical_and(prim_ops.equal(left, right), prim_ops.less(left_at, right_at))
        at = prim_ops.select(prim_ops.logical_or(ahead, first), left_at, right_at)
        return at, prim_ops.select(ahead, left, right)

    def identity(at_dtype: str, dtype: str) -> tuple[Expr, Expr]:
        return prim_ops.const(-1, at_dtype), worst(dtype)

    return te.comm_reducer(combine, identity, name)


_argmax = _extreme(prim_ops.greater, prim_ops.min_value, "argmax")
_argmin = _extreme(prim_ops.less, prim_ops.max_value, "argmin")


def _arg_reduce(
    data: Tensor, axis: int | None, keepdims: bool, reducer: Callable[..., Any]
) -> Tensor:
    reduction = _Reduction(data, axis, keepdims)
    at = ravel_index([a.var for a in reduction.axes], [data.shape[a] for a in reduction.reduced])

    def body(*indices: Expr) -> Any:
        value = data(*reduction.operand_index(indices))
        return reducer((at, value), axis=reduction.axes)

    names = [f"ax{i}" for i in range(len(reduction.shape))]
    positions, _ = te.compute(
        reduction.shape, body, f"{data.name}_red_temp", "comm_reduce_idx", varargs_names=names
    )
    return compute_ax(
        reduction.shape, lambda *i: positions(*i), f"{data.name}_red", "comm_reduce_idx"
    )


def argmax(data: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the position of the largest value (the first of several), int64.

    Over all axes the position counts in row-major order.
    """
    return _arg_reduce(data, axis, keepdims, _argmax)


def argmin(data: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the position of the smallest value (the first of several), int64.

    Over all axes the position counts in row-major order.
    """
    return _arg_reduce(data, axis, keepdims, _argmin)


def collapse_sum(data: Tensor, target_shape: Sequence[Expr]) -> Tensor:
    """Add up what broadcasting from ``target_shape`` would have repeated.

    Raises
    ------
    ValueError
        If ``target_shape`` has more dimensions.
    """
    ahead = data.ndim - len(target_shape)
    if ahead < 0:
        raise ValueError(
            f"cannot collapse {data.ndim} dimension(s) to {len(target_shape)}: there are fewer"
        )
    ones = [
        i + ahead
        for i, (have, want) in enumerate(zip(data.shape[ahead:], target_shape, strict=True))
        if isinstance(want, IntImm) and want.value == 1 and not _literal_one(have)
    ]
    reduced = (*range(ahead), *ones)
    axes = {a: te.reduce_axis((0, data.shape[a]), f"k{a}") for a in reduced}

    def body(*indices: Expr) -> Any:
        place = tuple(axes[a].var if a in axes else indices[a - ahead] for a in range(data.ndim))
        return te.sum(data(*place), axis=tuple(axes.values()))

    return compute_ax(target_shape, body, f"{data.name}_red", "comm_reduce")


def _literal_one(extent: Expr) -> bool:
    return isinstance(extent, IntImm) and extent.value == 1
