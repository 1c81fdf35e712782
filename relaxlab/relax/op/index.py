"""Reading parts of a tensor. Counterpart: ``tvm.relax.op.index``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> call = strided_slice(Var("x", TensorType([8])), [0], [2], [6])
>>> [len(arg.fields) for arg in call.args[1:]], call.attrs
([1, 1, 1], Attrs({'assume_inbound': False}))
"""

from collections.abc import Sequence
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr, Tuple
from relaxlab.ir.prim import IntImm, Max, Min
from relaxlab.ir.prim_ops import if_then_else
from relaxlab.ir.type import AnyType, PrimType, TupleType, Type
from relaxlab.relax.literals import convert_to_expr, prim_value
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import (
    Shape,
    attributes,
    dims_of,
    dtype_name,
    known_dims,
    normalize_axes,
    normalize_axis,
    op_name,
    tensor_argument,
    type_of,
)
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

__all__ = ["dynamic_strided_slice", "slice_length", "strided_slice", "take"]

_INT64 = DataType("int64")
_ZERO = IntImm(_INT64, 0)
_ONE = IntImm(_INT64, 1)


# --- take ---------------------------------------------------------------------------------------


def _infer_take(call: Call, ctx: InferenceContext) -> Type:
    data = tensor_argument(call, 0)
    index_type = type_of(call.args[1])
    dtype: DataType | None
    if isinstance(index_type, PrimType):
        indices: Shape = ()
        index_ndim, dtype = 0, index_type.dtype
    else:
        tensor = tensor_argument(call, 1)
        indices, index_ndim, dtype = dims_of(tensor), tensor.ndim, tensor.dtype
    if dtype is not None and not (dtype.is_int or dtype.is_uint):
        raise TypeError(
            "Take op requires the input indices to have integer dtype. However, the given indices "
            f"dtype is {dtype_name(dtype)}"
        )
    axis = attributes(call).axis
    if axis is None:
        if data.ndim != 1:
            raise ValueError(
                "Take op expects the input data to be 1-dimensional tensor when the axis is not "
                f"specified. However, the given data tensor has ndim {data.ndim}"
            )
        axis = 0
    if -1 in (data.ndim, index_ndim):
        return TensorType(None, data.dtype, data.vdevice)
    axis = normalize_axis(op_name(call), axis, data.ndim)
    dims = dims_of(data)
    if dims is None and data.ndim == 1:
        dims = (_ZERO,)  # the only length is replaced below
    if dims is None or indices is None:
        return TensorType(None, data.dtype, data.vdevice, data.ndim - 1 + index_ndim)
    shape = ShapeExpr((*dims[:axis], *indices, *dims[axis + 1 :]))
    return TensorType(shape, data.dtype, data.vdevice)


_TAKE = declare("take", ("x", "indices"), _infer_take, attributes=("axis", "mode"))


def take(x: Expr, indices: Any, axis: int | None = None, mode: str = "fast") -> Call:
    """Pick elements along an axis.

    Parameters
    ----------
    x
        A tensor; 1-D when ``axis`` is None.
    indices
        Integer tensor, or one integer; its shape replaces the axis.
    axis
        Along which; None takes from a 1-D tensor.
    mode
        Indices out of range: ``"fast"`` means there are none (the kernel may check), ``"clip"``
        takes the nearest, ``"wrap"`` counts round, ``"nan"`` gives NaN.
    """
    return call_op(_TAKE, x, convert_to_expr(indices), axis=axis, mode=mode)


# --- strided_slice ------------------------------------------------------------------------------


def _is_index_tuple(ty: Type) -> bool:
    """Say whether a type can be that of a tuple of int64 scalars."""
    if isinstance(ty, AnyType):
        return True
    return isinstance(ty, TupleType) and all(
        isinstance(field, AnyType) or field == PrimType(_INT64) for field in ty.fields
    )


def _infer_strided_slice(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    names = ("axes", "begin", "end", "strides")
    given = dict(zip(names, call.args[1:], strict=False))
    for name, arg in given.items():
        if not _is_index_tuple(type_of(arg)):
            raise InternalError(
                f"Operator relax.strided_slice requires the {name} argument to be a tuple of int64 "
                f"PrimExpr values.  However, in expression {call}, the {name} argument {arg} has "
                f"type {arg.ty!r}"
            )
    lengths = {
        name: len(arg.ty.fields) for name, arg in given.items() if isinstance(arg.ty, TupleType)
    }
    first = next(iter(lengths), "axes")
    for name, length in lengths.items():
        if length != lengths[first]:
            raise InternalError(
                "The strided_slice operator requires that the axes, begin, end, and strides tuples "
                f"are all the same length.  However, the {first} argument ({given[first]}) has "
                f"{lengths[first]} elements, while the {name} argument ({given[name]}) has "
                f"{length} elements."
            )
    values = {name: arg.fields for name, arg in given.items() if isinstance(arg, Tuple)}
    if "axes" in values and ty.ndim != -1 and all(isinstance(a, IntImm) for a in values["axes"]):
        axes = normalize_axes(op_name(call), values["axes"], ty.ndim)
        if not axes:
            return ty
        dims = known_dims(ty)
        if dims is not None and len(values) == len(given):
            sliced = list(dims)
            strides = values.get("strides", (_ONE,) * len(axes))
            for i, axis in enumerate(axes):
                begin, end = values["begin"][i], values["end"][i]
                sliced[axis] = slice_length(
                    dims[axis], begin, end, strides[i], attributes(call).assume_inbound, ctx
                )
            return TensorType(ShapeExpr(tuple(sliced)), ty.dtype, ty.vdevice)
    return TensorType(None, ty.dtype, ty.vdevice, ty.ndim)


def slice_length(
    length: Expr,
    begin: Expr,
    end: Expr,
    stride: Expr,
    assume_inbound: bool,
    ctx: InferenceContext,
) -> Expr:
    """Return how many elements a slice of an axis of ``length`` elements has.

    As in Python, negative positions count from the end and positions past an end are moved to
    it, unless ``assume_inbound`` says that there are none. A literal length is never negative.
    """
    if isinstance(stride, IntImm) and stride.value == 0:
        raise ValueError("relax.strided_slice: a stride is 0; it must not be")
    backwards = isinstance(stride, IntImm) and stride.value < 0
    low, high = (-1, length - 1) if backwards else (0, length)
    first, last = (_position(bound, length, low, high, assume_inbound) for bound in (begin, end))
    if backwards:
        count = (first - last - stride - 1) // -stride
    else:
        count = (last - first + stride - 1) // stride
    simple = ctx.analyzer.simplify(count)
    return _ZERO if isinstance(simple, IntImm) and simple.value < 0 else simple


def _position(bound: Expr, length: Expr, low: int, high: Expr, assume_inbound: bool) -> Expr:
    if isinstance(bound, IntImm):
        if bound.value < 0:
            bound = length + bound
    elif not assume_inbound:
        bound = if_then_else(bound < 0, bound + length, bound)
    if assume_inbound:
        return bound
    if isinstance(bound, IntImm):
        bound = bound if bound.value >= low else IntImm(_INT64, low)
        if isinstance(high, IntImm):
            return IntImm(_INT64, min(bound.value, high.value))
        return Min(bound, high)
    return Min(Max(bound, IntImm(_INT64, low)), high)


_STRIDED_SLICE = declare(
    "strided_slice",
    ("x", "axes", "begin", "end", "strides"),
    _infer_strided_slice,
    attributes=("assume_inbound",),
    optional=1,
)

Indices = Expr | Sequence[Any]


def strided_slice(
    x: Expr,
    axes: Indices,
    begin: Indices,
    end: Indices,
    strides: Indices | None = None,
    assume_inbound: bool = False,
) -> Call:
    """Take every ``stride``-th element from ``begin`` up to, not including, ``end``.

    Parameters
    ----------
    x
        A tensor.
    axes
        Axes to slice; the others stay whole.
    begin, end
        Positions along each of them; negative ones count from the end.
    strides
        Steps, 1 when None; negative ones go backwards.
    assume_inbound
        Promise that all positions lie in the tensor, which keeps symbolic lengths simple.
    """
    given = [axes, begin, end] if strides is None else [axes, begin, end, strides]
    args = [_index_argument(item) for item in given]
    return call_op(_STRIDED_SLICE, x, *args, assume_inbound=bool(assume_inbound))


def _index_argument(item: Indices) -> Expr:
    if isinstance(item, tuple | list):
        return Tuple(tuple(prim_value(value) for value in item))
    return convert_to_expr(item)


# --- dynamic_strided_slice ----------------------------------------------------------------------


def _infer_dynamic_strided_slice(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    if ty.ndim == -1:
        return TensorType(None, ty.dtype, ty.vdevice)
    for i, name in enumerate(("begin", "end", "strides"), start=1):
        index = tensor_argument(call, i)
        dims = dims_of(index)
        if dims is None:
            raise InternalError(
                f"Dynamic strided slice requires the input {name} to have well-defined shape. "
                f"relax.dynamic_strided_slice got {call.args[i]} of type {index}; give it a shape "
                "with R.match_cast first"
            )
        if len(dims) != 1 or not isinstance(dims[0], IntImm) or dims[0].value != ty.ndim:
            raise InternalError(
                f"Dynamic strided slice requires the input {name} to be 1-D with one element for "
                f"each of the {ty.ndim} axes, got {index}"
            )
        if index.dtype is not None and index.dtype is not _INT64:
            raise TypeError(
                f"Dynamic strided_slice expects the input {name} to have int64 dtype. However, "
                f"{name} has dtype {dtype_name(index.dtype)}"
            )
    return TensorType(None, ty.dtype, ty.vdevice, ty.ndim)


_DYNAMIC_STRIDED_SLICE = declare(
    "dynamic_strided_slice",
    ("x", "begin", "end", "strides"),
    _infer_dynamic_strided_slice,
    FDataDependent=True,
)


def dynamic_strided_slice(x: Expr, begin: Expr, end: Expr, strides: Expr) -> Call:
    """:func:`strided_slice` of all axes with positions that are int64 tensors."""
    return call_op(_DYNAMIC_STRIDED_SLICE, x, begin, end, strides)
