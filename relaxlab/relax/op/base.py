"""The structural operators under one name. Counterpart: ``tvm.relax.op.base``."""

from relaxlab.relax.op.closures import (
    invoke_closure,
    invoke_pure_closure,
    make_closure,
    null_value,
)
from relaxlab.relax.op.effects import assert_op, print
from relaxlab.relax.op.kernel_calls import call_tir, call_tir_inplace, call_tir_with_grad
from relaxlab.relax.op.packed_calls import (
    call_builtin_with_ctx,
    call_dps_packed,
    call_inplace_packed,
    call_packed,
    call_pure_packed,
    call_py_func,
)
from relaxlab.relax.op.placement import hint_on_device, to_vdevice
from relaxlab.relax.op.shapes import shape_of, shape_to_tensor, size, tensor_to_shape

__all__ = [
    "assert_op",
    "call_builtin_with_ctx",
    "call_dps_packed",
    "call_inplace_packed",
    "call_packed",
    "call_pure_packed",
    "call_py_func",
    "call_tir",
    "call_tir_inplace",
    "call_tir_with_grad",
    "hint_on_device",
    "invoke_closure",
    "invoke_pure_closure",
    "make_closure",
    "null_value",
    "print",
    "shape_of",
    "shape_to_tensor",
    "size",
    "tensor_to_shape",
    "to_vdevice",
]
