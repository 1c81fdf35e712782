"""Rewriting a call by looking at what its arguments are.

A subclass says what becomes of a call; :meth:`OperandRewriter.defined_as` shows it the call that
an argument is bound to. What nobody uses afterwards is dropped. Counterpart: the passes of TVM
that are a pattern and a function (``rewrite_call``).

Examples
--------
>>> from relaxlab.relax.expr import Function, TensorType, Var
>>> x = Var("x", TensorType([4]))
>>> func = Function([x], x)
>>> OperandRewriter().rewrite_function(func) is func
True
"""

from typing import Any

from relaxlab.ir import Call, Expr, Op, Tuple, Var
from relaxlab.relax.analysis import remove_all_unused
from relaxlab.relax.expr import (
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    TensorType,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprMutator

__all__ = ["OperandRewriter", "shape_of"]


def shape_of(expr: Expr) -> tuple[Expr, ...] | None:
    """Return the dimensions of a tensor; None when they are not written out."""
    return expr.ty.get_shape() if isinstance(expr.ty, TensorType) else None


class OperandRewriter(ExprMutator):
    """Rewrites operator calls; override :meth:`rewrite`."""

    def __init__(self) -> None:
        super().__init__()
        #: Variables of the dataflow block at hand: those of others cannot be used here.
        self._inside: set[Var] = set()

    def rewrite_function(self, func: Function) -> Function:
        """Return the function with calls rewritten; itself if none was."""
        new: Any = self.visit_expr(func)
        return func if new is func else remove_all_unused(new)

    def rewrite(self, call: Call, name: str) -> Expr:
        """Return what stands for a call of the operator ``name``; the call itself to keep it."""
        return call

    def defined_as(self, expr: Expr, name: str) -> Call | None:
        """Return the call of the operator ``name`` that ``expr`` is bound to."""
        value = self.builder.lookup_binding(expr) if isinstance(expr, Var) else None
        if not isinstance(value, Call) or not isinstance(value.op, Op) or value.op.name != name:
            return None
        return value if all(map(self._is_visible, value.args)) else None

    def _is_visible(self, expr: Expr) -> bool:
        if isinstance(expr, Tuple):
            return all(map(self._is_visible, expr.fields))
        return not isinstance(expr, DataflowVar) or expr in self._inside

    def visit_call_(self, op: Call) -> Expr:
        """Rewrite a call whose arguments are done."""
        call = super().visit_call_(op)
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return call
        new = self.rewrite(call, call.op.name)
        return call if new is call else self.builder.normalize(new)

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        """Visit a block, whose variables are its own."""
        outer, self._inside = self._inside, set()
        new = super().visit_dataflow_block_(block)
        self._inside = outer
        return new

    def reemit_binding(self, binding: VarBinding, value: Expr) -> None:
        """Emit a binding; one that only renames is left out."""
        alias = isinstance(value, Var) and value is not binding.value
        if alias and not isinstance(binding.var, DataflowVar) and isinstance(value, DataflowVar):
            alias = False  # an output keeps its name
        if alias:
            self.var_remap[binding.var] = value
            return
        super().reemit_binding(binding, value)
        self._inside.add(binding.var)
