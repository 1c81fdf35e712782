"""Which variables a program defines, uses, leaves free. Counterpart: ``tvm.relax.analysis``.

Symbolic variables are variables too: a dimension in a type or a shape uses one, a bare dimension
of a parameter or of a match_cast defines one. All lists hold each variable once, in the order in
which it is met.

Examples
--------
>>> from relaxlab.relax import op
>>> from relaxlab.relax.expr import TensorType, Var
>>> x = Var("x", TensorType([4]))
>>> [v.name for v in free_vars(op.exp(x))]
['x']
"""

from collections.abc import Callable

from relaxlab.ir.expr import Expr, GlobalVar, Var
from relaxlab.ir.prim_functor import free_vars as scalar_vars
from relaxlab.ir.type import Type
from relaxlab.relax.expr import Call, Function, MatchCast, ShapeExpr, VarBinding
from relaxlab.relax.expr_functor import ExprVisitor
from relaxlab.relax.type import TensorType
from relaxlab.relax.type_variables import definable_tir_vars_in_type, tir_vars_in_type

__all__ = [
    "all_global_vars",
    "all_vars",
    "bound_vars",
    "defined_symbolic_vars",
    "free_symbolic_vars",
    "free_vars",
    "post_order_visit",
    "used_vars",
]


class _Variables(ExprVisitor):
    """Collects uses and definitions, and everything met in order."""

    def __init__(self) -> None:
        self.used: dict[Var, None] = {}
        self.defined: dict[Var, None] = {}
        self.met: dict[Var, None] = {}
        self.globals: dict[GlobalVar, None] = {}

    def use(self, var: Var) -> None:
        self.used.setdefault(var)
        self.met.setdefault(var)

    def define(self, var: Var) -> None:
        self.defined.setdefault(var)
        self.met.setdefault(var)

    def use_type(self, ty: Type | None) -> None:
        for var in tir_vars_in_type(ty):
            self.use(var)
        if isinstance(ty, TensorType) and isinstance(ty.shape, Var):
            self.use(ty.shape)

    def visit_var_(self, op: Var) -> None:
        self.use(op)

    def visit_global_var_(self, op: GlobalVar) -> None:
        self.globals.setdefault(op)

    def visit_prim_expr_(self, op: Expr) -> None:
        for var in scalar_vars(op):
            self.use(var)

    def visit_shape_expr_(self, op: ShapeExpr) -> None:
        for dim in op.values:
            self.visit_prim_expr_(dim)

    def visit_call_(self, op: Call) -> None:
        super().visit_call_(op)
        for ty in op.ty_args:
            self.use_type(ty)

    def visit_function_(self, op: Function) -> None:
        for param in op.params:
            self.define(param)
            for var in definable_tir_vars_in_type(param.ty):
                self.define(var)
        for param in op.params:
            self.use_type(param.ty)
        self.visit_expr(op.body)
        self.use_type(op.ret_ty)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        if isinstance(binding.value, Function):
            self.define(binding.var)  # it may call itself
        super().visit_var_binding_(binding)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self.visit_expr(binding.value)
        for var in definable_tir_vars_in_type(binding.ty):
            if var not in self.used and var not in self.defined:
                self.define(var)
        self.use_type(binding.ty)
        self.visit_var_def(binding.var)

    def visit_var_def(self, var: Var) -> None:
        self.define(var)
        self.use_type(var.ty)


def _collect(expr: Expr) -> _Variables:
    variables = _Variables()
    variables.visit_expr(expr)
    return variables


def free_vars(expr: Expr) -> list[Var]:
    """Return the variables that ``expr`` uses and does not define."""
    found = _collect(expr)
    return [var for var in found.used if var not in found.defined]


def bound_vars(expr: Expr) -> list[Var]:
    """Return the variables that ``expr`` defines, symbolic ones included."""
    return list(_collect(expr).defined)


def all_vars(expr: Expr) -> list[Var]:
    """Return all variables of ``expr``, defined or used."""
    return list(_collect(expr).met)


def used_vars(expr: Expr) -> list[Var]:
    """Return the variables that ``expr`` uses, whether it defines them or not."""
    return list(_collect(expr).used)


def all_global_vars(expr: Expr) -> list[GlobalVar]:
    """Return the module's functions that ``expr`` refers to."""
    return list(_collect(expr).globals)


def _is_symbolic(var: Var) -> bool:
    # a scalar of an integer type may stand in a shape
    try:
        return var.dtype.is_int
    except AttributeError:
        return False


def defined_symbolic_vars(func: Function) -> list[Var]:
    """Return the symbolic variables that a function's parameters and match_casts define."""
    return [v for v in _collect(func).defined if _is_symbolic(v) and v not in func.params]


def free_symbolic_vars(func: Function) -> list[Var]:
    """Return the symbolic variables that a function uses and does not define."""
    return [var for var in free_vars(func) if _is_symbolic(var)]


class _PostOrder(ExprVisitor):
    def __init__(self, visit: Callable[[Expr], object]) -> None:
        self.visit = visit

    def visit_expr(self, expr: Expr) -> None:
        super().visit_expr(expr)
        self.visit(expr)


def post_order_visit(expr: Expr, fvisit: Callable[[Expr], object]) -> None:
    """Call ``fvisit`` on every expression inside ``expr``, each after those inside it."""
    _PostOrder(fvisit).visit_expr(expr)
