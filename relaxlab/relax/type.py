"""The types only Relax has.

::

    Type = ... (ir/type.py)
         | TensorType(shape, dtype, vdevice, ndim)
         | ShapeType(values, ndim)

A shape is a :class:`~relaxlab.relax.expr.ShapeExpr`, a variable of ShapeType, or None (only the
rank, perhaps not even that, is known). Counterpart: ``tvm.relax.TensorType`` and ``ShapeType``.

Examples
--------
>>> from relaxlab.relax.expr import ShapeExpr
>>> TensorType(ShapeExpr([2, 3]), "float32").ndim
2
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.global_info import VDevice
from relaxlab.ir.source import Span
from relaxlab.ir.type import AnyType, FuncType, PrimType, TupleType, Type
from relaxlab.relax.shape import ShapeExpr, to_dims
from relaxlab.runtime.dtype import DataType

__all__ = ["PACKED_FUNC", "ShapeType", "TensorType", "infer_by_ty_args"]


@dataclass(frozen=True, eq=False, slots=True, repr=False, init=False)
class TensorType(Type):
    """A tensor.

    Parameters
    ----------
    shape
        A :class:`ShapeExpr`, a variable of ShapeType, a sequence of dimensions, or None.
    dtype
        Element type; None for unknown.
    vdevice
        Virtual device it lives on; None for unknown.
    ndim
        Rank when ``shape`` is None; -1 for unknown.

    Raises
    ------
    TypeError
        If ``shape`` is no shape.
    ValueError
        If ``ndim`` contradicts it, or is less than -1.
    """

    shape: Expr | None
    dtype: DataType | None
    vdevice: VDevice | None
    ndim: int

    def __init__(
        self,
        shape: Expr | Sequence[Expr | int] | None = None,
        dtype: DataType | PrimType | str | None = "float32",
        vdevice: VDevice | None = None,
        ndim: int = -1,
        span: Span | None = None,
    ) -> None:
        if shape is not None and not isinstance(shape, Expr):
            shape = ShapeExpr(shape)
        if isinstance(shape, ShapeExpr):
            known = len(shape.values)
        elif isinstance(shape, Var) and isinstance(shape.ty, ShapeType):
            known = shape.ty.ndim
        elif shape is None:
            known = ndim
        else:
            raise TypeError(
                f"a tensor's shape must be a ShapeExpr or a Var of ShapeType, got {shape!r}"
            )
        if ndim not in (-1, known):
            raise ValueError(f"ndim={ndim} contradicts the shape, which has {known} dimensions")
        if known < -1:
            raise ValueError(f"ndim must be >= -1, got {known}")
        if isinstance(dtype, PrimType):
            dtype = dtype.dtype
        if dtype is not None:
            dtype = DataType(dtype)
            dtype = None if dtype.is_void else dtype
        _set(self, shape=shape, dtype=dtype, vdevice=vdevice, ndim=known, span=span)

    def get_shape(self) -> tuple[Expr, ...] | None:
        """Return the dimensions, or None when they are not written out."""
        return self.shape.values if isinstance(self.shape, ShapeExpr) else None

    @property
    def is_unknown_ndim(self) -> bool:
        """Whether not even the rank is known."""
        return self.ndim == -1


@dataclass(frozen=True, eq=False, slots=True, repr=False, init=False)
class ShapeType(Type):
    """A shape, as a value.

    Parameters
    ----------
    values
        Its dimensions, or None.
    ndim
        Their number when ``values`` is None; -1 for unknown.

    Raises
    ------
    ValueError
        If ``ndim`` contradicts ``values``, or is less than -1.
    """

    values: tuple[Expr, ...] | None
    ndim: int

    def __init__(
        self,
        values: Sequence[Expr | int] | None = None,
        ndim: int = -1,
        span: Span | None = None,
    ) -> None:
        dims = None if values is None else to_dims(values)
        known = ndim if dims is None else len(dims)
        if ndim not in (-1, known):
            raise ValueError(f"ndim={ndim} contradicts values, of which there are {known}")
        if known < -1:
            raise ValueError(f"ndim must be >= -1, got {known}")
        _set(self, values=dims, ndim=known, span=span)

    @property
    def is_unknown_ndim(self) -> bool:
        """Whether not even the number of dimensions is known."""
        return self.ndim == -1


def _set(node: Any, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(node, name, value)


def infer_by_ty_args(call: Call, context: object = None) -> Type:
    """Return the result type that a call of a function known by name only declares.

    No ``ty_args`` mean anything at all, one means itself, several mean a tuple.
    """
    if len(call.ty_args) == 1:
        return call.ty_args[0]
    return TupleType(call.ty_args) if call.ty_args else AnyType()


#: The type of a function that is known by name only: opaque, and perhaps with effects.
PACKED_FUNC = FuncType(None, AnyType(), purity=False, derive_func=infer_by_ty_args)
