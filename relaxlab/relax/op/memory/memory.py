"""Planned memory: storages, tensors inside them, and their ends.

Counterpart: ``tvm.relax.op.memory.memory``. The memory planner emits these; a later pass lowers
them to ``relax.vm.*``.

Examples
--------
>>> from relaxlab.relax.shape import ShapeExpr
>>> alloc_storage(ShapeExpr([64]), 0, "global", "uint8").args[2].value
'global'
"""

from typing import Any

from relaxlab.ir.expr import Call, Expr, GenericConst
from relaxlab.ir.type import Type
from relaxlab.relax.literals import convert_to_expr, dtype_const, to_shape
from relaxlab.relax.op.closures import infer_any
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.effects import infer_void
from relaxlab.relax.op.inference import op_name, shape_argument
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

__all__ = ["alloc_storage", "alloc_tensor", "kill_storage", "kill_tensor"]


def dtype_argument(call: Call, index: int) -> DataType:
    """Return the data type held by a constant argument; TypeError for anything else."""
    arg = call.args[index]
    if isinstance(arg, GenericConst) and isinstance(arg.value, DataType):
        return arg.value
    raise TypeError(f"{op_name(call)} expects argument {index} to be a dtype, got {arg}")


def to_dtype_expr(dtype: DataType | str | Expr) -> Expr:
    """Return a data type argument."""
    return dtype if isinstance(dtype, Expr) else dtype_const(dtype)


_ALLOC_STORAGE = declare(
    "memory.alloc_storage",
    ("total_space", "virtual_device_index", "storage_scope", "dtype"),
    infer_any,
    TAllocator=True,
)


def alloc_storage(
    size: Any, virtual_device_index: Any, storage_scope: str | Expr, dtype: DataType | str | Expr
) -> Call:
    """A storage of ``size`` bytes (a shape of one dimension)."""
    return call_op(
        _ALLOC_STORAGE,
        to_shape(size),
        convert_to_expr(virtual_device_index),
        convert_to_expr(storage_scope),
        to_dtype_expr(dtype),
    )


def _infer_alloc_tensor(call: Call, ctx: InferenceContext) -> Type:
    shape_argument(call, 2, f"{op_name(call)} expects the shape to be a Shape")
    return TensorType(call.args[2], dtype_argument(call, 3))


_ALLOC_TENSOR = declare(
    "memory.alloc_tensor",
    ("storage", "offset", "shape", "dtype", "runtime_device_index"),
    _infer_alloc_tensor,
    TAllocator=True,
)


def alloc_tensor(
    storage: Expr,
    offset: Any,
    shape: Any,
    dtype: DataType | str | Expr,
    runtime_device_ind: Any = 0,
) -> Call:
    """A tensor at ``offset`` bytes inside a storage."""
    return call_op(
        _ALLOC_TENSOR,
        storage,
        convert_to_expr(offset),
        to_shape(shape),
        to_dtype_expr(dtype),
        convert_to_expr(runtime_device_ind),
    )


_KILL_STORAGE = declare("memory.kill_storage", ("storage",), infer_void, pure=False)
_KILL_TENSOR = declare("memory.kill_tensor", ("tensor",), infer_void, pure=False)


def kill_storage(storage: Expr) -> Call:
    """Say that a storage is not used any more."""
    return call_op(_KILL_STORAGE, storage)


def kill_tensor(tensor: Expr) -> Call:
    """Say that a tensor is not used any more."""
    return call_op(_KILL_TENSOR, tensor)
