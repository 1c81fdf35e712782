"""A shape written out: a sequence of scalar expressions.

It stands below ``type.py``, which needs it, and ``expr.py``, which holds the rest of the
grammar. Counterpart: ``tvm.relax.ShapeExpr``.

Examples
--------
>>> [d.value for d in ShapeExpr([2, 3]).values]
[2, 3]
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from relaxlab.ir.expr import Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.source import Span
from relaxlab.ir.type import PrimType, Type
from relaxlab.registry import Registry
from relaxlab.runtime.dtype import DataType

__all__ = ["ShapeExpr", "to_dims"]

_INT64 = DataType("int64")

#: How a ShapeExpr gets its type; ``type.py`` cannot be imported here, so ``expr.py`` fills it in.
SHAPE_TYPE: Registry[Callable[[tuple[Expr, ...]], Type]] = Registry("shape type")


def to_dims(values: Iterable[Expr | int]) -> tuple[Expr, ...]:
    """Return dimensions as int64 scalar expressions.

    Raises
    ------
    TypeError
        If a dimension is no int64 scalar (an int32 literal is widened).
    """
    dims: list[Expr] = []
    for value in values:
        if isinstance(value, int):
            dim: Expr = IntImm(_INT64, value)
        elif isinstance(value, IntImm) and value.dtype.is_int:
            dim = value if value.dtype is _INT64 else IntImm(_INT64, value.value)
        else:
            dim = value
        ty = getattr(dim, "ty", None)
        if not isinstance(ty, PrimType) or ty.dtype is not _INT64:
            got = ty or type(dim).__name__
            raise TypeError(f"the value in ShapeType can only have dtype of int64, got {got}")
        dims.append(dim)
    return tuple(dims)


@dataclass(frozen=True, eq=False, slots=True, repr=False, init=False)
class ShapeExpr(Expr):
    """A shape; all values are int64."""

    values: tuple[Expr, ...]

    def __init__(
        self, values: Iterable[Expr | int], *, ty: Type | None = None, span: Span | None = None
    ) -> None:
        dims = to_dims(values)
        object.__setattr__(self, "values", dims)
        object.__setattr__(self, "span", span)
        # the type is always derived, never carried over from a node with other values
        object.__setattr__(self, "ty", SHAPE_TYPE.get("ShapeType")(dims))

    def __getitem__(self, index: int) -> Expr:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)
