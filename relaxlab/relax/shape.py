"""A shape written out: a sequence of scalar expressions.

It stands below ``type.py``, which needs it, and ``expr.py``, which holds the rest of the
grammar. Counterpart: ``tvm.relax.ShapeExpr``.

Examples
--------
>>> [d.value for d in ShapeExpr([2, 3]).values]
[2, 3]
"""

from collections.abc import Iterable
from dataclasses import dataclass

from relaxlab.ir.expr import Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import PrimType, Type
from relaxlab.registry import Registry
from relaxlab.runtime.dtype import DataType

__all__ = ["ShapeExpr", "to_dims"]

_INT64 = DataType("int64")

#: How a ShapeExpr gets its type; ``type.py`` cannot be imported here, so ``expr.py`` fills it in.
SHAPE_TYPE: Registry[type[Type]] = Registry("shape type")


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
        if not isinstance(dim, Expr) or not isinstance(dim.ty, PrimType) or dim.dtype is not _INT64:
            got = dim.ty if isinstance(dim, Expr) else type(dim).__name__
            raise TypeError(f"the value in ShapeType can only have dtype of int64, got {got}")
        dims.append(dim)
    return tuple(dims)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class ShapeExpr(Expr):
    """A shape; all values are int64."""

    values: tuple[Expr, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", to_dims(self.values))
        if self.ty is None:
            object.__setattr__(self, "ty", SHAPE_TYPE.get("ShapeType")(self.values))  # type: ignore[call-arg]  # ShapeType's

    def __getitem__(self, index: int) -> Expr:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)
