"""Legalization of operators on one operand.

Counterpart: ``tvm.relax.transform.legalize_ops.unary``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.exp").has_attr("FLegalize")
True
"""

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import legalize_with, register_legalize
from relaxlab.te import Tensor

__all__: list[str] = []

for _name in (
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_not",
    "ceil",
    "cos",
    "cosh",
    "exp",
    "floor",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "logical_not",
    "negative",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
):
    # the prefix keeps kernels apart from the C functions of the same name
    legalize_with(_name, getattr(topi, _name), f"tir_{_name}")


def erf(x: Tensor) -> Tensor:
    """Compute in float32, which alone has an error function."""
    if str(x.dtype) == "float16":
        return topi.cast(topi.erf(topi.cast(x, "float32")), x.dtype)
    return topi.erf(x)


legalize_with("erf", erf, "erf")


@register_legalize("clip")
def _clip(bb: BlockBuilder, call: Call) -> Expr:
    return bb.call_te(topi.clip, *call.args, primfunc_name_hint="tir_clip")
