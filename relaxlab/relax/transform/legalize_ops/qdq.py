"""Legalization of ``quantize`` and ``dequantize``.

Counterpart: ``tvm.relax.transform.legalize_ops.qdq``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.quantize").has_attr("FLegalize")
True
"""

from collections.abc import Callable

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import (
    attrs_of,
    register_legalize,
    scalar_or_tensor,
)
from relaxlab.te import Tensor

__all__: list[str] = []


def _register(name: str, te_func: Callable[..., Tensor]) -> None:
    @register_legalize(name)
    def legalize(bb: BlockBuilder, call: Call) -> Expr:
        data, scale, zero_point = call.args
        attrs = attrs_of(call)
        return bb.call_te(
            te_func,
            data,
            scalar_or_tensor(scale),
            scalar_or_tensor(zero_point),
            attrs.axis,
            attrs.out_dtype,
            primfunc_name_hint=name,
        )


_register("quantize", topi.quantize)
_register("dequantize", topi.dequantize)
