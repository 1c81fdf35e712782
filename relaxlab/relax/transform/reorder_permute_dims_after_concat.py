"""Permute once, after joining, instead of once for each part.

Counterpart: ``tvm.relax.transform.ReorderPermuteDimsAfterConcat``.

Examples
--------
>>> ReorderPermuteDimsAfterConcat().info.opt_level
1
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from relaxlab.ir import Call, Expr, IRModule, PassContext, Tuple, Var
from relaxlab.relax import op
from relaxlab.relax.expr import Function, TensorType
from relaxlab.relax.transform.operand_rewriter import OperandRewriter
from relaxlab.relax.transform.pass_base import FunctionPass

__all__ = ["ReorderPermuteDimsAfterConcat"]

#: Most parts that are looked at, as in TVM.
_MOST_PARTS = 11


@dataclass(frozen=True)
class ReorderPermuteDimsAfterConcat(FunctionPass):
    """Write ``concat(permute_dims(a), permute_dims(b))`` as ``permute_dims(concat(a, b))``."""

    opt_level: ClassVar[int] = 1

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function rewritten, itself if nothing matches."""
        return _Rewriter().rewrite_function(func)


class _Rewriter(OperandRewriter):
    def rewrite(self, call: Call, name: str) -> Expr:
        if name != "relax.concat":
            return call
        parts = self.parts(call.args[0])
        permuted = [self.defined_as(part, "relax.permute_dims") for part in parts]
        found = [part for part in permuted if part is not None]
        attrs: Any = call.attrs
        if len(found) != len(parts) or not 2 <= len(parts) <= _MOST_PARTS or attrs.axis is None:
            return call
        axes = found[0].attrs.axes if found[0].attrs is not None else None
        orders = {_order(part) for part in found}
        if len(orders) != 1 or None in orders:
            return call
        (order,) = orders
        assert order is not None
        joined = op.concat([part.args[0] for part in found], axis=order[attrs.axis])
        return op.permute_dims(joined, axes)

    def parts(self, joined: Expr) -> tuple[Expr, ...]:
        bound = self.builder.lookup_binding(joined) if isinstance(joined, Var) else joined
        return bound.fields if isinstance(bound, Tuple) else ()


def _order(call: Call) -> tuple[int, ...] | None:
    """Return the axes of a permutation, counted from the front; None if the rank is unknown."""
    ty = call.args[0].ty
    if not isinstance(ty, TensorType) or ty.ndim < 0:
        return None
    axes = call.attrs.axes if call.attrs is not None else None
    if axes is None:
        return tuple(reversed(range(ty.ndim)))
    return tuple(int(axis) % ty.ndim for axis in axes)
