"""Legalization of convolutions.

A convolution whose layouts the kernels do not know, or whose result should be laid out in another
way than its data, stays; ``ConvertLayout`` can change that. Counterpart: part of
``tvm.relax.transform.legalize_ops.nn``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.nn.conv2d").has_attr("FLegalize")
True
"""

import logging

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import (
    LegalizeFunc,
    attrs_of,
    register_legalize,
)

__all__: list[str] = []

_LOGGER = logging.getLogger(__name__)


def _conv(rank: int) -> LegalizeFunc:
    name = f"conv{rank}d"

    def legalize(bb: BlockBuilder, call: Call) -> Expr:
        attrs = attrs_of(call)
        if attrs.out_layout != attrs.data_layout:
            _LOGGER.info(
                "TOPI %s does not support different input-output layouts, and thus cannot be "
                "legalized by TOPI",
                name,
            )
            return call
        if not (attrs.data_layout.isalpha() and attrs.kernel_layout.isalpha()):
            _LOGGER.info(
                "%s where data layout is %s and kernel layout is %s cannot be legalized by TOPI",
                name,
                attrs.data_layout,
                attrs.kernel_layout,
            )
            return call
        return bb.call_te(
            topi.nn.conv,
            *call.args,
            attrs.strides,
            attrs.padding,
            attrs.dilation,
            attrs.groups,
            attrs.data_layout,
            attrs.kernel_layout,
            attrs.out_dtype,
            primfunc_name_hint=name,
        )

    return legalize


def _conv_transpose(rank: int, data_layout: str, kernel_layout: str) -> LegalizeFunc:
    name = f"conv{rank}d_transpose"

    def legalize(bb: BlockBuilder, call: Call) -> Expr:
        attrs = attrs_of(call)
        known = (data_layout, data_layout, kernel_layout)
        if (attrs.data_layout, attrs.out_layout, attrs.kernel_layout) != known:
            _LOGGER.info(
                "TOPI %s only supports layouts %s and %s, and thus cannot legalize this one",
                name,
                data_layout,
                kernel_layout,
            )
            return call
        return bb.call_te(
            topi.nn.conv_transpose,
            *call.args,
            attrs.strides,
            attrs.padding,
            attrs.output_padding,
            attrs.dilation,
            attrs.groups,
            attrs.out_dtype,
            primfunc_name_hint=name,
        )

    return legalize


for _rank, _spatial in ((1, "W"), (2, "HW"), (3, "DHW")):
    register_legalize(f"nn.conv{_rank}d")(_conv(_rank))
    register_legalize(f"nn.conv{_rank}d_transpose")(
        _conv_transpose(_rank, f"NC{_spatial}", f"IO{_spatial}")
    )
