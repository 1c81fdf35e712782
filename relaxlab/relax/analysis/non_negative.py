"""Expressions of a type that cannot be negative, since they are sizes.

Counterpart: ``tvm.relax.analysis.collect_non_negative_expressions``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.expr import TensorType
>>> n = Var("n", "int64")
>>> collect_non_negative_expressions(TensorType([n, n - 1, 3, n], "float32"))
[n, n - T.int64(1)]
"""

from collections.abc import Iterator

from relaxlab.ir import Expr, FuncType, IntImm, TupleType, Type, structural_equal
from relaxlab.relax.expr import ShapeExpr, ShapeType, TensorType

__all__ = ["collect_non_negative_expressions"]


def collect_non_negative_expressions(ty: Type) -> list[Expr]:
    """Return the sizes in a type that are no constants, in order, each once."""
    found: list[Expr] = []
    for size in _sizes(ty):
        if not isinstance(size, IntImm) and not any(structural_equal(size, one) for one in found):
            found.append(size)
    return found


def _sizes(ty: Type | None) -> Iterator[Expr]:
    match ty:
        case TensorType(shape=ShapeExpr(values=values)):
            yield from values
        case ShapeType(values=values) if values is not None:
            yield from values
        case TupleType(fields=fields):
            for item in fields:
                yield from _sizes(item)
        case FuncType(params=params, ret=ret):
            for item in params or ():
                yield from _sizes(item)
            yield from _sizes(ret)
        case _:
            pass
