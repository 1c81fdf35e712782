"""Legalization of pooling; when the result has another layout than the data, the call stays.

Counterpart: part of ``tvm.relax.transform.legalize_ops.nn``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.nn.max_pool2d").has_attr("FLegalize")
True
"""

import logging

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.transform.legalize_ops.registration import (
    LegalizeFunc,
    attrs_of,
    register_legalize,
)
from relaxlab.relax.type import TensorType
from relaxlab.topi.nn.pooling import spatial_places

__all__: list[str] = []

_LOGGER = logging.getLogger(__name__)


def _other_layout(call: Call, name: str) -> bool:
    attrs = attrs_of(call)
    if attrs.layout == attrs.out_layout:
        return False
    _LOGGER.info(
        "TOPI %s does not support different input-output layouts, and thus cannot be legalized "
        "by TOPI",
        name,
    )
    return True


def _pool(kind: str, name: str) -> LegalizeFunc:
    def legalize(bb: BlockBuilder, call: Call) -> Expr:
        if _other_layout(call, name):
            return call
        attrs = attrs_of(call)
        return bb.call_te(
            topi.nn.pool,
            call.args[0],
            attrs.pool_size,
            attrs.strides,
            attrs.dilation,
            attrs.padding,
            kind,
            attrs.ceil_mode,
            attrs.layout,
            attrs.count_include_pad,
            primfunc_name_hint=name,
        )

    return legalize


def _adaptive(name: str) -> LegalizeFunc:
    def legalize(bb: BlockBuilder, call: Call) -> Expr:
        if _other_layout(call, name):
            return call
        attrs = attrs_of(call)
        size = attrs.output_size
        if size is None:
            ty = call.args[0].ty
            assert isinstance(ty, TensorType)
            assert isinstance(ty.shape, ShapeExpr), "the shape is known: the pass checked it"
            size = [ty.shape.values[place] for place in spatial_places(attrs.layout)]
        return bb.call_te(
            topi.nn.adaptive_pool, call.args[0], size, "avg", attrs.layout, primfunc_name_hint=name
        )

    return legalize


for _rank in (1, 2, 3):
    for _kind in ("max", "avg"):
        register_legalize(f"nn.{_kind}_pool{_rank}d")(_pool(_kind, f"{_kind}_pool{_rank}d"))
    register_legalize(f"nn.adaptive_avg_pool{_rank}d")(_adaptive(f"adaptive_avg_pool{_rank}d"))
