"""Multiply by each part of a sum: ``x @ (a + b)`` becomes ``x @ a + x @ b``.

Worth it where ``a`` is fixed and ``b`` a product of small matrices (LoRA): afterwards the matmuls
can be ordered. A sum that depends on weights only is left, since it is computed once.
Counterpart: ``tvm.relax.transform.ExpandMatmulOfSum``.

Examples
--------
>>> ExpandMatmulOfSum().info.opt_level
1
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from relaxlab.ir import Call, Expr, IRModule, PassContext, Var
from relaxlab.relax import op
from relaxlab.relax.analysis import computable_at_compile_time
from relaxlab.relax.expr import Function
from relaxlab.relax.transform.operand_rewriter import OperandRewriter, shape_of
from relaxlab.relax.transform.pass_base import FunctionPass
from relaxlab.relax.type_relations import shapes_equal

__all__ = ["ExpandMatmulOfSum"]


@dataclass(frozen=True)
class ExpandMatmulOfSum(FunctionPass):
    """Distribute matmuls over sums on their right, through permutations too."""

    opt_level: ClassVar[int] = 1

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function rewritten, itself if nothing matches."""
        return _Rewriter(set(computable_at_compile_time(func))).rewrite_function(func)


class _Rewriter(OperandRewriter):
    def __init__(self, known: set[Var]) -> None:
        super().__init__()
        self.known = known

    def rewrite(self, call: Call, name: str) -> Expr:
        if name != "relax.matmul":
            return call
        permuted = self.defined_as(call.args[1], "relax.permute_dims")
        right = call.args[1] if permuted is None else permuted.args[0]
        return call if self.sum_of(right) is None else self.product(call, right, permuted)

    def product(self, call: Call, right: Expr, permuted: Call | None) -> Expr:
        """Return the matmul with another right operand, distributed if that is a sum."""
        total = self.sum_of(right)
        if total is not None:
            return op.add(*(self.product(call, part, permuted) for part in total.args))
        if permuted is not None:
            attrs: Any = permuted.attrs
            right = op.permute_dims(right, attrs.axes)
        return Call(call.op, (call.args[0], right), call.attrs)

    def sum_of(self, expr: Expr) -> Call | None:
        """Return the sum that an operand is, if it should be taken apart."""
        total = self.defined_as(expr, "relax.add")
        return total if total is not None and self.is_worth_it(total) else None

    def is_worth_it(self, total: Call) -> bool:
        if all(part in self.known for part in total.args):
            return False
        shapes = [shape_of(part) for part in (*total.args, total)]
        first, second, whole = shapes
        if first is None or second is None or whole is None:
            return False
        # a part that is broadcast is no matrix by itself
        analyzer = self.builder.analyzer
        return shapes_equal(first, whole, analyzer) and shapes_equal(second, whole, analyzer)
