"""Python values as Relax expressions.

Two conversions exist and differ on purpose: :func:`const` makes a *tensor* constant (a Python int
becomes int32, as in NumPy-like code), :func:`prim_value` makes a *scalar* expression (an int
becomes int64, as in shapes). Arguments of operators go through :func:`convert_to_expr`, which
makes scalars, strings and tuples. Counterpart: ``tvm.relax.const``, ``prim_value`` and
``convert_to_expr``.

Examples
--------
>>> str(const(1).ty.dtype), str(prim_value(1).dtype)
('int32', 'int64')
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxlab.ir.expr import Expr, GenericConst, StringImm, Tuple
from relaxlab.ir.prim import FloatImm, IntImm
from relaxlab.ir.type import AnyType, PrimType
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor, tensor

__all__ = ["const", "convert_to_expr", "dtype_const", "prim_value", "to_shape"]

#: NumPy's defaults, narrowed as TVM does when no dtype is asked for.
_NARROWED = {"int64": "int32", "float64": "float32"}


def const(value: Any, dtype: DataType | str | None = None) -> GenericConst:
    """Return a tensor constant.

    Parameters
    ----------
    value
        A number, a bool, a (nested) list of them, a NumPy array or a runtime tensor.
    dtype
        Element type. None takes the value's own; a Python int or a list of them is int32, a
        float float32, and NumPy's int64 and float64 arrays are narrowed likewise. A runtime
        tensor is taken as it is.

    Raises
    ------
    TypeError
        If the value is no array of numbers.
    ValueError
        If an integer does not fit the dtype.
    """
    if isinstance(value, GenericConst):
        raise TypeError("const needs a number, an array or a tensor, got a constant already made")
    if isinstance(value, Tensor) and dtype is None:
        return _tensor_const(value)
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.kind in "OUSMm":
        raise TypeError(f"const needs a number, an array or a tensor, got {value!r}")
    if dtype is None:
        dtype = _NARROWED.get(array.dtype.name, array.dtype.name)
    converted = array.astype(DataType(dtype).numpy())
    if array.dtype.kind in "iu" and converted.dtype.kind in "iu" and (converted != array).any():
        raise ValueError(f"const: a value does not fit {dtype}; pass a wider dtype")
    return _tensor_const(tensor(converted))


def _tensor_const(value: Tensor) -> GenericConst:
    return GenericConst(value, TensorType(ShapeExpr(value.shape), value.dtype))


def prim_value(value: Any) -> Expr:
    """Return a scalar expression: bool stays bool, int becomes int64, float becomes float64.

    Raises
    ------
    TypeError
        If the value is neither a number nor a scalar expression.
    """
    if isinstance(value, Expr) and isinstance(value.ty, PrimType):
        return value
    if isinstance(value, bool | np.bool_):
        return IntImm(DataType("bool"), bool(value))
    if isinstance(value, int | np.integer):
        return IntImm(DataType("int64"), int(value))
    if isinstance(value, float | np.floating):
        return FloatImm(DataType("float64"), float(value))
    raise TypeError(f"Cannot convert {value} with type {type(value)} to `Expr`")


def dtype_const(dtype: DataType | str) -> GenericConst:
    """Return a data type as a value, printed ``R.dtype("float32")``."""
    return GenericConst(DataType(dtype), AnyType())


def convert_to_expr(value: Any) -> Expr:
    """Return ``value`` as an argument of an operator.

    Expressions stay; numbers become scalars (:func:`prim_value`), strings string constants,
    tuples and lists tuples.

    Raises
    ------
    TypeError
        For anything else; make arrays and tensors constants with :func:`const`.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, tuple | list):
        return Tuple(tuple(convert_to_expr(item) for item in value))
    if isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
        return prim_value(value)
    raise TypeError(
        f"Cannot convert {value} with type {type(value)} to `relax.Expr`; make an array or a "
        "tensor a constant with `relax.const` first"
    )


def to_shape(shape: Expr | Sequence[Expr | int]) -> Expr:
    """Return a shape argument: tuples and lists of dimensions become a shape expression.

    Raises
    ------
    TypeError
        If it is neither a sequence nor an expression that can be a shape.
    """
    if isinstance(shape, tuple | list):
        return ShapeExpr(tuple(shape))
    if isinstance(shape, Tuple):
        return ShapeExpr(shape.fields)
    if isinstance(shape, Expr) and not isinstance(shape.ty, PrimType):
        return shape
    raise TypeError("shape must be a tuple/list or a Relax shape expression")
