"""Tensors made of nothing: constants, ranges, triangles, and choices between tensors.

Counterpart: ``full``, ``arange``, ``eye``, ``trilu``, ``where`` of ``tvm.topi``.

Examples
--------
>>> full((2, 3), "float32", 0.0).name
'T_full'
"""

from collections.abc import Sequence

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.sym import Analyzer
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.topi.indices import broadcast_indices, broadcast_shape, compute_ax

__all__ = ["arange", "eye", "full", "full_like", "trilu", "where"]


def full(
    shape: Sequence[Expr | int], dtype: DataType | str, fill_value: Expr | Tensor | float
) -> Tensor:
    """Return a tensor of one value, converted to ``dtype``; a tensor must have no dimension."""
    target = DataType(dtype)

    def body(*indices: Expr) -> Expr:
        return _fill(fill_value, target)

    return compute_ax(shape, body, "T_full", "elemwise")


def full_like(data: Tensor, fill_value: Expr | Tensor | float) -> Tensor:
    """Return a tensor of one value, of the shape and dtype of ``data``."""
    return compute_ax(
        data.shape, lambda *i: _fill(fill_value, data.dtype), "T_full_like", "elemwise"
    )


def _fill(value: Expr | Tensor | float, dtype: DataType) -> Expr:
    scalar = value() if isinstance(value, Tensor) else value
    if isinstance(scalar, Expr):
        return prim_ops.cast(dtype, scalar)
    return prim_ops.const(scalar, dtype)


def arange(
    start: Expr | float, stop: Expr | float, step: Expr | float, dtype: DataType | str
) -> Tensor:
    """Return ``start, start + step, ...`` below ``stop``."""
    target = DataType(dtype)
    first, last, by = (
        v if isinstance(v, Expr) else prim_ops.const(v, "int64" if isinstance(v, int) else None)
        for v in (start, stop, step)
    )
    span = prim_ops.subtract(last, first)
    if span.dtype.is_float or by.dtype.is_float:
        steps = prim_ops.div(prim_ops.cast("float32", span), prim_ops.cast("float32", by))
        count = prim_ops.cast("int64", prim_ops.ceil(steps))
    else:
        count = prim_ops.floordiv(span + by - 1, by)

    def body(index: Expr) -> Expr:
        return prim_ops.cast(target, first + by * index)

    return compute_ax((Analyzer().simplify(count),), body, "T_arange", "injective")


def eye(n: Expr | int, m: Expr | int, k: int, dtype: DataType | str) -> Tensor:
    """Return a matrix with ones where the column is the row plus ``k``."""
    one, zero = prim_ops.const(1, dtype), prim_ops.const(0, dtype)
    result: Tensor = te.compute(
        (n, m),
        lambda i, j: prim_ops.if_then_else(prim_ops.equal(i, j - k), one, zero),
        name="eye",
    )
    return result


def trilu(data: Tensor, k: Expr | int, upper: bool) -> Tensor:
    """Keep the triangle above (``upper``) or below the ``k``-th diagonal; zero elsewhere."""
    zero = prim_ops.const(0, data.dtype)

    def body(*indices: Expr) -> Expr:
        row, column = indices[-2:]
        diagonal = column - k
        keep = (
            prim_ops.less_equal(row, diagonal) if upper else prim_ops.greater_equal(row, diagonal)
        )
        return prim_ops.select(keep, data(*indices), zero)

    result: Tensor = te.compute(data.shape, body, name="trilu", tag="elemwise")
    return result


def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return ``x`` where the condition holds, else ``y``; all three are broadcast."""
    values, x_moves, y_moves = broadcast_shape(x.shape, y.shape)
    dims, _, c_moves = broadcast_shape(values, condition.shape)

    def body(*indices: Expr) -> Expr:
        chosen = condition(*broadcast_indices(indices, condition.shape, c_moves))
        return prim_ops.select(
            prim_ops.greater(chosen, 0),
            x(*broadcast_indices(indices, x.shape, x_moves)),
            y(*broadcast_indices(indices, y.shape, y_moves)),
        )

    return compute_ax(dims, body, "T_where", "broadcast")
