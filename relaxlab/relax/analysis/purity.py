"""Whether calls have visible effects. Counterpart: ``contains_impure_call`` of TVM's analyses.

Examples
--------
>>> from relaxlab.relax import op
>>> from relaxlab.relax.expr import TensorType, Var
>>> x = Var("x", TensorType([4]))
>>> contains_impure_call(op.exp(x)), contains_impure_call(op.print(x))
(False, True)
"""

from relaxlab.ir.expr import Call, Expr, GlobalVar, Var
from relaxlab.ir.op import Op
from relaxlab.ir.type import FuncType
from relaxlab.relax.expr import Function
from relaxlab.relax.expr_functor import ExprVisitor

__all__ = ["contains_impure_call", "find_impure_call", "is_impure_call"]


def is_impure_call(call: Call) -> bool:
    """Say whether a call may have a visible effect.

    Raises
    ------
    ValueError
        If the callee is an operator that does not say.
    """
    if isinstance(call.op, Op):
        pure = call.op.get_attr("FPurity")
        if pure is None:
            if not call.op.name.startswith("relax."):
                return False  # scalar functions
            raise ValueError(f"operator {call.op.name} does not say whether it is pure (FPurity)")
        return not pure
    return not (isinstance(call.op.ty, FuncType) and call.op.ty.purity)


class _Finder(ExprVisitor):
    def __init__(self, own_name: Var | GlobalVar | None) -> None:
        self.own_name = own_name
        self.found: Call | None = None

    def visit_call_(self, op: Call) -> None:
        if self.found is None and op.op is not self.own_name and is_impure_call(op):
            self.found = op
        super().visit_call_(op)

    def visit_function_(self, op: Function) -> None:
        """Do not look into local functions: defining one has no effect."""


def find_impure_call(expr: Expr, own_name: Var | GlobalVar | None = None) -> Call | None:
    """Return the first impure call in ``expr``; see :func:`contains_impure_call`."""
    finder = _Finder(own_name)
    finder.visit_expr(expr.body if isinstance(expr, Function) else expr)
    return finder.found


def contains_impure_call(expr: Expr, own_name: Var | GlobalVar | None = None) -> bool:
    """Say whether evaluating ``expr`` (for a function: its body) makes an impure call.

    Parameters
    ----------
    expr
        What to search; definitions of local functions are skipped.
    own_name
        The function's own name: calls of itself do not count.
    """
    return find_impure_call(expr, own_name) is not None
