"""Where tensors live: virtual devices and hints. Counterpart: part of ``tvm.relax.op.base``.

Examples
--------
>>> from relaxlab.ir import Target, Var, VDevice
>>> from relaxlab.relax.type import TensorType
>>> to_vdevice(Var("x", TensorType([2])), VDevice(Target("llvm"))).attrs.dst_vdevice.vdevice_id
0
"""

from typing import Any

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.global_info import VDevice
from relaxlab.ir.type import Type
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import attributes, tensor_argument
from relaxlab.relax.op.unary import same_type
from relaxlab.relax.type import TensorType
from relaxlab.runtime.device import Device, device

__all__ = ["hint_on_device", "to_vdevice"]


def _infer_to_vdevice(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    ndim = -1 if ty.shape is not None else ty.ndim
    return TensorType(ty.shape, ty.dtype, attributes(call).dst_vdevice, ndim)


_TO_VDEVICE = declare("to_vdevice", ("data",), _infer_to_vdevice, attributes=("dst_vdevice",))


def to_vdevice(data: Expr, dst_vdevice: VDevice) -> Call:
    """Copy a tensor to a virtual device of the module.

    Raises
    ------
    TypeError
        If ``dst_vdevice`` is no :class:`relaxlab.ir.VDevice`.
    """
    if not isinstance(dst_vdevice, VDevice):
        raise TypeError(f"to_vdevice needs a VDevice, got {dst_vdevice!r}")
    return call_op(_TO_VDEVICE, data, dst_vdevice=dst_vdevice)


_HINT_ON_DEVICE = declare(
    "hint_on_device",
    ("data",),
    same_type,
    attributes=("device_type", "index", "memory_scope"),
)


def hint_on_device(data: Expr, dst_vdevice: Any, memory_scope: str = "global") -> Call:
    """Suggest where a tensor should live; ``dst_vdevice`` is a device such as ``cpu(0)``."""
    place: Device = device(dst_vdevice) if isinstance(dst_vdevice, str) else dst_vdevice
    return call_op(
        _HINT_ON_DEVICE,
        data,
        device_type=place.dlpack_device_type(),
        index=place.index,
        memory_scope=memory_scope,
    )
