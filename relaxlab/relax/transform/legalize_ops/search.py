"""Legalization of choices and of positions of extremes.

Counterpart: ``tvm.relax.transform.legalize_ops.search``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.where").has_attr("FLegalize")
True
"""

from collections.abc import Callable
from typing import Any

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import (
    LegalizeFunc,
    attrs_of,
    legalize_with,
    register_legalize,
)

__all__: list[str] = []

legalize_with("where", topi.where, "where")


def _arg_reduction(te_func: Callable[..., Any], name: str) -> LegalizeFunc:
    def legalize(bb: BlockBuilder, call: Call) -> Expr:
        attrs = attrs_of(call)
        return bb.call_te(
            te_func, call.args[0], attrs.axis, attrs.keepdims, primfunc_name_hint=name
        )

    return legalize


register_legalize("argmax")(_arg_reduction(topi.argmax, "argmax"))
register_legalize("argmin")(_arg_reduction(topi.argmin, "argmin"))
