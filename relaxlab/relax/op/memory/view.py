"""Views: a tensor's memory under another shape, dtype or offset.

Counterpart: ``tvm.relax.op.memory.view``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> len(view(Var("x", TensorType([4])), (2, 2)).args)
4
"""

from collections.abc import Sequence
from typing import Any

from relaxlab.ir.expr import Call, Expr, GenericConst, Tuple, Var
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import AnyType, PrimType, Type, is_void
from relaxlab.relax.literals import convert_to_expr, to_shape
from relaxlab.relax.op.closures import null_value
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import dims_of, tensor_argument, type_of
from relaxlab.relax.op.memory.memory import to_dtype_expr
from relaxlab.relax.op.statistical import element_count
from relaxlab.relax.op.unary import same_type, unary
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import ShapeType, TensorType
from relaxlab.runtime.dtype import DataType

__all__ = ["ensure_zero_offset", "view"]

_ZERO = IntImm(DataType("int64"), 0)


def _view_dtype(call: Call, data: TensorType, ctx: InferenceContext) -> DataType | None:
    arg: Expr | None = call.args[2]
    while isinstance(arg, Var):
        arg = ctx.lookup_binding(arg)
    if isinstance(arg, GenericConst) and isinstance(arg.value, DataType):
        return arg.value
    if isinstance(type_of(call.args[2]), AnyType) or is_void(call.args[2].ty):
        return data.dtype  # null_value(): keep it
    raise TypeError(
        "relax.memory.view expects the dtype argument to be a dtype constant, but "
        f"{call} passes {call.args[2]} of type {call.args[2].ty!r}"
    )


def _infer_view(call: Call, ctx: InferenceContext) -> Type:
    data = tensor_argument(call, 0)
    shape_ty = type_of(call.args[1])
    dtype = _view_dtype(call, data, ctx)
    if is_void(shape_ty):
        if data.shape is None:
            result = TensorType(None, dtype, data.vdevice, data.ndim)
        else:
            result = TensorType(data.shape, dtype, data.vdevice)
    elif not isinstance(shape_ty, ShapeType):
        raise TypeError(
            "relax.memory.view expects the shape argument to be a Shape, but "
            f"{call} passes {call.args[1]} of type {shape_ty!r}"
        )
    elif shape_ty.values is None:
        result = TensorType(None, dtype, data.vdevice, shape_ty.ndim)
    else:
        result = TensorType(ShapeExpr(shape_ty.values), dtype, data.vdevice)
    _check_bounds(call, data, result, ctx)
    return result


def _check_bounds(call: Call, data: TensorType, result: TensorType, ctx: InferenceContext) -> None:
    offset: Expr = call.args[3]
    if is_void(offset.ty):
        offset = _ZERO
    if not isinstance(offset.ty, PrimType) or offset.dtype is not _ZERO.dtype:
        raise TypeError(
            "relax.memory.view expects the relative byte offset to be an int64 scalar, but "
            f"{call} passes {offset} of type {offset.ty!r}"
        )
    if isinstance(offset, IntImm) and offset.value < 0:
        raise ValueError(
            f"A view cannot begin before the array being viewed.  However, expression {call} has "
            f"a relative byte offset of {offset}"
        )
    old, new = dims_of(data), dims_of(result)
    if old is None or new is None or data.dtype is None or result.dtype is None:
        return
    have = ctx.analyzer.simplify(element_count(old) * data.dtype.itemsize)
    needed = ctx.analyzer.simplify(offset + element_count(new) * result.dtype.itemsize)
    if ctx.analyzer.can_prove(needed > have):
        raise ValueError(
            "Views into an array must not exceed the bounds of the array being viewed.  However, "
            f"expression {call} attempted to create view of type {result!r} with relative byte "
            f"offset {offset}, viewing into the array {call.args[0]} of type {data}.  The end of "
            f"the view would occur at byte {needed}, relative to the start of array "
            f"{call.args[0]}, but {call.args[0]} is only {have} long."
        )


_VIEW = declare(
    "memory.view",
    ("x", "shape", "dtype", "relative_byte_offset"),
    _infer_view,
    RequiresArgumentShapes=False,
)


def view(
    data: Expr,
    shape: Expr | Sequence[Expr | int] | None = None,
    dtype: Any = None,
    relative_byte_offset: Any = None,
) -> Call:
    """The memory of a tensor seen differently, without a copy.

    Parameters
    ----------
    data
        A tensor.
    shape
        New shape; None keeps it.
    dtype
        New element type; None keeps it.
    relative_byte_offset
        Where the view begins, in bytes from the beginning of ``data``; None means 0.
    """
    nothing = Tuple(())
    return call_op(
        _VIEW,
        data,
        nothing if shape is None else to_shape(shape),
        null_value() if dtype is None else to_dtype_expr(dtype),
        nothing if relative_byte_offset is None else convert_to_expr(relative_byte_offset),
    )


ensure_zero_offset = unary(
    "memory.ensure_zero_offset",
    same_type,
    "The tensor itself if its data begin at its memory, else a copy.",
)
