"""Putting other expressions in the place of variables, in types and shapes too.

Counterpart: ``tvm::relax::Bind`` and ``tvm.relax.utils.copy_with_new_vars``.

Examples
--------
>>> from relaxlab.relax.expr import Function, TensorType, Var
>>> n = Var("n", "int64")
>>> x = Var("x", TensorType([n]))
>>> copy = copy_with_new_vars(Function([x], x))
>>> copy.params[0] is x, copy.params[0].name, copy.body.body is copy.params[0]
(False, 'x', True)
"""

from collections.abc import Mapping
from typing import Any

from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import PrimType, Type
from relaxlab.relax.analysis.variables import bound_vars
from relaxlab.relax.expr import Function
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.type_variables import substitute

__all__ = ["bind_vars", "copy_with_new_vars"]


class _Substitution(ExprMutator):
    """Rebuilds expressions with other expressions in the place of variables.

    Parameters
    ----------
    values
        What stands for each variable. Scalar variables are replaced in types and shapes too.
    """

    def __init__(self, values: Mapping[Var, Expr]) -> None:
        super().__init__()
        self.var_remap.update(values)
        self.sizes = {v: e for v, e in values.items() if isinstance(v.ty, PrimType)}
        #: What a variable that is defined in the expression is called there.
        self.definitions = {v: e for v, e in values.items() if isinstance(e, Var)}

    def visit_ty(self, ty: Type) -> Type:
        return substitute(ty, self.sizes)

    def visit_prim_expr_(self, op: Expr) -> Expr:
        return op if isinstance(op, IntImm) else substitute(op, self.sizes)

    def visit_var_def_(self, var: Var) -> Var:
        return super().visit_var_def_(self.definitions.get(var, var))


def bind_vars(func: Function, values: Mapping[Var, Expr]) -> Function:
    """Return a function with variables replaced; parameters among them are no parameters any more.

    Parameters
    ----------
    func
        The function.
    values
        What stands for each variable: a value for a parameter, a scalar for a symbolic size.
    """
    params = [param for param in func.params if param not in values]
    # the declared result type may mention what is replaced; it follows from the body then
    shorter = func
    if len(params) != len(func.params):
        shorter = Function(params, func.body, func.ret_ty, func.is_pure, func.attrs, func.span)
    result: Any = _Substitution(values).visit_expr(shorter)
    return result  # type: ignore[no-any-return]  # a function stays one


def copy_with_new_vars(func: Function) -> Function:
    """Return a function that says the same with variables of its own, all of the same names."""
    sizes: dict[Var, Expr] = {}
    others: list[Var] = []
    for var in bound_vars(func):
        if isinstance(var.ty, PrimType):
            sizes[var] = type(var)(var.name, var.ty, var.span)
        else:
            others.append(var)
    values = dict(sizes)
    for var in others:
        ty = None if var.ty is None else substitute(var.ty, sizes)
        values[var] = type(var)(var.name, ty, var.span)
    result: Any = _Substitution(values).visit_expr(func)
    return result  # type: ignore[no-any-return]  # a function stays one
