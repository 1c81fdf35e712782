"""Builtins for memory: storages, tensors cut out of them, and the pool.

Counterpart: the memory functions of TVM's ``vm/builtin.cc`` and ``memory_manager.cc``.

Examples
--------
>>> from relaxlab.runtime.device import cpu
>>> from relaxlab.runtime.storage import NaiveAllocator
>>> storage = NaiveAllocator(cpu()).storage(8)
>>> alloc_tensor(storage, 4, ShapeTuple((2,)), DataType("float32"))
Traceback (most recent call last):
relaxlab.errors.InternalError: cannot allocate a tensor of shape (2,) and dtype 'float32' at \
offset 4: it needs 8 bytes, but the region size of the storage is 8
"""

from typing import TYPE_CHECKING, Any

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.storage import Storage, clear_pools
from relaxlab.runtime.tensor import Tensor, require_cpu
from relaxlab.runtime.vm.builtin.table import (
    as_dtype,
    as_int,
    as_shape,
    as_string,
    as_tensor,
    builtin,
    refusal,
)

if TYPE_CHECKING:
    from relaxlab.runtime.vm.virtual_machine import VirtualMachine

__all__: list[str] = []


@builtin("vm.builtin.alloc_storage")
def alloc_storage(
    machine: "VirtualMachine",
    buffer_shape: ShapeTuple,
    device_index: int,
    dtype_hint: DataType,
    memory_scope: str,
    /,
) -> Storage:
    """Return a storage for ``buffer_shape`` elements on one of the machine's devices.

    The device index -1 means the host.

    Parameters
    ----------
    machine
        ``%vm``.
    buffer_shape
        Number of elements, as a shape.
    device_index
        Position in the machine's list of devices.
    dtype_hint
        Type of the elements: their size counts.
    memory_scope
        ``""`` or ``"global"``; the CPU has one scope.

    Raises
    ------
    InternalError
        If the device does not exist, has no such scope, or an extent is negative.
    MemoryError
        If there is not so much memory.
    TypeError
        If an argument is of the wrong kind, or one is missing.

    Notes
    -----
    Source: TVM's ``vm.builtin.alloc_storage``. TVM refuses -1.
    """
    me = "vm.builtin.alloc_storage"
    if not hasattr(machine, "allocators"):
        raise refusal(machine, me, "machine", "%vm")
    watch = None if machine.current is None else machine.current.watch
    allocators = machine.allocators if watch is None else watch.allocators(machine.allocators)
    index = as_int(device_index, me, "device index")
    if not -1 <= index < len(allocators) or not allocators:
        raise InternalError(
            f"{me}: device index {index} is out of range: the machine has {len(allocators)} "
            f"devices ({', '.join(map(str, machine.devices))})"
        )
    shape = as_shape(buffer_shape, me, "shape")
    hint = as_dtype(dtype_hint, me, "dtype")
    require_cpu(machine.devices[index], as_string(memory_scope, me, "memory scope"))
    if shape and min(shape) < 0:
        raise InternalError(f"{me}: cannot allocate shape {tuple(shape)}: an extent is negative")
    storage = allocators[index].storage(shape.numel() * hint.itemsize)
    if machine.zeroes_storage:
        storage.fill(0)
    return storage


@builtin("vm.builtin.alloc_tensor")
def alloc_tensor(
    storage: Storage,
    offset: int,
    shape: ShapeTuple,
    dtype: DataType,
    memory_scope: str | None = None,  # accepted and ignored, as on TVM's CPU
    /,
) -> Tensor:
    """Return a tensor on a storage, ``offset`` bytes after its start.

    Parameters
    ----------
    storage
        What :func:`alloc_storage` returned.
    offset
        In bytes.
    shape, dtype
        Of the tensor.
    memory_scope
        Accepted and ignored, as on TVM's CPU.

    Raises
    ------
    InternalError
        If the tensor would reach outside the block (which the pool rounds up to 4096 bytes), or no
        tensor in memory can have the dtype.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.alloc_tensor``. TVM lets a negative offset pass.
    """
    me = "vm.builtin.alloc_tensor"
    if not isinstance(storage, Storage):
        raise refusal(storage, me, "storage", "vm.Storage")
    return storage.tensor(
        as_shape(shape, me, "shape"), as_dtype(dtype, me, "dtype"), as_int(offset, me, "offset")
    )


@builtin("vm.builtin.memory_manager.clear")
def clear() -> None:
    """Return the free blocks of every pool to the system.

    Notes
    -----
    Source: TVM's ``vm.builtin.memory_manager.clear``. It checks nothing.
    """
    clear_pools()


@builtin("vm.builtin.ensure_zero_offset")
def ensure_zero_offset(value: Any, /) -> Tensor:
    """Return the tensor with byte offset 0: itself, the same memory, or a copy.

    Parameters
    ----------
    value
        A tensor; the same memory is kept where its offset is a multiple of 64.

    Raises
    ------
    TypeError
        If it is no tensor.

    Notes
    -----
    Source: TVM's ``vm.builtin.ensure_zero_offset``.
    """
    tensor = as_tensor(value, "vm.builtin.ensure_zero_offset", "value")
    if tensor.byte_offset == 0:
        return tensor
    if tensor.byte_offset % 64 == 0:
        return Tensor(tensor.array, tensor.dtype, tensor.device)
    return tensor.copyto(tensor.device)
