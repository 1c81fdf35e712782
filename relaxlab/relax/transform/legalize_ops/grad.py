"""Legalization of gradients. Counterpart: ``tvm.relax.transform.legalize_ops.grad``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.grad.take_backward").has_attr("FLegalize")
True
"""

from collections.abc import Sequence

from relaxlab import te, topi
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.loss import ones_for_classes
from relaxlab.relax.transform.legalize_ops.registration import (
    LegalizeFunc,
    attrs_of,
    register_legalize,
)
from relaxlab.te import Tensor

__all__: list[str] = []


def _identity(bb: BlockBuilder, call: Call) -> Expr:
    return call.args[0]


for _name in ("no_grad", "start_checkpoint", "end_checkpoint"):
    register_legalize(f"grad.{_name}")(_identity)


def nll_loss_backward(
    output_grad: Tensor,
    predictions: Tensor,
    targets: Tensor,
    weights: Tensor,
    reduction: str,
    ignore_index: int,
) -> Tensor:
    """Return the gradient of ``nll_loss`` towards its predictions."""
    dtype = predictions.dtype
    if ignore_index >= 0:
        given = weights
        weights = te.compute(
            given.shape,
            lambda i: prim_ops.select(
                prim_ops.equal(i, ignore_index), prim_ops.const(0, dtype), given(i)
            ),
            name="weights_new",
        )
    all_weights = te.compute(targets.shape, lambda *i: weights(targets(*i)), name="all_weights")
    if reduction != "none":
        output_grad = topi.broadcast_to(output_grad, targets.shape)
    if reduction == "mean":
        total = topi.sum(all_weights) if all_weights.ndim else all_weights
        output_grad = topi.divide(output_grad, total)
    minus, zero = prim_ops.const(-1, dtype), prim_ops.const(0, dtype)

    def body(*indices: Expr) -> Expr:
        place: Sequence[Expr] = (*indices[:1], *indices[2:]) if len(indices) > 1 else ()
        right = prim_ops.equal(indices[min(1, len(indices) - 1)], targets(*place))
        slope = all_weights(*place) * minus * output_grad(*place)
        return prim_ops.select(right, slope, zero)

    names = ["i"] if predictions.ndim == 1 else None
    result: Tensor = te.compute(predictions.shape, body, name="pred_grad", varargs_names=names)
    return result


@register_legalize("grad.nll_loss_backward")
def _nll_loss_backward(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)
    if len(call.args) > 3:
        return bb.call_te(
            nll_loss_backward,
            *call.args,
            attrs.reduction,
            attrs.ignore_index,
            primfunc_name_hint="nll_loss_backward",
        )

    def without_weight(output_grad: Tensor, predictions: Tensor, targets: Tensor) -> Tensor:
        weights = ones_for_classes(predictions)
        return nll_loss_backward(
            output_grad, predictions, targets, weights, attrs.reduction, attrs.ignore_index
        )

    return bb.call_te(
        without_weight, *call.args, primfunc_name_hint="te_nll_loss_backward_no_weight"
    )


def _pool_backward(kind: str, name: str) -> LegalizeFunc:
    def legalize(bb: BlockBuilder, call: Call) -> Expr:
        attrs = attrs_of(call)
        return bb.call_te(
            topi.nn.pool_grad,
            *call.args,
            attrs.pool_size,
            attrs.strides,
            attrs.padding,
            kind,
            attrs.ceil_mode,
            attrs.layout,
            attrs.count_include_pad,
            primfunc_name_hint=name,
        )

    return legalize


for _kind in ("max", "avg"):
    register_legalize(f"grad.{_kind}_pool2d_backward")(
        _pool_backward(_kind, f"{_kind}_pool2d_backward")
    )


@register_legalize("grad.take_backward")
def _take_backward(bb: BlockBuilder, call: Call) -> Expr:
    return bb.call_te(
        topi.take_grad, *call.args, attrs_of(call).axis, primfunc_name_hint="take_backward"
    )
