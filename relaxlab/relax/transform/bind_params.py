"""Make parameters constants: bind weights before building.

Counterpart: ``tvm.relax.transform.BindParams``.

Examples
--------
>>> import numpy as np
>>> BindParams("main", {"w": np.zeros(4, "float32")}).func_name
'main'
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.ir import Expr, GenericConst, IntImm, IRModule, ModulePass, PassContext, Type, Var
from relaxlab.relax.expr import Function, ShapeExpr, TensorType
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.literals import const
from relaxlab.relax.type_variables import substitute
from relaxlab.runtime.tensor import Tensor

__all__ = ["BindParams"]


class _Binder(ExprMutator):
    """Replaces parameters, and the symbolic variables that their types define."""

    def __init__(
        self, mod: IRModule, bound: dict[Var, GenericConst], sizes: dict[Var, Expr]
    ) -> None:
        super().__init__(mod)
        self.sizes = sizes
        self.var_remap.update(bound)

    def visit_ty(self, ty: Type) -> Type:
        return substitute(ty, self.sizes)

    def visit_prim_expr_(self, op: Expr) -> Expr:
        return substitute(op, self.sizes)

    def visit_var_(self, op: Var) -> Expr:
        return self.sizes[op] if op in self.sizes else super().visit_var_(op)


def _to_const(name: str, value: Any) -> GenericConst:
    if isinstance(value, GenericConst):
        return value
    if isinstance(value, np.ndarray | Tensor):
        return const(value, str(value.dtype))
    raise TypeError(
        f"parameter {name!r} must be bound to an array, a tensor or a constant, got "
        f"{type(value).__name__}"
    )


def _find_param(func: Function, key: str | Var) -> Var:
    names = ", ".join(f'"{param.name}"' for param in func.params)
    found = [p for p in func.params if p is key or (isinstance(key, str) and p.name == key)]
    if len(found) == 1:
        return found[0]
    if found:
        raise InternalError(f"Function has several parameters with name {key!r}: ({names})")
    if isinstance(key, Var):
        raise InternalError(
            f"Function does not use Relax variable {key.name} as a parameter.  Function "
            f"parameters are ({names})"
        )
    raise InternalError(
        f'Function does not have parameter with name "{key}".  Function parameters are named '
        f"({names})"
    )


def _match(param: Var, value: GenericConst, sizes: dict[Var, Expr]) -> None:
    """Check a constant against its parameter and note what symbolic variables stand for."""
    expected, given = param.ty, value.ty
    if not isinstance(expected, TensorType) or not isinstance(given, TensorType):
        raise TypeError(f"parameter {param.name!r} of type {expected} cannot be bound to {given}")
    if expected.dtype is not None and expected.dtype is not given.dtype:
        raise TypeError(
            f"parameter {param.name!r} has dtype {expected.dtype}, but {given.dtype} was given; "
            "convert the array first"
        )
    if expected.ndim not in (-1, given.ndim):
        raise ValueError(
            f"parameter {param.name!r} has rank {expected.ndim}, but an array of rank "
            f"{given.ndim} was given"
        )
    if not isinstance(expected.shape, ShapeExpr) or not isinstance(given.shape, ShapeExpr):
        return
    for axis, (dim, size) in enumerate(zip(expected.shape.values, given.shape.values, strict=True)):
        assert isinstance(size, IntImm)
        known = sizes.setdefault(dim, size) if isinstance(dim, Var) else dim
        if isinstance(known, IntImm) and known.value != size.value:
            what = f"{dim.name} = {known.value}" if isinstance(dim, Var) else str(known.value)
            raise ValueError(
                f"parameter {param.name!r} has size {what} in dimension {axis}, but an array of "
                f"size {size.value} was given"
            )


@dataclass(frozen=True)
class BindParams(ModulePass):
    """Replace parameters of a function by constants.

    Parameters
    ----------
    func_name
        The function.
    params
        Arrays, tensors or constants by parameter (its name or its variable).

    Raises
    ------
    ValueError
        If there is no such function, or the shape of an array is not the parameter's.
    InternalError
        If a key is no parameter, or a name is that of several.
    TypeError
        If a value is no array, or its dtype is not the parameter's.
    """

    func_name: str
    params: Mapping[str | Var, Any] = field(default_factory=dict)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with the parameters bound."""
        gvar = mod.get_global_var(self.func_name)
        func = mod.functions[gvar]
        if not isinstance(func, Function) or not self.params:
            return mod
        bound: dict[Var, GenericConst] = {}
        sizes: dict[Var, Expr] = {}
        for key, value in self.params.items():
            param = _find_param(func, key)
            bound[param] = _to_const(param.name, value)
            _match(param, bound[param], sizes)
        rest = tuple(param for param in func.params if param not in bound)
        binder = _Binder(mod, bound, sizes)
        # the declared result type may mention bound sizes; it follows from the body then
        shorter = Function(rest, func.body, func.ret_ty, func.is_pure, func.attrs, span=func.span)
        return mod.with_functions({gvar: binder.visit_expr(shorter)})
