"""Choosing elements by tensors of indices.

Counterpart: ``tvm.topi.gather_nd``, ``index_tensor`` and ``one_hot``.

Examples
--------
>>> from relaxlab import te
>>> x, i = te.placeholder((2, 3), name="x"), te.placeholder((1, 5), "int64", name="i")
>>> gather_nd(x, i).name
'T_gather_nd'
"""

from collections.abc import Sequence

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.topi.broadcast import broadcast_to
from relaxlab.topi.indices import broadcast_shape, compute_ax, normalize_axis, static_extent

__all__ = ["gather_nd", "index_tensor", "one_hot"]


def gather_nd(data: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """Pick what several indices name together; the first dimension of ``indices`` counts them.

    Parameters
    ----------
    data
        What is picked from.
    indices
        Of shape (number of indices, ...); that number must be a literal.
    batch_dims
        How many leading dimensions of ``data`` follow those of the result.

    Raises
    ------
    ValueError
        If the first extent of ``indices`` is no literal.
    """
    count = static_extent(indices.shape[0])
    if count is None:
        raise ValueError("gather_nd: how many indices name an element must be known")
    chosen = indices.shape[1:]
    dims = (*chosen, *data.shape[batch_dims + count :])

    def body(*out: Expr) -> Expr:
        which = out[: len(chosen)]
        place = [
            *out[:batch_dims],
            *(indices(prim_ops.const(i), *which) for i in range(count)),
            *out[len(chosen) :],
        ]
        return data(*place)

    return compute_ax(dims, body, "T_gather_nd", "injective")


def index_tensor(data: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """Pick what index tensors, broadcast to one shape, name on the first dimensions."""
    shape: tuple[Expr, ...] = ()
    for index in indices:
        shape, _, _ = broadcast_shape(shape, index.shape)
    if len(indices) > 1:
        indices = [broadcast_to(index, shape) for index in indices]
    dims = (*shape, *data.shape[len(indices) :])

    def body(*out: Expr) -> Expr:
        which = out[: len(shape)]
        return data(*(index(*which) for index in indices), *out[len(shape) :])

    return compute_ax(dims, body, "advanced_index", "injective")


def one_hot(
    indices: Tensor,
    on_value: Expr,
    off_value: Expr,
    depth: int,
    axis: int,
    dtype: DataType | str,
) -> Tensor:
    """Write each index as a vector along a new axis: ``on_value`` there, ``off_value`` elsewhere.

    Parameters
    ----------
    indices
        Integers below ``depth``.
    on_value, off_value
        Scalars.
    depth
        Length of the vectors.
    axis
        Where the new axis lies in the result.
    dtype
        Element type of the result.
    """
    place = normalize_axis(axis, indices.ndim + 1)
    length = prim_ops.const(depth)
    dims = (*indices.shape[:place], length, *indices.shape[place:])
    on, off = prim_ops.cast(dtype, on_value), prim_ops.cast(dtype, off_value)

    def body(*out: Expr) -> Expr:
        index = indices(*out[:place], *out[place + 1 :])
        return prim_ops.select(prim_ops.equal(index, out[place]), on, off)

    return compute_ax(dims, body, "T_one_hot", "injective")
