"""Symbolic variables in types: which ones a type mentions or defines, and how to replace them.

A dimension that is a bare variable *defines* that variable where the type is in a defining
position (a parameter, a match_cast); a dimension such as ``n * 2`` only uses it. When a value
leaves the scope of its variables, its type is *erased*: a shape that mentions an unknown variable
is dropped and only rank and dtype stay. This module stands below ``expr.py``, since a function's
result type is erased when the function is built.
Counterpart: ``tvm.relax.analysis`` (``definable_tir_vars_in_type``, ``erase_to_well_defined``).

Examples
--------
>>> from relaxlab.ir.expr import Var
>>> from relaxlab.relax.type import TensorType
>>> n, m = Var("n", "int64"), Var("m", "int64")
>>> [v.name for v in definable_tir_vars_in_type(TensorType([n, m + 1]))]
['n']
>>> erase_to_well_defined(TensorType([n, m]), {n: n}).shape is None
True
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from relaxlab.ir import prim_functor
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.node import Node, map_children, replace
from relaxlab.ir.prim import IntImm
from relaxlab.ir.sym import Analyzer
from relaxlab.ir.type import FuncType, PrimType, TupleType, Type
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import ShapeType, TensorType

__all__ = [
    "definable_tir_vars_in_type",
    "erase_to_well_defined",
    "get_static_type",
    "substitute",
    "tir_vars_in_type",
]

N = TypeVar("N", bound=Node)


def _dimensions(ty: Type | None) -> Iterator[Expr]:
    """Yield every dimension written out in ``ty``, left to right, nested types included."""
    match ty:
        case TensorType(shape=ShapeExpr(values=dims)):
            yield from dims
        case ShapeType(values=dims) if dims is not None:
            yield from dims
        case TupleType(fields=fields):
            for item in fields:
                yield from _dimensions(item)
        case FuncType(params=params, ret=ret):
            for param in params or ():
                yield from _dimensions(param)
            yield from _dimensions(ret)
        case _:
            pass


def definable_tir_vars_in_type(ty: Type | None) -> list[Var]:
    """Return the symbolic variables that ``ty`` defines where it stands in a defining position.

    These are the dimensions that are nothing but a variable, each once, in order. The result of
    a function type defines nothing, its parameters do.
    """
    found: dict[Var, None] = {}
    stack: list[Type | None] = [ty]
    while stack:
        item = stack.pop()
        match item:
            case TensorType() | ShapeType():
                for dim in _dimensions(item):
                    if isinstance(dim, Var):
                        found.setdefault(dim)
            case TupleType(fields=fields):
                stack.extend(reversed(fields))
            case FuncType(params=params):
                stack.extend(reversed(params or ()))
            case _:
                pass
    return list(found)


def tir_vars_in_type(ty: Type | None) -> list[Var]:
    """Return all symbolic variables that ``ty`` mentions, each once, in order of appearance."""
    found: dict[Var, None] = {}
    for dim in _dimensions(ty):
        for var in _variables(dim):
            found.setdefault(var)
    return list(found)


def substitute(node: N, values: Mapping[Var, Expr]) -> N:
    """Replace variables in a type, a scalar or a shape; the same object if none occurs.

    Scalar expressions that change are simplified, so that ``n * 2`` becomes ``8`` for ``n = 4``.
    """
    if not values:
        return node

    def visit(item: Any) -> Any:
        if isinstance(item, Var):
            return values.get(item, item)
        if isinstance(item, Expr) and isinstance(item.ty, PrimType):
            changed = prim_functor.substitute(item, values)
            return item if changed is item else Analyzer().simplify(changed)
        return map_children(item, visit)

    result: N = visit(node)
    return result


def erase_to_well_defined(
    ty: Type,
    shape_var_map: Mapping[Var, Expr] | None = None,
    var_map: Mapping[Var, Expr] | None = None,
) -> Type:
    """Rewrite ``ty`` in terms of known variables.

    Parameters
    ----------
    ty
        The type to rewrite. Function types come back as they are.
    shape_var_map
        What each known symbolic variable stands for (often itself).
    var_map
        The same for variables of ShapeType that are used as a tensor's whole shape.

    Returns
    -------
    Type
        ``ty`` with known variables replaced; a shape with an unknown one is dropped, its rank
        stays. The same object when nothing changes.
    """
    return _erase(ty, shape_var_map or {}, var_map or {})


def _erase(ty: Type, dims: Mapping[Var, Expr], shapes: Mapping[Var, Expr]) -> Type:
    match ty:
        case TensorType(shape=None):
            return ty
        case TensorType(shape=ShapeExpr() as shape):
            if not _covered(shape.values, dims):
                return TensorType(None, ty.dtype, ty.vdevice, ty.ndim, ty.span)
            return replace(ty, shape=substitute(shape, _changes(shape.values, dims)))
        case TensorType(shape=Var() as shape):
            known = shapes.get(shape)
            if known is None:
                return TensorType(None, ty.dtype, ty.vdevice, ty.ndim, ty.span)
            return ty if known is shape else TensorType(known, ty.dtype, ty.vdevice, span=ty.span)
        case ShapeType(values=values) if values is not None:
            if not _covered(values, dims):
                return ShapeType(ndim=ty.ndim, span=ty.span)
            return substitute(ty, _changes(values, dims))
        case TupleType(fields=fields):
            erased = tuple(_erase(item, dims, shapes) for item in fields)
            same = all(a is b for a, b in zip(erased, fields, strict=True))
            return ty if same else TupleType(erased, span=ty.span)
        case _:
            return ty


def _variables(dim: Expr) -> list[Var]:
    if isinstance(dim, IntImm):
        return []
    return [dim] if isinstance(dim, Var) else prim_functor.free_vars(dim)


def _covered(values: tuple[Expr, ...], known: Mapping[Var, Expr]) -> bool:
    return all(var in known for dim in values for var in _variables(dim))


def _changes(values: tuple[Expr, ...], known: Mapping[Var, Expr]) -> dict[Var, Expr]:
    used = (var for dim in values for var in _variables(dim))
    return {var: known[var] for var in used if known[var] is not var}


def get_static_type(ty: Type) -> Type:
    """Return ``ty`` without any shape: kinds, dtypes and ranks only, function types included."""
    match ty:
        case TensorType():
            return TensorType(None, ty.dtype, ty.vdevice, ty.ndim, ty.span)
        case ShapeType():
            return ShapeType(ndim=ty.ndim, span=ty.span)
        case TupleType(fields=fields):
            return TupleType(tuple(map(get_static_type, fields)), span=ty.span)
        case FuncType(params=params) if params is not None:
            return FuncType(
                tuple(map(get_static_type, params)),
                get_static_type(ty.ret),
                ty.purity,
                ty.derive_func,
                span=ty.span,
            )
        case _:
            return ty
