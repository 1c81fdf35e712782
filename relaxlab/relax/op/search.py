"""Choosing and finding elements. Counterpart: ``tvm.relax.op.search``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> argmax(Var("x", TensorType([2, 3])), axis=1).attrs
Attrs({'axis': 1, 'keepdims': False})
"""

from collections.abc import Callable

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.type import Type
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import (
    attributes,
    binary_dtype,
    broadcast_shapes,
    broadcast_vdevice,
    dims_of,
    dtype_name,
    tensor_argument,
    with_dtype,
)
from relaxlab.relax.op.statistical import reduced_type
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

__all__ = ["argmax", "argmin", "bucketize", "where"]


def _infer_where(call: Call, ctx: InferenceContext) -> Type:
    condition, first, second = (tensor_argument(call, i) for i in range(3))
    if condition.dtype is not None and not condition.dtype.is_bool:
        raise TypeError(
            "Where requires the input condition tensor to have boolean dtype. However, the given "
            f"condition dtype is {dtype_name(condition.dtype)}"
        )
    dtype = binary_dtype(call, call.args[1], call.args[2])
    vdevice = broadcast_vdevice(call, condition, first, second)
    types = (condition, first, second)
    if first.shape is not None and condition.shape is first.shape is second.shape:
        return TensorType(first.shape, dtype, vdevice)
    ndim = -1 if any(ty.ndim == -1 for ty in types) else max(ty.ndim for ty in types)
    a, b, c = map(dims_of, types)
    if b is not None and c is not None:
        both = broadcast_shapes(call, ctx, b, c)
        if both is not None and a is not None:
            dims = broadcast_shapes(call, ctx, a, both)
            if dims is not None:
                return TensorType(ShapeExpr(dims), dtype, vdevice)
    return TensorType(None, dtype, vdevice, ndim)


_WHERE = declare("where", ("condition", "x1", "x2"), _infer_where)


def where(condition: Expr, x1: Expr, x2: Expr) -> Call:
    """Take an element of ``x1`` where ``condition`` (bool) holds, else of ``x2``."""
    return call_op(_WHERE, condition, x1, x2)


def _infer_arg_reduction(call: Call, ctx: InferenceContext) -> Type:
    axis = attributes(call).axis
    axes = None if axis is None else (axis,)
    ty = tensor_argument(call, 0)
    return reduced_type(call, ty, axes, attributes(call).keepdims, DataType("int64"))


def _arg_reduction(name: str, summary: str) -> Callable[..., Call]:
    op = declare(name, ("x",), _infer_arg_reduction, attributes=("axis", "keepdims"))

    def build(x: Expr, axis: int | None = None, keepdims: bool = False) -> Call:
        return call_op(op, x, axis=axis, keepdims=bool(keepdims))

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{summary} along one axis, or in the flattened tensor when it is None."
    return build


argmax = _arg_reduction("argmax", "Index of the (first) largest element")
argmin = _arg_reduction("argmin", "Index of the (first) smallest element")


def _infer_bucketize(call: Call, ctx: InferenceContext) -> Type:
    ty, boundaries = tensor_argument(call, 0), tensor_argument(call, 1)
    if boundaries.ndim not in (-1, 1):
        raise ValueError(f"Bucketize requires boundary to be 1-D array but got {boundaries.ndim}")
    return with_dtype(ty, DataType("int32" if attributes(call).out_int32 else "int64"))


_BUCKETIZE = declare(
    "bucketize",
    ("input_tensor", "boundaries"),
    _infer_bucketize,
    attributes=("out_int32", "right"),
)


def bucketize(
    input_tensor: Expr, boundaries: Expr, out_int32: bool = False, right: bool = False
) -> Call:
    """Index of the bucket each element falls into; ``boundaries`` is 1-D and ascending."""
    return call_op(
        _BUCKETIZE, input_tensor, boundaries, out_int32=bool(out_int32), right=bool(right)
    )
