"""Sums and products of all elements so far.

One row after the other, the rows in parallel; written as a statement, since each element needs
the one before it. Counterpart: ``tvm.topi.scan``.

Examples
--------
>>> from relaxlab import te
>>> y = cumsum(te.placeholder((2, 3), name="x"), axis=1)
>>> y.op.name, y.op.output_buffers[0].name
('cumsum_generic', 'out_buf')
"""

from collections.abc import Callable, Sequence

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr, Var
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.tirx import ForKind, Stmt, decl_buffer, seq
from relaxlab.topi.flat import flat_load, flat_store, loop
from relaxlab.topi.indices import normalize_axis, product

__all__ = ["cumprod", "cumsum"]

_INT64 = DataType("int64")
_Combine = Callable[[Expr, Expr], Expr]


def _scan(
    data: Tensor,
    combine: _Combine,
    identity: float,
    name: str,
    axis: int | None,
    dtype: DataType | str | None,
    exclusive: bool,
) -> Tensor:
    target = data.dtype if dtype is None else DataType(dtype)
    if axis is None:
        length = product(data.shape)
        shape: tuple[Expr, ...] = (length,)
        before: Expr = prim_ops.const(1, _INT64)
        after: Expr = prim_ops.const(1, _INT64)
    else:
        place = normalize_axis(axis, data.ndim)
        shape, length = data.shape, data.shape[place]
        before, after = product(shape[:place]), product(shape[place + 1 :])
    out_buf = decl_buffer(shape, target, "out_buf")

    def body(inputs: Sequence[Var], outputs: Sequence[Var]) -> Stmt:
        source, result = inputs[0], outputs[0]

        def element(position: Expr) -> Expr:
            return prim_ops.cast(target, flat_load(source, position))

        def so_far(position: Expr) -> Expr:
            return flat_load(result, position)

        def store(position: Expr, value: Expr) -> Stmt:
            return flat_store(result, position, value)

        row, step = Var("v", _INT64), Var("v", _INT64)
        base = prim_ops.floordiv(row, after) * length * after + prim_ops.floormod(row, after)
        k = step + 1
        here, previous = base + k * after, base + (k - 1) * after
        first = prim_ops.const(identity, target) if exclusive else element(base)
        added = element(previous if exclusive else here)
        rest = store(here, combine(so_far(previous), added))
        inner = loop(step, length - 1, rest)
        return loop(row, before * after, seq([store(base, first), inner]), ForKind.PARALLEL)

    result: Tensor = te.extern(
        [shape], [data], body, name=name, dtype=[target], out_buffers=[out_buf]
    )[0]
    return result


def cumsum(
    data: Tensor,
    axis: int | None = None,
    dtype: DataType | str | None = None,
    exclusive: bool = False,
) -> Tensor:
    """Return the sum of the elements so far.

    Parameters
    ----------
    data
        What is added up.
    axis
        Along which axis; None for all elements in row-major order, as a vector.
    dtype
        Dtype of the result; that of the data by default.
    exclusive
        Whether an element is left out of its own sum.
    """
    return _scan(data, prim_ops.add, 0, "cumsum_generic", axis, dtype, exclusive)


def cumprod(
    data: Tensor,
    axis: int | None = None,
    dtype: DataType | str | None = None,
    exclusive: bool = False,
) -> Tensor:
    """Return the product of the elements so far; parameters as :func:`cumsum`."""
    return _scan(data, prim_ops.multiply, 1, "cumprod_generic", axis, dtype, exclusive)
