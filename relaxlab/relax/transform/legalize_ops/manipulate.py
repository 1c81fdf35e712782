"""Legalization of operators that move elements.

Counterpart: ``tvm.relax.transform.legalize_ops.manipulate``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.reshape").has_attr("FLegalize")
True
"""

from collections.abc import Callable
from typing import Any

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.op.statistical import element_count
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.transform.legalize_ops.registration import (
    LegalizeFunc,
    attrs_of,
    register_legalize,
    tuple_fields,
)
from relaxlab.relax.type import TensorType

__all__: list[str] = []


def _target_shape(bb: BlockBuilder, call: Call) -> ShapeExpr:
    """Return the shape argument, written out: directly, or as the value bound to a variable."""
    shape = call.args[1]
    if not isinstance(shape, ShapeExpr):
        bound = bb.lookup_binding(shape) if isinstance(shape, Var) else None
        assert isinstance(bound, ShapeExpr), (
            f"{call.op!r} expects a shape that is written out, got {shape!r}, which is bound to "
            f"{bound!r}; use R.match_cast to name its dimensions"
        )
        shape = bound
    return shape


@register_legalize("reshape")
def _reshape(bb: BlockBuilder, call: Call) -> Expr:
    """Call a kernel, or leave the operator, which is a view that checks its size at run time.

    TVM always makes a kernel, which reads around the end of a tensor that is too small.
    """
    shape = _target_shape(bb, call)
    given: Any = call.args[0].ty
    counts = element_count(given.shape.values), element_count(shape.values)
    if not bb.analyzer.can_prove_equal(*counts):
        return call
    return bb.call_te(topi.reshape, call.args[0], shape, primfunc_name_hint="reshape")


@register_legalize("broadcast_to")
def _broadcast_to(bb: BlockBuilder, call: Call) -> Expr:
    return bb.call_te(
        topi.broadcast_to,
        call.args[0],
        _target_shape(bb, call),
        primfunc_name_hint="broadcast_to",
    )


@register_legalize("flatten")
def _flatten(bb: BlockBuilder, call: Call) -> Expr:
    ty = call.ty
    assert isinstance(ty, TensorType)
    assert isinstance(ty.shape, ShapeExpr)
    return bb.call_te(topi.reshape, call.args[0], ty.shape, primfunc_name_hint="reshape")


register_legalize("nn.batch_flatten")(_flatten)


@register_legalize("permute_dims")
def _permute_dims(bb: BlockBuilder, call: Call) -> Expr:
    return bb.call_te(
        topi.transpose, call.args[0], attrs_of(call).axes, primfunc_name_hint="transpose"
    )


@register_legalize("expand_dims")
def _expand_dims(bb: BlockBuilder, call: Call) -> Expr:
    return bb.call_te(
        topi.expand_dims, call.args[0], attrs_of(call).axis, primfunc_name_hint="expand_dims"
    )


@register_legalize("squeeze")
def _squeeze(bb: BlockBuilder, call: Call) -> Expr:
    return bb.call_te(topi.squeeze, call.args[0], attrs_of(call).axis, primfunc_name_hint="squeeze")


def _joining(te_func: Callable[..., Any], name: str) -> LegalizeFunc:
    def legalize(bb: BlockBuilder, call: Call) -> Expr:
        tensors = tuple_fields(bb, call.args[0])
        axis = attrs_of(call).axis
        return bb.call_te(te_func, tensors, 0 if axis is None else axis, primfunc_name_hint=name)

    return legalize


register_legalize("concat")(_joining(topi.concatenate, "concatenate"))
register_legalize("stack")(_joining(topi.stack, "stack"))


@register_legalize("split")
def _split(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)
    return bb.call_te(
        topi.split,
        call.args[0],
        attrs.indices_or_sections,
        attrs.axis,
        primfunc_name_hint="split",
    )


@register_legalize("repeat")
def _repeat(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)
    return bb.call_te(
        topi.repeat, call.args[0], attrs.repeats, attrs.axis, primfunc_name_hint="repeat"
    )


@register_legalize("tile")
def _tile(bb: BlockBuilder, call: Call) -> Expr:
    return bb.call_te(topi.tile, call.args[0], attrs_of(call).repeats, primfunc_name_hint="tile")


@register_legalize("flip")
def _flip(bb: BlockBuilder, call: Call) -> Expr:
    return bb.call_te(topi.flip, call.args[0], attrs_of(call).axis, primfunc_name_hint="flip")


@register_legalize("collapse_sum_to")
def _collapse_sum_to(bb: BlockBuilder, call: Call) -> Expr:
    return bb.call_te(
        topi.collapse_sum,
        call.args[0],
        _target_shape(bb, call),
        primfunc_name_hint="collapse_sum",
    )


@register_legalize("collapse_sum_like")
def _collapse_sum_like(bb: BlockBuilder, call: Call) -> Expr:
    ty = call.args[1].ty
    assert isinstance(ty, TensorType)
    return bb.call_te(topi.collapse_sum, call.args[0], ty.shape, primfunc_name_hint="collapse_sum")


@register_legalize("meshgrid")
def _meshgrid(bb: BlockBuilder, call: Call) -> Expr:
    tensors = tuple_fields(bb, call.args[0])
    indexing = attrs_of(call).indexing or "ij"
    return bb.call_te(topi.meshgrid, tensors, indexing, primfunc_name_hint="meshgrid")
