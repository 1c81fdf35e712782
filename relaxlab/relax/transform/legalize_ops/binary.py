"""Legalization of operators on two operands that broadcast.

A constant without dimensions becomes part of the kernel; the right operand is tried first.
Counterpart: ``tvm.relax.transform.legalize_ops.binary``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.add").has_attr("FLegalize")
True
"""

from collections.abc import Callable
from typing import Any

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import (
    LegalizeFunc,
    register_legalize,
    scalar_or_tensor,
)

__all__: list[str] = []


def _binary(te_func: Callable[..., Any], name: str) -> LegalizeFunc:
    def legalize(bb: BlockBuilder, call: Call) -> Expr:
        lhs, rhs = call.args
        right = scalar_or_tensor(rhs)
        left = scalar_or_tensor(lhs) if right is rhs else lhs
        return bb.call_te(te_func, left, right, primfunc_name_hint=name)

    return legalize


for _name in (
    "add",
    "atan2",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "divide",
    "equal",
    "floor_divide",
    "floor_mod",
    "greater",
    "greater_equal",
    "left_shift",
    "less",
    "less_equal",
    "log_add_exp",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "not_equal",
    "power",
    "right_shift",
    "subtract",
):
    register_legalize(_name)(_binary(getattr(topi, _name), _name))
