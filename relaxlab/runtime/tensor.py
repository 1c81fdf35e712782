"""Tensors: typed views of memory on a device.

A tensor is what kernels read and write. It wraps a NumPy array (on the CPU) and adds what NumPy
lacks: a device, TVM's element types, and an offset into the storage it was cut from. Programs
that come from TVM find the methods they know; code that must not copy uses ``tensor.array``.
Counterpart: ``tvm.runtime.Tensor``.

Examples
--------
>>> import numpy as np
>>> x = tensor(np.arange(3, dtype="float32"))
>>> x.shape, str(x.dtype), str(x.device)
(ShapeTuple((3,)), 'float32', 'cpu:0')
>>> x.copyfrom([5, 6, 7]).numpy()
array([5., 6., 7.], dtype=float32)
>>> np.shares_memory(np.from_dlpack(x), x.array)
True
"""

from collections.abc import Iterable
from typing import Any, Final, Union

import numpy as np
from numpy.typing import NDArray

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.device import Device, cpu
from relaxlab.runtime.dlpack import export_dlpack, import_dlpack
from relaxlab.runtime.dtype import DataType, dtype_of

__all__ = ["ShapeTuple", "Tensor", "empty", "from_dlpack", "tensor"]

_CPU: Final = cpu()


class Tensor:
    """A typed, shaped view of memory.

    Parameters
    ----------
    array
        The memory; wrapped, never copied. For a vector dtype such as ``float32x4`` the last
        axis holds the lanes.
    dtype
        Element type; the array's own when omitted.
    device
        Where the memory is.
    byte_offset
        Bytes between the start of the storage and the first element.

    Attributes
    ----------
    array : numpy.ndarray
        The memory itself: writing to it writes to the tensor.
    shape : ShapeTuple
    dtype : DataType
    device : Device
    byte_offset : int
    """

    __slots__ = ("__weakref__", "array", "byte_offset", "device", "dtype", "shape")

    def __init__(
        self,
        array: NDArray[Any],
        dtype: DataType | None = None,
        device: Device = _CPU,
        byte_offset: int = 0,
    ) -> None:
        self.array = array
        if dtype is None:
            self.dtype = _element_type(array)
            self.shape = tuple.__new__(ShapeTuple, array.shape)
        else:
            self.dtype = dtype
            lanes_axis = dtype.lanes != 1
            self.shape = tuple.__new__(ShapeTuple, array.shape[:-1] if lanes_axis else array.shape)
        self.device = device
        self.byte_offset = byte_offset

    @classmethod
    def from_bytes(
        cls, data: bytes, shape: Iterable[int], dtype: DataType | str = "float32"
    ) -> "Tensor":
        """Return a new tensor with the elements of ``data`` (row-major, little-endian).

        Raises
        ------
        ValueError
            If ``data`` has not the bytes of ``shape`` and ``dtype``.
        """
        element, dims = DataType(dtype), ShapeTuple(shape)
        # a bytearray is a copy that may be written to
        memory = np.frombuffer(bytearray(data), np.uint8)
        array = view_of_bytes(memory, dims, element, 0)
        if array.nbytes != len(data):
            raise ValueError(
                f"a tensor of shape {tuple(dims)} and dtype {str(element)!r} has {array.nbytes} "
                f"bytes, got {len(data)}"
            )
        return cls(array, element)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.shape.numel()

    @property
    def nbytes(self) -> int:
        """Bytes of the elements when packed: ``(size * bits * lanes + 7) // 8``."""
        return (self.size * self.dtype.bits * self.dtype.lanes + 7) // 8

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance between neighbours along each axis, in elements."""
        width = self.array.itemsize * self.dtype.lanes
        return tuple(stride // width for stride in self.array.strides[: self.ndim])

    def is_contiguous(self) -> bool:
        """Whether the elements are in row-major order without gaps."""
        return bool(self.array.flags.c_contiguous)

    def same_as(self, other: object) -> bool:
        """Whether ``other`` is this very object."""
        return self is other

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self.array.ctypes.data)

    def numpy(self) -> NDArray[Any]:
        """Return a copy of the elements: later writes to the tensor do not show in it.

        Use ``tensor.array`` or ``numpy.from_dlpack(tensor)`` for the memory itself.
        """
        return np.array(self.array, order="C")

    def copyfrom(self, source: Any) -> "Tensor":
        """Overwrite the elements with ``source`` (tensor, array or nested lists) and return self.

        Raises
        ------
        ValueError
            If the shapes differ.
        """
        values = source.array if isinstance(source, Tensor) else np.asarray(source)
        if values.shape != self.array.shape:
            raise ValueError(
                f"copyfrom: expected an array of shape {tuple(self.array.shape)}, "
                f"got shape {tuple(values.shape)}"
            )
        self.array[...] = values
        return self

    def copyto(self, target: Union["Tensor", Device], mem_scope: str | None = None) -> "Tensor":
        """Copy the elements into ``target``, or into a new tensor on that device."""
        if isinstance(target, Tensor):
            return target.copyfrom(self)
        return empty(self.shape, self.dtype, target, mem_scope).copyfrom(self)

    def view(
        self, shape: Iterable[int], dtype: DataType | str | None = None, byte_offset: int = 0
    ) -> "Tensor":
        """Return a tensor on the same memory with another shape.

        Parameters
        ----------
        shape
            New shape; it may need fewer bytes than there are, never more.
        dtype
            New element type; the same when omitted.
        byte_offset
            Where the view begins, in bytes after this tensor's first element.

        Raises
        ------
        ValueError
            If the view would reach past the end, or the tensor is not contiguous.
        """
        element = self.dtype if dtype is None else DataType(dtype)
        dims = ShapeTuple(shape)
        if not self.is_contiguous():
            raise ValueError(f"a view needs compact memory, got strides {self.strides}")
        array = view_of_bytes(self.array.reshape(-1).view(np.uint8), dims, element, byte_offset)
        return Tensor(array, element, self.device, self.byte_offset + byte_offset)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if dtype is not None and np.dtype(dtype) != self.array.dtype:
            if copy is False:
                raise ValueError(f"a change of dtype to {np.dtype(dtype)} needs a copy")
            return self.array.astype(dtype)
        return self.array.copy() if copy else self.array

    def __dlpack__(self, **options: Any) -> object:
        return export_dlpack(self.array, self.dtype, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device.dlpack_device_type(), self.device.index)

    def __repr__(self) -> str:
        return (
            f'Tensor(shape={tuple(self.shape)}, dtype="{self.dtype}", device={self.device})\n'
            f"{self.array!r}"
        )


def tensor(
    values: Any, device: Device | None = None, mem_scope: str | None = None, *, dtype: Any = None
) -> Tensor:
    """Return a new tensor holding a copy of ``values`` (an array, a tensor, nested lists).

    Parameters
    ----------
    values
        What to copy.
    device
        Where the tensor shall live; the CPU when omitted.
    mem_scope
        Memory scope; only ``"global"`` exists on the CPU.
    dtype
        Element type to convert to; that of the values when omitted.
    """
    if isinstance(values, Tensor):
        source, element = values.array, values.dtype
    else:
        source = np.asarray(values)
        element = _element_type(source, native_order=False)
    if dtype is not None:
        element = DataType(dtype)
    shape = source.shape[:-1] if element.lanes != 1 else source.shape
    return empty(shape, element, device, mem_scope).copyfrom(source)


def empty(
    shape: Iterable[int],
    dtype: DataType | str = "float32",
    device: Device | None = None,
    mem_scope: str | None = None,
) -> Tensor:
    """Return a new tensor with undefined contents.

    Raises
    ------
    ValueError
        If an extent of ``shape`` is negative.
    """
    device = require_cpu(device or _CPU, mem_scope)
    element = DataType(dtype)
    dims = ShapeTuple(shape)
    if min(dims, default=0) < 0:
        raise ValueError(f"a tensor cannot have a negative extent, got shape {tuple(dims)}")
    full: tuple[int, ...] = dims
    if element.lanes != 1:
        full = (*dims, element.lanes)
    return Tensor(np.empty(full, element.with_lanes(1).numpy()), element, device)


def from_dlpack(source: Any) -> Tensor:
    """Return a tensor on the memory of any DLPack exporter, without a copy."""
    array, dtype = import_dlpack(source)
    return Tensor(array, dtype)


def require_cpu(device: Device, mem_scope: str | None = None) -> Device:
    """Return ``device`` if memory can be had there, else raise.

    Raises
    ------
    InternalError
        If there is no allocator for the device, or no such memory scope on it.
    """
    if device.type != "cpu":
        state = "it is present, but only CPU memory is supported" if device.exist else "none found"
        raise InternalError(f"cannot allocate on {device}: {state}; use cpu(0)")
    if mem_scope not in (None, "", "global"):
        raise InternalError(
            f"cannot allocate in memory scope {mem_scope!r} on {device}: "
            "the CPU has one scope, 'global'"
        )
    return device


def view_of_bytes(
    memory: NDArray[np.uint8], shape: ShapeTuple, dtype: DataType, byte_offset: int
) -> NDArray[Any]:
    """Return an array of ``shape`` on ``memory``, which must be contiguous bytes.

    Raises
    ------
    ValueError
        If it would reach outside the memory.
    """
    full: tuple[int, ...] = shape
    if dtype.lanes != 1:
        full = (*shape, dtype.lanes)
    element = dtype.with_lanes(1).numpy()
    needed = element.itemsize * dtype.lanes * shape.numel()
    if byte_offset < 0 or byte_offset + needed > memory.nbytes or min(shape, default=0) < 0:
        raise ValueError(
            f"a tensor of shape {tuple(shape)} and dtype {str(dtype)!r} needs {needed} bytes "
            f"at offset {byte_offset}, but the memory has {memory.nbytes} bytes"
        )
    return np.ndarray(full, element, memory, byte_offset)


def _element_type(array: NDArray[Any], *, native_order: bool = True) -> DataType:
    if native_order and not array.dtype.isnative:
        raise TypeError(
            f"a tensor needs elements in native byte order, got {array.dtype.str!r}; "
            "convert with array.astype(array.dtype.newbyteorder('='))"
        )
    try:
        return dtype_of(array.dtype)
    except ValueError:
        raise TypeError(f"no tensor element type for NumPy dtype {str(array.dtype)!r}") from None
