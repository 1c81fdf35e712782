"""Products of matrices in batches, as attention needs them.

Counterpart: ``tvm.topi.nn.batch_matmul``.

Examples
--------
>>> from relaxlab import te
>>> a, b = te.placeholder((2, 3, 4), name="a"), te.placeholder((2, 5, 4), name="b")
>>> batch_matmul(a, b).name
'T_batch_matmul_NT'
"""

from typing import Any

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor

__all__ = ["batch_matmul"]


def batch_matmul(
    a: Tensor,
    b: Tensor,
    out_dtype: DataType | str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Tensor:
    """Return the matrix product of each pair of a batch.

    Parameters
    ----------
    a, b
        Three-dimensional; the first dimension is the batch.
    out_dtype
        Dtype in which products are formed and added; that of ``a`` by default.
    transpose_a, transpose_b
        Whether the matrices are given transposed.

    Raises
    ------
    ValueError
        If an operand has another number of dimensions.
    """
    if a.ndim != 3 or b.ndim != 3:
        raise ValueError(
            f"batch_matmul needs operands of three dimensions, got {a.ndim} and {b.ndim}"
        )
    target = a.dtype if out_dtype is None else DataType(out_dtype)
    rows, inner = (a.shape[2], a.shape[1]) if transpose_a else (a.shape[1], a.shape[2])
    columns = b.shape[1] if transpose_b else b.shape[2]
    k = te.reduce_axis((0, inner), "k")

    def body(batch: Expr, i: Expr, j: Expr) -> Any:
        x = a(batch, k.var, i) if transpose_a else a(batch, i, k.var)
        y = b(batch, j, k.var) if transpose_b else b(batch, k.var, j)
        return te.sum(prim_ops.cast(target, x) * prim_ops.cast(target, y), axis=k)

    letters = f"{'T' if transpose_a else 'N'}{'T' if transpose_b else 'N'}"
    result: Tensor = te.compute(
        (a.shape[0], rows, columns),
        lambda *indices: body(*indices),
        name=f"T_batch_matmul_{letters}",
        tag="batch_matmul",
        attrs={"layout_free_placeholders": [b]},
        varargs_names=["b", "i", "j"],
    )
    return result
