"""Multiply first, then take columns: the weights stay as they are in memory.

``x @ take(w, i, axis=last)`` becomes ``take(x @ w, i, axis=last)``. For a batch in which each row
takes its own weights (``take(w, i, axis=0)`` of a three-dimensional ``w``, as batches of LoRA
adapters do) all products are computed and the right ones are picked.
Counterpart: ``tvm.relax.transform.ReorderTakeAfterMatmul``.

Examples
--------
>>> ReorderTakeAfterMatmul().info.opt_level
1
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from relaxlab.ir import Call, Expr, IRModule, PassContext
from relaxlab.relax import op
from relaxlab.relax.expr import Function, TensorType
from relaxlab.relax.transform.operand_rewriter import OperandRewriter, shape_of
from relaxlab.relax.transform.pass_base import FunctionPass
from relaxlab.relax.type_relations import dims_equal

__all__ = ["ReorderTakeAfterMatmul"]


@dataclass(frozen=True)
class ReorderTakeAfterMatmul(FunctionPass):
    """Move ``take`` of the right operand of a matmul behind the matmul."""

    opt_level: ClassVar[int] = 1

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function rewritten, itself if nothing matches."""
        return _Rewriter().rewrite_function(func)


def _rank(expr: Expr) -> int:
    return expr.ty.ndim if isinstance(expr.ty, TensorType) else -1


class _Rewriter(OperandRewriter):
    def rewrite(self, call: Call, name: str) -> Expr:
        if name != "relax.matmul":
            return call
        data, right = call.args
        taken = self.defined_as(right, "relax.take")
        if taken is None:
            return call
        weights, indices = taken.args
        if _rank(indices) != 1 or _rank(data) < 1 or _rank(weights) < 2:
            return call
        attrs: Any = taken.attrs
        out_dtype = call.attrs.out_dtype if call.attrs is not None else None
        if attrs.axis == _rank(weights) - 1:
            product = op.matmul(data, weights, out_dtype)
            # a vector on the left leaves no row
            last = max(_rank(data), _rank(weights)) - 1 - (_rank(data) == 1)
            return op.take(product, indices, last, attrs.mode)
        if attrs.axis == 0 and _rank(data) == _rank(weights) == 3:
            return self.batched(call, data, weights, indices, attrs.mode)
        return call

    def batched(self, call: Call, data: Expr, weights: Expr, indices: Expr, mode: str) -> Expr:
        """Return all products of a batch, of which each row picks its own."""
        rows, many, count = shape_of(data), shape_of(weights), shape_of(indices)
        if rows is None or many is None or count is None:
            return call
        if not dims_equal(rows[0], count[0], self.builder.analyzer):
            return call  # one row for all weights: there is no own one
        number, inner, outer = many
        flat = op.reshape(op.permute_dims(weights, [1, 0, 2]), (inner, number * outer))
        out_dtype = call.attrs.out_dtype if call.attrs is not None else None
        product = op.matmul(data, flat, out_dtype)
        apart = op.reshape(product, (rows[0], rows[1], number, outer))
        return op.einsum((op.take(apart, indices, 2, mode),), "ijik->ijk")
