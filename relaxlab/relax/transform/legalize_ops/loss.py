"""Legalization of losses. Counterpart: part of ``tvm.relax.transform.legalize_ops.nn``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.nn.nll_loss").has_attr("FLegalize")
True
"""

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim_ops import const
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import (
    attrs_of,
    legalize_with,
    register_legalize,
)
from relaxlab.te import Tensor

__all__ = ["ones_for_classes"]


def cross_entropy_with_logits(predictions: Tensor, labels: Tensor) -> Tensor:
    """Return minus the sum of all products, divided by the size of the batch."""
    total = topi.sum(topi.multiply(predictions, labels))
    result: Tensor = topi.multiply(total, const(-1, total.dtype))
    if predictions.ndim > 1:
        result = topi.divide(result, predictions.shape[0])
    return result


legalize_with(
    "nn.cross_entropy_with_logits", cross_entropy_with_logits, "cross_entropy_with_logits"
)


def ones_for_classes(predictions: Tensor) -> Tensor:
    """Return a weight of 1 for every class."""
    classes = predictions.shape[1 if predictions.ndim > 1 else 0]
    return topi.full((classes,), predictions.dtype, 1.0)


@register_legalize("nn.nll_loss")
def _nll_loss(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)
    if len(call.args) > 2:
        return bb.call_te(
            topi.nn.nll_loss,
            *call.args,
            attrs.reduction,
            attrs.ignore_index,
            primfunc_name_hint="nll_loss",
        )

    def without_weight(predictions: Tensor, targets: Tensor) -> Tensor:
        weights = ones_for_classes(predictions)
        return topi.nn.nll_loss(predictions, targets, weights, attrs.reduction, attrs.ignore_index)

    return bb.call_te(without_weight, *call.args, primfunc_name_hint="nll_loss_without_weight")
