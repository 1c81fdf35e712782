"""Sequences of different lengths in one tensor.

Counterpart: ``reverse_sequence`` of ``tvm.topi.transform``.

Examples
--------
>>> from relaxlab import te
>>> x, lengths = te.placeholder((2, 4), name="x"), te.placeholder((2,), "int64", "n")
>>> reverse_sequence(x, lengths, 1, 0).name
'T_reverse_sequence'
"""

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.topi.indices import compute_ax, normalize_axis

__all__ = ["reverse_sequence"]

_INT64 = DataType("int64")


def reverse_sequence(data: Tensor, lengths: Tensor, seq_axis: int, batch_axis: int) -> Tensor:
    """Reverse the first elements of each sequence; how many, ``lengths`` says.

    Parameters
    ----------
    data
        The sequences.
    lengths
        One for each index of ``batch_axis``; at most the whole sequence is reversed.
    seq_axis, batch_axis
        Along which axis sequences run, and which axis counts them.
    """
    along, which = normalize_axis(seq_axis, data.ndim), normalize_axis(batch_axis, data.ndim)
    extent = data.shape[along]

    def body(*index: Expr) -> Expr:
        place = index[along]
        length = prim_ops.cast(_INT64, lengths(index[which]))
        kept = prim_ops.logical_or(
            prim_ops.less_equal(length, 1), prim_ops.less_equal(length, place)
        )
        mirrored = prim_ops.if_then_else(
            prim_ops.greater(length, extent), extent - 1 - place, length - 1 - place
        )
        source = prim_ops.if_then_else(kept, place, mirrored)
        return data(*index[:along], source, *index[along + 1 :])

    return compute_ax(data.shape, body, "T_reverse_sequence", "injective")
