"""Window functions of signal processing.

Counterpart: ``tvm.topi.hamming_window``.

Examples
--------
>>> from relaxlab.ir.prim_ops import const
>>> hamming_window(8, True, const(0.54, "float64"), const(0.46, "float64"), "float32").name
'T_strided_slice'
"""

import math

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.topi.broadcast import divide, multiply, subtract
from relaxlab.topi.creation import arange
from relaxlab.topi.indices import compute_ax
from relaxlab.topi.math import cast, cos

__all__ = ["hamming_window"]


def hamming_window(
    window_size: int, periodic: bool, alpha: Expr, beta: Expr, dtype: DataType | str
) -> Tensor:
    """Return ``alpha - beta * cos(2 pi i / n)`` for every ``i``.

    Parameters
    ----------
    window_size
        How many elements.
    periodic
        Whether the window is to be repeated; then it is one of a size larger, without its end.
    alpha, beta
        Coefficients.
    dtype
        Element type.
    """
    if window_size == 1:
        one = prim_ops.const(1, dtype)
        single: Tensor = te.compute((1,), lambda i: one, name="const_vector")
        return single
    size = window_size + 1 if periodic else window_size
    begin, end, step = (prim_ops.const(v) for v in (0, size, 1))
    index = arange(begin, end, step, dtype)
    turn = multiply(prim_ops.const(math.pi * 2, "float32"), index)
    wave = cos(divide(turn, prim_ops.const(size - 1)))
    window = cast(subtract(alpha, multiply(beta, wave)), dtype)
    if not periodic:
        return window
    return compute_ax((window_size,), lambda i: window(i), "T_strided_slice", "injective")
