"""Dissolve dataflow blocks: from here on order and effects count.

Names and order stay. Counterpart: ``tvm.relax.transform.ToNonDataflow``.

Examples
--------
>>> ToNonDataflow().info.name
'ToNonDataflow'
"""

from dataclasses import dataclass
from typing import Any

from relaxlab.ir import IRModule, PassContext, Var
from relaxlab.relax.expr import BindingBlock, DataflowBlock, DataflowVar, Function
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.transform.pass_base import FunctionPass

__all__ = ["ToNonDataflow"]


class _Dissolver(ExprMutator):
    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        return self.visit_binding_block_(BindingBlock(block.bindings, span=block.span))

    def visit_var_def(self, var: Var) -> Var:
        return Var(var.name, var.ty, var.span) if isinstance(var, DataflowVar) else var


@dataclass(frozen=True)
class ToNonDataflow(FunctionPass):
    """Turn every dataflow block into a plain one and its variables into plain ones."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function without dataflow blocks."""
        result: Any = _Dissolver(mod).visit_expr(func)
        return result  # type: ignore[no-any-return]  # a function stays one
