"""Losses of classification. Counterpart: part of ``tvm.relax.op.nn``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> x, y = Var("x", TensorType([2, 3])), Var("y", TensorType([2], "int64"))
>>> nll_loss(x, y).attrs
Attrs({'reduction': 'mean', 'ignore_index': -100})
"""

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import Type
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import (
    Shape,
    attributes,
    binary_dtype,
    broadcast_vdevice,
    dims_of,
    dtype_name,
    tensor_argument,
)
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType

__all__ = ["checked_reduction", "cross_entropy_with_logits", "nll_loss"]


def _differ(a: Expr, b: Expr) -> bool:
    return isinstance(a, IntImm) and isinstance(b, IntImm) and a.value != b.value


# --- cross entropy ------------------------------------------------------------------------------


def _infer_cross_entropy(call: Call, ctx: InferenceContext) -> Type:
    predictions, labels = tensor_argument(call, 0), tensor_argument(call, 1)
    dtype = binary_dtype(call, *call.args)
    vdevice = broadcast_vdevice(call, predictions, labels)
    if -1 not in (predictions.ndim, labels.ndim) and predictions.ndim != labels.ndim:
        raise ValueError(
            "CrossEntropy requires predictions and labels to have the same ndim. However, the "
            f"ndim of predictions is {predictions.ndim} while the ndim of labels is {labels.ndim}"
        )
    for i, (a, b) in enumerate(
        zip(dims_of(predictions) or (), dims_of(labels) or (), strict=False)
    ):
        if _differ(a, b):
            raise ValueError(
                "CrossEntropy requires the predictions and labels to have the same shape. However, "
                f"the shape of predictions at dim {i} is{a} while the shape of labels at this dim "
                f"is {b}"
            )
    return TensorType(ShapeExpr(()), dtype, vdevice)


_CROSS_ENTROPY = declare(
    "nn.cross_entropy_with_logits", ("predictions", "labels"), _infer_cross_entropy
)


def cross_entropy_with_logits(predictions: Expr, labels: Expr) -> Call:
    """Minus the sum of products of logarithms of probabilities and labels, over the batch size.

    Parameters
    ----------
    predictions
        Logarithms of probabilities; the first of several dimensions is the batch.
    labels
        Probabilities that are right, of the same shape.
    """
    return call_op(_CROSS_ENTROPY, predictions, labels)


# --- negative log likelihood --------------------------------------------------------------------


def _equal_extents(what: str, first: tuple[str, Expr], second: tuple[str, Expr]) -> None:
    (a_name, a), (b_name, b) = first, second
    if _differ(a, b):
        letter = "N" if what == "minibatch size" else "C"
        raise ValueError(
            f"NLLLoss expects {what} {letter} inferred from different arguments to be equal. "
            f"However, {letter} from {a_name} is {a} while {letter} from {b_name} is {b}"
        )


def _infer_nll_loss(call: Call, ctx: InferenceContext) -> Type:
    predictions, targets = tensor_argument(call, 0), tensor_argument(call, 1)
    weights = tensor_argument(call, 2) if len(call.args) > 2 else None
    dtype = predictions.dtype
    tensors = [predictions, targets]
    if weights is not None:
        dtype = binary_dtype(call, call.args[0], call.args[2])
        tensors.append(weights)
    vdevice = broadcast_vdevice(call, *tensors)
    if targets.dtype is not None and not (targets.dtype.is_int or targets.dtype.is_uint):
        raise TypeError(
            "NLLLoss expects the dtype of targets to be int/uint. However, the dtype of targets is "
            f"{dtype_name(targets.dtype)}"
        )
    _check_ranks(predictions, targets, weights)
    result = _check_extents(dims_of(predictions), dims_of(targets), weights)
    if attributes(call).reduction != "none":
        return TensorType(ShapeExpr(()), dtype, vdevice)
    if result is not None:
        return TensorType(ShapeExpr(result), dtype, vdevice)
    ndim = targets.ndim
    if ndim == -1 and predictions.ndim != -1:
        ndim = predictions.ndim - 1
    return TensorType(None, dtype, vdevice, ndim)


def _check_ranks(predictions: TensorType, targets: TensorType, weights: TensorType | None) -> None:
    if predictions.ndim == 0:
        raise ValueError(
            "NLLLoss expects the ndim of predictions >= 1. However, the ndim of predictions is 0"
        )
    if predictions.ndim == 1 and targets.ndim not in (-1, 0):
        raise ValueError(
            "Shape mismatch for NLLLoss. Predictions shape is (C,) while targets is not a scalar"
        )
    if -1 not in (predictions.ndim, targets.ndim) and predictions.ndim != targets.ndim + 1:
        raise ValueError(
            "NLLLoss expects number of dimensions K inferred from different arguments to be equal. "
            f"However, K from predictions is {predictions.ndim - 2} while K from targets is "
            f"{targets.ndim - 1}"
        )
    if weights is not None and weights.ndim not in (-1, 1):
        raise ValueError(
            "NLLLoss expects the ndim of weights == 1. However, the ndim of weights is "
            f"{weights.ndim}"
        )


def _check_extents(predictions: Shape, targets: Shape, weights: TensorType | None) -> Shape:
    """Return the shape of the losses of all elements, None when it is not known."""
    own = None if weights is None else dims_of(weights)
    if predictions is None:
        return targets
    batched = len(predictions) > 1
    losses = (*predictions[:1], *predictions[2:]) if batched else ()
    pairs = [] if targets is None else list(zip(losses, targets, strict=True))
    if pairs:
        _equal_extents("minibatch size", ("predictions", pairs[0][0]), ("targets", pairs[0][1]))
    if own is not None:
        classes = predictions[1 if batched else 0]
        _equal_extents("number of classes", ("predictions", classes), ("weights", own[0]))
    for a, b in pairs[1:]:
        if _differ(a, b):
            raise ValueError(
                f"Shape mismatch for NLLLoss. The prediction shape at this dim is {a} while the "
                f"target shape at this dim is {b}"
            )
    return losses


_NLL_LOSS = declare(
    "nn.nll_loss",
    ("predictions", "targets", "weights"),
    _infer_nll_loss,
    attributes=("reduction", "ignore_index"),
    optional=1,
)


def checked_reduction(reduction: str) -> str:
    """Return a reduction of a loss; InternalError for an unknown one."""
    if reduction not in ("none", "mean", "sum"):
        raise InternalError(
            "The argument reduction of NLLLoss should be one of the following values: none, mean, "
            f"sum. However, the given value is {reduction}"
        )
    return reduction


def nll_loss(
    predictions: Expr,
    targets: Expr,
    weights: Expr | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Call:
    """Negative log likelihood of the right classes.

    Parameters
    ----------
    predictions
        Logarithms of probabilities: batch, class and other dimensions, or classes alone.
    targets
        The right class of each element.
    weights
        How much each class counts; None for all alike.
    reduction
        ``"none"``, ``"sum"``, or ``"mean"``, which divides by the sum of the weights.
    ignore_index
        A target that does not count.
    """
    args = (predictions, targets) if weights is None else (predictions, targets, weights)
    return call_op(
        _NLL_LOSS, *args, reduction=checked_reduction(reduction), ignore_index=int(ignore_index)
    )
