"""Allocation before memory is planned, and a marker. Counterpart: ``tvm.relax.op.builtin``.

Examples
--------
>>> from relaxlab.relax.shape import ShapeExpr
>>> alloc_tensor(ShapeExpr([2]), "float32", 0).args[3].value
'global'
"""

from collections.abc import Sequence
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.type import Type
from relaxlab.relax.literals import convert_to_expr, to_shape
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import op_name, type_of
from relaxlab.relax.op.memory.memory import dtype_argument, to_dtype_expr
from relaxlab.relax.op.unary import same_type, unary
from relaxlab.relax.type import ShapeType, TensorType
from relaxlab.runtime.dtype import DataType

__all__ = ["alloc_tensor", "stop_lift_params"]


def _infer_alloc_tensor(call: Call, ctx: InferenceContext) -> Type:
    shape = call.args[0]
    if not isinstance(type_of(shape), ShapeType):
        raise InternalError(f"{op_name(call)}: shape must be ShapeExpr, but got {shape}")
    return TensorType(shape, dtype_argument(call, 1))


_ALLOC_TENSOR = declare(
    "builtin.alloc_tensor",
    ("shape", "dtype", "runtime_device_index", "storage_scope"),
    _infer_alloc_tensor,
    TAllocator=True,
)


def alloc_tensor(
    shape: Expr | Sequence[Expr | int],
    dtype: DataType | str | Expr,
    runtime_device_index: Any,
    storage_scope: str | Expr = "global",
) -> Call:
    """A new tensor; the memory planner decides where it lives."""
    return call_op(
        _ALLOC_TENSOR,
        to_shape(shape),
        to_dtype_expr(dtype),
        convert_to_expr(runtime_device_index),
        convert_to_expr(storage_scope),
    )


stop_lift_params = unary(
    "builtin.stop_lift_params",
    same_type,
    "The tensor itself; what depends on it is not computed ahead of time.",
)
