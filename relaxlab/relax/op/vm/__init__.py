"""What is left of memory and dynamic calls just before bytecode. Counterpart: ``tvm.relax.op.vm``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> kill_object(Var("x", TensorType([2]))).op.name
'relax.vm.kill_object'
"""

from typing import Any

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.type import Type
from relaxlab.relax.literals import convert_to_expr, to_shape
from relaxlab.relax.op.call_arguments import to_argument_tuple
from relaxlab.relax.op.closures import infer_any
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.effects import infer_void
from relaxlab.relax.op.inference import op_name, shape_argument
from relaxlab.relax.op.memory.memory import dtype_argument, to_dtype_expr
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

__all__ = ["alloc_storage", "alloc_tensor", "call_tir_dyn", "kill_object"]

_ALLOC_STORAGE = declare(
    "vm.alloc_storage",
    ("size", "runtime_device_index", "dtype", "storage_scope"),
    infer_any,
    TAllocator=True,
)


def alloc_storage(
    shape: Any,
    runtime_device_index: Any,
    dtype: DataType | str | Expr,
    storage_scope: str | Expr = "global",
) -> Call:
    """A storage; ``shape`` is its size in bytes, a shape of one dimension."""
    return call_op(
        _ALLOC_STORAGE,
        to_shape(shape),
        convert_to_expr(runtime_device_index),
        to_dtype_expr(dtype),
        convert_to_expr(storage_scope),
    )


def _infer_alloc_tensor(call: Call, ctx: InferenceContext) -> Type:
    shape = shape_argument(call, 2, f"{op_name(call)} expects the shape to be a Shape")
    dtype = dtype_argument(call, 3)
    if shape.values is None:
        return TensorType(None, dtype, ndim=shape.ndim)
    return TensorType(ShapeExpr(shape.values), dtype)


_ALLOC_TENSOR = declare(
    "vm.alloc_tensor",
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


_KILL_OBJECT = declare("vm.kill_object", ("obj",), infer_void, pure=False)
_CALL_TIR_DYN = declare("vm.call_tir_dyn", ("func", "args"), infer_void, pure=False)


def kill_object(obj: Expr) -> Call:
    """Drop a register's value."""
    return call_op(_KILL_OBJECT, obj)


def call_tir_dyn(func: Expr, args: Any) -> Call:
    """Call a kernel with a shape, whose values become scalar arguments."""
    return call_op(_CALL_TIR_DYN, func, to_argument_tuple(args))
