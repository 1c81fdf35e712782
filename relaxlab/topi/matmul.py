"""Matrix products.

Counterpart: ``tvm.topi.matmul`` and the product that LegalizeOps builds.

Examples
--------
>>> from relaxlab import te
>>> c = matmul(te.placeholder((2, 3), name="a"), te.placeholder((3, 4), name="b"))
>>> c.name, [d.value for d in c.shape]
('matmul', [2, 4])
"""

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.topi.indices import broadcast_indices, broadcast_shape

__all__ = ["matmul", "outer"]


def matmul(a: Tensor, b: Tensor, out_dtype: DataType | str | None = None) -> Tensor:
    """Return the matrix product, with leading dimensions broadcast.

    Parameters
    ----------
    a, b
        Operands of one or more dimensions; a vector counts as a row on the left, as a column on
        the right, and that dimension is dropped from the result.
    out_dtype
        Dtype in which products are formed and added; that of the operands by default.

    Raises
    ------
    ValueError
        If an operand has no dimension.
    """
    if not a.ndim or not b.ndim:
        raise ValueError("matmul needs operands of one or more dimensions")
    row, column = a.ndim > 1, b.ndim > 1
    target = a.dtype if out_dtype is None or DataType(out_dtype).is_void else DataType(out_dtype)
    batch, a_moves, b_moves = broadcast_shape(a.shape[:-2], b.shape[:-2])
    dims = (*batch, *((a.shape[-2],) if row else ()), *((b.shape[-1],) if column else ()))
    axis = te.reduce_axis((0, a.shape[-1]), "k")

    def body(*indices: Expr) -> Expr:
        outer_index = indices[: len(batch)]
        rest = indices[len(batch) :]
        left = (*broadcast_indices(outer_index, a.shape[:-2], a_moves), *rest[: int(row)])
        right = broadcast_indices(outer_index, b.shape[:-2], b_moves)
        x = prim_ops.cast(target, a(*left, axis.var))
        y = prim_ops.cast(target, b(*right, axis.var, *rest[int(row) :]))
        product: Expr = te.sum(x * y, axis=axis)
        return product

    result: Tensor = te.compute(dims, body, name="matmul", tag="matmul")
    return result


def outer(a: Tensor, b: Tensor) -> Tensor:
    """Return every product of an element of ``a`` and one of ``b``, both vectors."""
    result: Tensor = te.compute(
        (a.shape[0], b.shape[0]), lambda i, j: a[i] * b[j], name="outer", tag="injective"
    )
    return result
