"""Losses of classification.

Counterpart: ``tvm.topi.nn.nll_loss``.

Examples
--------
>>> from relaxlab import te
>>> x, y = te.placeholder((2, 3), name="x"), te.placeholder((2,), "int64", name="y")
>>> nll_loss(x, y, te.placeholder((3,), name="w"), "none").name
'nll_loss'
"""

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.te import Tensor
from relaxlab.topi.broadcast import divide
from relaxlab.topi.indices import compute_ax
from relaxlab.topi.reduction import sum as reduce_sum

__all__ = ["nll_loss"]


def nll_loss(
    predictions: Tensor,
    targets: Tensor,
    weights: Tensor,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Tensor:
    """Return the negative log likelihood of the right classes.

    Parameters
    ----------
    predictions
        Logarithms of probabilities: batch, class and other dimensions, or classes alone.
    targets
        The right class of each element.
    weights
        How much each class counts.
    reduction
        ``"none"``, ``"sum"``, or ``"mean"``, which divides by the sum of the weights.
    ignore_index
        A target that does not count.

    Raises
    ------
    ValueError
        If ``reduction`` is none of the three.
    """
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(f"nll_loss: reduction must be none, sum or mean, got {reduction!r}")
    zero = prim_ops.const(0, predictions.dtype)
    ignored = prim_ops.const(ignore_index, "int64")

    def counts(*indices: Expr) -> Expr:
        return prim_ops.not_equal(targets(*indices), ignored)

    def loss(*indices: Expr) -> Expr:
        target = targets(*indices)
        place = (*indices[:1], target, *indices[1:])
        likelihood: Expr = (zero - predictions(*place)) * weights(target)
        return prim_ops.select(counts(*indices), likelihood, zero)

    def weight(*indices: Expr) -> Expr:
        return prim_ops.select(counts(*indices), weights(targets(*indices)), zero)

    losses = compute_ax(targets.shape, loss, "nll_loss", "nll_loss")
    if reduction == "none":
        return losses
    if reduction == "sum":
        return _total(losses)
    used = compute_ax(targets.shape, weight, "nll_loss", "nll_loss")
    quotient: Tensor = divide(_total(losses), _total(used))
    return quotient


def _total(values: Tensor) -> Tensor:
    return reduce_sum(values) if values.ndim else values
