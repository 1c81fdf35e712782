"""Legalization of operators that choose elements.

Counterpart: ``tvm.relax.transform.legalize_ops.index``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.take").has_attr("FLegalize")
True
"""

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr, Tuple
from relaxlab.ir.prim import IntImm
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import attrs_of, register_legalize

__all__: list[str] = []


@register_legalize("take")
def _take(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)
    return bb.call_te(topi.take, *call.args, attrs.axis, attrs.mode, primfunc_name_hint="take")


def _written_out(argument: Expr) -> tuple[Expr, ...] | None:
    return argument.fields if isinstance(argument, Tuple) else None


@register_legalize("strided_slice")
def _strided_slice(bb: BlockBuilder, call: Call) -> Expr:
    data, *rest = call.args
    given = [_written_out(argument) for argument in rest]
    axes = given[0]
    if None in given or axes is None or not all(isinstance(a, IntImm) for a in axes):
        return call  # positions that only the running program knows
    strides = given[3] if len(given) > 3 else None
    if strides is not None and not all(isinstance(s, IntImm) for s in strides):
        return call
    return bb.call_te(
        topi.strided_slice,
        data,
        given[1],
        given[2],
        strides,
        [int(a) for a in axes],  # type: ignore[call-overload]  # literals
        attrs_of(call).assume_inbound,
        primfunc_name_hint="strided_slice",
    )
