"""Legalization of normalizations.

``center`` and ``scale`` are heeded by all of them; TVM's kernels of layer, group and instance
normalization scale and move whatever these say. Counterpart: part of
``tvm.relax.transform.legalize_ops.nn``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.nn.batch_norm").has_attr("FLegalize")
True
"""

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import attrs_of, register_legalize
from relaxlab.te import Tensor

__all__: list[str] = []


@register_legalize("nn.layer_norm")
def _layer_norm(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)
    axes, epsilon, scale, center = attrs.axes, attrs.epsilon, attrs.scale, attrs.center

    def layer_norm(data: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        return topi.nn.layer_norm(
            data, gamma if scale else None, beta if center else None, axes, epsilon
        )

    return bb.call_te(layer_norm, *call.args, primfunc_name_hint="layer_norm")


@register_legalize("nn.rms_norm")
def _rms_norm(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)
    return bb.call_te(
        topi.nn.rms_norm, *call.args, attrs.axes, attrs.epsilon, primfunc_name_hint="rms_norm"
    )


@register_legalize("nn.group_norm")
def _group_norm(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)

    def group_norm(data: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        return topi.nn.group_norm(
            data,
            gamma if attrs.scale else None,
            beta if attrs.center else None,
            attrs.num_groups,
            attrs.channel_axis,
            attrs.axes,
            attrs.epsilon,
        )

    return bb.call_te(group_norm, *call.args, primfunc_name_hint="group_norm")


@register_legalize("nn.instance_norm")
def _instance_norm(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)

    def instance_norm(data: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        return topi.nn.instance_norm(
            data,
            gamma if attrs.scale else None,
            beta if attrs.center else None,
            attrs.channel_axis,
            attrs.axes,
            attrs.epsilon,
        )

    return bb.call_te(instance_norm, *call.args, primfunc_name_hint="instance_norm")


@register_legalize("nn.batch_norm")
def _batch_norm(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)
    return bb.call_te(
        topi.nn.batch_norm,
        *call.args,
        attrs.axis,
        attrs.epsilon,
        attrs.center,
        attrs.scale,
        attrs.training,
        attrs.momentum,
        primfunc_name_hint="batch_norm",
    )
