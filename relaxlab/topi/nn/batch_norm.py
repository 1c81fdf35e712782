"""Batch normalization: each channel by its mean and variance, of this batch or remembered.

Counterpart: ``tvm.topi.nn.batch_norm``.

Examples
--------
>>> from relaxlab import te
>>> x, p = te.placeholder((2, 3), name="x"), te.placeholder((3,), name="p")
>>> [t.name for t in batch_norm(x, p, p, p, p, axis=1, training=False)]
['T_add', 'T_multiply', 'T_multiply']
"""

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.prim import IntImm
from relaxlab.te import Tensor
from relaxlab.topi.broadcast import add, divide, multiply, subtract
from relaxlab.topi.indices import normalize_axis, product
from relaxlab.topi.math import sqrt
from relaxlab.topi.reduction import sum as reduce_sum
from relaxlab.topi.transform import reshape

__all__ = ["batch_norm"]


def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    training: bool = False,
    momentum: float = 0.1,
) -> list[Tensor]:
    """Return the normalized data and what to remember of mean and variance.

    Parameters
    ----------
    data
        What is normalized.
    gamma, beta
        Scale and offset, one per channel.
    moving_mean, moving_var
        Remembered statistics.
    axis
        The dimension of the channels.
    epsilon
        Keeps the division from zero.
    center, scale
        Whether ``beta`` and ``gamma`` are applied.
    training
        Whether the statistics are those of this batch, and are remembered. The variance is
        divided by the number of elements in both uses.
    momentum
        How much of the new statistics is remembered.
    """
    place = normalize_axis(axis, data.ndim)
    one = IntImm(data.shape[place].dtype, 1)
    dims = [extent if a == place else one for a, extent in enumerate(data.shape)]
    mean, variance = moving_mean, moving_var
    deviation: Tensor | None = None
    if training:
        others = [a for a in range(data.ndim) if a != place]
        count = product([data.shape[a] for a in others])
        mean = divide(reduce_sum(data, others), count)
        per_channel = reshape(mean, dims)
        deviation = subtract(data, per_channel)
        square = multiply(subtract(data, per_channel), subtract(data, per_channel))
        variance = divide(reduce_sum(square, others), count)
    if deviation is None:
        deviation = subtract(data, reshape(mean, dims))
    spread = sqrt(add(reshape(variance, dims), _constant(epsilon, data)))
    result = divide(deviation, spread)
    if scale:
        result = multiply(result, reshape(gamma, dims))
    if center:
        result = add(result, reshape(beta, dims))
    if not training:
        one_of = prim_ops.const(1, data.dtype)
        return [result, multiply(moving_mean, one_of), multiply(moving_var, one_of)]
    kept, new = _constant(1 - momentum, data), _constant(momentum, data)
    return [
        result,
        add(multiply(kept, moving_mean), multiply(new, mean)),
        add(multiply(kept, moving_var), multiply(new, variance)),
    ]


def _constant(value: float, like: Tensor) -> Expr:
    return prim_ops.const(value, like.dtype)
