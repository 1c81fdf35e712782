"""Builtins on tensors as a whole: shape, view, copy to a device.

Counterpart: the tensor functions of TVM's ``vm/builtin.cc``.

Examples
--------
>>> from relaxlab.runtime.tensor import tensor
>>> x = tensor([[1, 2, 3], [4, 5, 6]])
>>> view = reshape(x, ShapeTuple((3, 2)))
>>> view.array[0, 0] = 9
>>> int(x.array[0, 0]), tensor_to_shape(tensor([2, 3]))
(9, ShapeTuple((2, 3)))
"""

from typing import Any

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.device import Device
from relaxlab.runtime.dtype import DataTypeCode
from relaxlab.runtime.packed_func import register_global_func
from relaxlab.runtime.tensor import Tensor, empty
from relaxlab.runtime.vm.builtin.table import (
    as_dtype,
    as_int,
    as_shape,
    as_string,
    as_tensor,
    builtin,
    shown,
    wrong_tensor,
)

__all__: list[str] = []


@builtin("vm.builtin.shape_of")
def shape_of(value: Any, /) -> ShapeTuple:
    """Return a tensor's shape.

    Parameters
    ----------
    value
        A tensor.

    Raises
    ------
    TypeError
        If it is none.

    Notes
    -----
    Source: TVM's ``vm.builtin.shape_of``. TVM crashes on None.
    """
    if type(value) is Tensor:
        return value.shape
    if not isinstance(value, Tensor | np.ndarray):
        raise TypeError(f"vm.builtin.shape_of: shape_of expects a Tensor, got {shown(value)}")
    return as_tensor(value, "vm.builtin.shape_of", "value").shape


@builtin("vm.builtin.reshape")
def reshape(value: Any, shape: Any, /) -> Tensor:
    """Return a view of another shape on the same memory.

    It may need fewer bytes than there are (a view of the first elements), never more.

    Parameters
    ----------
    value
        A tensor in compact memory.
    shape
        The new shape; -1 does not stand for a computed size.

    Raises
    ------
    ValueError
        If the new shape needs more elements, or an extent is negative.
    InternalError
        If the memory is not compact.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.reshape``.
    """
    me = "vm.builtin.reshape"
    if type(value) is Tensor and type(shape) is ShapeTuple and value.array.flags.c_contiguous:
        try:  # the usual case: as many elements as before
            same = value.array.reshape(shape)
        except ValueError:
            pass
        else:
            if same.shape == shape:  # -1 and vector types go the long way
                return Tensor(same, value.dtype, value.device, value.byte_offset)
    if not isinstance(value, Tensor | np.ndarray):
        raise TypeError(f"{me}: reshape expects a Tensor and a shape, got {shown(value)}")
    source, dims = as_tensor(value, me, "value"), as_shape(shape, me, "shape")
    if not source.is_contiguous():
        raise wrong_tensor(me, "value", "compact memory", source)
    if dims and min(dims) < 0:
        raise ValueError(
            f"{me}: cannot view {shown(source)} as shape {tuple(dims)}: an extent is negative, and "
            "-1 does not stand for a computed size here"
        )
    if dims.numel() > source.size:
        raise ValueError(
            f"{me}: cannot view {shown(source)} as shape {tuple(dims)}: "
            f"its size is {source.size} elements, the new shape needs {dims.numel()}"
        )
    return source.view(dims)


@builtin("vm.builtin.tensor_to_shape")
def tensor_to_shape(value: Any, /) -> ShapeTuple:
    """Return the shape whose sizes are the elements of a one-dimensional integer tensor.

    Parameters
    ----------
    value
        A tensor of int16, int32 or int64.

    Raises
    ------
    InternalError
        If it is of another rank or type.
    TypeError
        If it is no tensor.

    Notes
    -----
    Source: TVM's ``vm.builtin.tensor_to_shape``.
    """
    me = "vm.builtin.tensor_to_shape"
    source = as_tensor(value, me, "value")
    if source.ndim != 1:
        raise wrong_tensor(me, "value", "ndim 1", source)
    if source.dtype.code != DataTypeCode.INT:
        raise wrong_tensor(me, "value", "signed integers", source)
    if source.dtype.bits not in (16, 32, 64) or source.dtype.lanes != 1:
        raise InternalError(f"{me}: Unknown type of sizes {source.dtype}: expected int16, 32 or 64")
    return ShapeTuple(source.array.tolist())


@builtin("vm.builtin.to_device")
def to_device(
    value: Any, device_type: Any, device_id: Any, memory_scope: str | None = None, /
) -> Tensor:
    """Return a copy on the given device; a copy even if it is there already.

    Parameters
    ----------
    value
        A tensor.
    device_type, device_id
        DLPack's numbers of the device.
    memory_scope
        ``""`` or ``"global"`` on the CPU.

    Raises
    ------
    InternalError
        If there is no such device here, or no such scope on it.
    ValueError
        If the number is of no kind of device.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.to_device``.
    """
    me = "vm.builtin.to_device"
    source = as_tensor(value, me, "value")
    number = as_int(device_type, me, "device type")
    device = Device.from_dlpack(number, as_int(device_id, me, "device id"))
    scope = None if memory_scope is None else as_string(memory_scope, me, "memory scope")
    return empty(source.shape, source.dtype, device, scope).copyfrom(source)


@register_global_func("runtime.TVMTensorCreateView")
def create_view(value: Any, shape: Any, dtype: Any, relative_byte_offset: Any, /) -> Tensor:
    """Return a tensor of another shape and dtype on the same memory."""
    me = "runtime.TVMTensorCreateView"
    source, dims = as_tensor(value, me, "value"), as_shape(shape, me, "shape")
    offset = as_int(relative_byte_offset, me, "byte offset")
    return source.view(dims, as_dtype(dtype, me, "dtype"), offset)
