"""Legalization of products of matrices.

Counterpart: ``tvm.relax.transform.legalize_ops.linear_algebra``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.matmul").has_attr("FLegalize")
True
"""

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import (
    attrs_of,
    legalize_with,
    register_legalize,
    tuple_fields,
)

__all__: list[str] = []


@register_legalize("matmul")
def _matmul(bb: BlockBuilder, call: Call) -> Expr:
    out_dtype = attrs_of(call).out_dtype
    dtype = None if out_dtype is None else str(out_dtype)
    return bb.call_te(topi.matmul, *call.args, dtype, primfunc_name_hint="matmul")


legalize_with("outer", topi.outer, "outer")


@register_legalize("einsum")
def _einsum(bb: BlockBuilder, call: Call) -> Expr:
    fields = tuple_fields(bb, call.args[0])
    return bb.call_te(topi.einsum, attrs_of(call).subscripts, *fields, primfunc_name_hint="einsum")
