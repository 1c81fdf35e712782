"""Legalization of conversions. Counterpart: ``tvm.relax.transform.legalize_ops.datatype``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.astype").has_attr("FLegalize")
True
"""

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr, GenericConst
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.literals import const
from relaxlab.relax.transform.legalize_ops.registration import attrs_of, register_legalize
from relaxlab.relax.type import TensorType

__all__: list[str] = []


@register_legalize("astype")
def _astype(bb: BlockBuilder, call: Call) -> Expr:
    (x,) = call.args
    dtype = attrs_of(call).dtype
    if isinstance(x, GenericConst) and isinstance(x.ty, TensorType) and x.ty.ndim == 0:
        return const(x.value.numpy(), dtype)  # converted now, once
    return bb.call_te(topi.cast, x, str(dtype), primfunc_name_hint="cast")
