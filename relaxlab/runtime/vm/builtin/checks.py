"""Builtins that check a value against a type annotation.

A failed check raises ``TypeError`` for another kind of value and ``ValueError`` for another rank,
dtype or length; the error context of the compiler stands in front. None is a value of the wrong
kind like any other (several of TVM's checks crash on it). Counterpart: the check functions of
TVM's ``vm/builtin.cc``.

Examples
--------
>>> check_shape_info(ShapeTuple((2, 3)), 3, "ErrorContext(match_cast, ty=R.Shape(ndim=3)) ")
Traceback (most recent call last):
ValueError: ErrorContext(match_cast, ty=R.Shape(ndim=3)): expected Shape with ndim 3, \
got Shape (2, 3) with ndim 2
"""

import ctypes
from typing import Any, Final

from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.dtype import DataType, DataTypeCode
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.values import as_value
from relaxlab.runtime.vm.builtin.error_context import prefix
from relaxlab.runtime.vm.builtin.table import as_context, as_dtype, as_int, builtin, shown
from relaxlab.runtime.vm.frame import Closure

__all__: list[str] = []

# What a number of each kind of dtype may be in Python; bool is an int there.
_PRIM_TYPES: Final[dict[int, tuple[type, ...]]] = {
    DataTypeCode.BOOL: (int,),
    DataTypeCode.INT: (int,),
    DataTypeCode.UINT: (int,),
    DataTypeCode.FLOAT: (float, int),
    DataTypeCode.HANDLE: (ctypes.c_void_p,),
}


@builtin("vm.builtin.check_tensor_info")
def check_tensor_info(value: Any, ndim: Any, /, *rest: Any) -> None:
    """Check for a tensor of that rank (-1: any) and dtype: (value, ndim, [dtype,] context).

    Parameters
    ----------
    value
        What is checked.
    ndim
        The rank; -1 for any.
    rest
        The dtype (None for any), if four arguments are given; then the context.

    Raises
    ------
    TypeError
        If it is no tensor.
    ValueError
        If rank or dtype differ; bits and lanes count.

    Notes
    -----
    Source: TVM's ``vm.builtin.check_tensor_info``.
    """
    if (  # the common case first: every call of a compiled function makes it
        type(value) is Tensor
        and type(ndim) is int
        and len(rest) == 2
        and value.dtype is rest[0]
        and len(value.shape) == ndim
        and type(rest[1]) is str
    ):
        return
    me = "vm.builtin.check_tensor_info"
    if not 1 <= len(rest) <= 2:
        raise TypeError(f"{me}: expected 3 or 4 arguments, got {2 + len(rest)}")
    ctx: Any = rest[-1]
    if type(ctx) is not str:
        ctx = as_context(ctx, me)
    value = as_value(value)
    if not isinstance(value, Tensor):
        raise TypeError(f"{prefix(ctx)}expected a Tensor, got {shown(value)}")
    rank = as_int(ndim, me, "ndim")
    dtype = as_dtype(rest[0], me, "dtype") if len(rest) == 2 and rest[0] is not None else None
    if rank not in (-1, value.ndim):
        raise ValueError(
            f"{prefix(ctx)}expected Tensor with ndim {rank}, "
            f"got {shown(value)} with ndim {value.ndim}"
        )
    if dtype is not None and value.dtype is not dtype:
        raise ValueError(
            f"{prefix(ctx)}expected Tensor with dtype {str(dtype)!r}, got {shown(value)}"
        )


@builtin("vm.builtin.check_shape_info")
def check_shape_info(value: Any, ndim: Any, ctx: Any, /) -> None:
    """Check for a shape of that length (-1: any).

    Parameters
    ----------
    value
        What is checked; a tuple of integers is no shape here.
    ndim
        The length; -1 for any.
    ctx
        Text in front of the message: what is checked, and where.

    Raises
    ------
    TypeError
        If it is no shape.
    ValueError
        If the length differs.

    Notes
    -----
    Source: TVM's ``vm.builtin.check_shape_info``. TVM crashes on None.
    """
    if type(ctx) is not str:
        ctx = as_context(ctx, "vm.builtin.check_shape_info")
    if not isinstance(value, ShapeTuple):
        raise TypeError(f"{prefix(ctx)}expected a Shape, got {shown(value)}")
    rank = as_int(ndim, "vm.builtin.check_shape_info", "ndim")
    if rank not in (-1, len(value)):
        raise ValueError(
            f"{prefix(ctx)}expected Shape with ndim {rank}, got {shown(value)} "
            f"with ndim {len(value)}"
        )


@builtin("vm.builtin.check_prim_value_info")
def check_prim_value_info(value: Any, dtype: Any, ctx: Any, /) -> None:
    """Check for a number that a scalar of ``dtype`` can be made from; ranges are not checked.

    Parameters
    ----------
    value
        What is checked.
    dtype
        bool, int, uint, float or handle, of any width.
    ctx
        Text in front of the message: what is checked, and where.

    Raises
    ------
    TypeError
        If it is another kind of value, or no value can be checked for the dtype.

    Notes
    -----
    Source: TVM's ``vm.builtin.check_prim_value_info``. TVM crashes on None.
    """
    if type(ctx) is not str:
        ctx = as_context(ctx, "vm.builtin.check_prim_value_info")
    wanted: DataType = as_dtype(dtype, "vm.builtin.check_prim_value_info", "dtype")
    name = str(wanted) or "void"
    kinds = None if wanted.is_void else _PRIM_TYPES.get(wanted.code)
    if kinds is None:
        raise TypeError(
            f"{prefix(ctx)}no value can be checked for dtype {name!r}, got {shown(value)}"
        )
    value = as_value(value)
    if not isinstance(value, kinds):
        raise TypeError(f"{prefix(ctx)}expected a value of dtype {name!r}, got {shown(value)}")


@builtin("vm.builtin.check_tuple_info")
def check_tuple_info(value: Any, size: Any, ctx: Any, /) -> None:
    """Check for a tuple of that many elements.

    Parameters
    ----------
    value
        What is checked; a shape is no tuple.
    size
        Number of elements.
    ctx
        Text in front of the message: what is checked, and where.

    Raises
    ------
    TypeError
        If it is no tuple.
    ValueError
        If it has another number of elements.

    Notes
    -----
    Source: TVM's ``vm.builtin.check_tuple_info``. TVM crashes on None.
    """
    if type(ctx) is not str:
        ctx = as_context(ctx, "vm.builtin.check_tuple_info")
    if not isinstance(value, list | tuple) or isinstance(value, ShapeTuple):
        raise TypeError(f"{prefix(ctx)}expected a Tuple, got {shown(value)}")
    wanted = as_int(size, "vm.builtin.check_tuple_info", "size")
    if len(value) != wanted:
        raise ValueError(
            f"{prefix(ctx)}expected a Tuple of {wanted} elements, got {len(value)} elements"
        )


@builtin("vm.builtin.check_func_info")
def check_func_info(value: Any, ctx: Any, /) -> None:
    """Check for a host function or a closure.

    Parameters
    ----------
    value
        What is checked.
    ctx
        Text in front of the message: what is checked, and where.

    Raises
    ------
    TypeError
        If it is neither.

    Notes
    -----
    Source: TVM's ``vm.builtin.check_func_info``. TVM crashes on None.
    """
    if type(ctx) is not str:
        ctx = as_context(ctx, "vm.builtin.check_func_info")
    if not isinstance(value, Closure) and not callable(value):
        raise TypeError(f"{prefix(ctx)}expected a Function, got {shown(value)}")


@builtin("vm.builtin.check_string_info")
def check_string_info(value: Any, ctx: Any, /) -> None:
    """Check for a string.

    Parameters
    ----------
    value
        What is checked.
    ctx
        Text in front of the message: what is checked, and where.

    Raises
    ------
    TypeError
        If it is none.

    Notes
    -----
    Source: TVM's ``vm.builtin.check_string_info``.
    """
    if type(ctx) is not str:
        ctx = as_context(ctx, "vm.builtin.check_string_info")
    if not isinstance(value, str):
        raise TypeError(f"{prefix(ctx)}expected a string, got {shown(value)}")
