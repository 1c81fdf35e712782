"""DLPack in both directions without a copy, narrow floats included.

NumPy speaks DLPack for its own element types only. ``bfloat16`` and the 8-bit floats come from
``ml_dtypes``, so for those the exchange goes through unsigned integers of the same width and the
element type inside the capsule is corrected. The layout of the capsule is DLPack's public ABI.
Counterpart: the DLPack functions of ``tvm_ffi``.

Examples
--------
>>> import ml_dtypes, numpy as np
>>> from relaxlab.runtime.tensor import tensor
>>> half = tensor(np.ones(2, ml_dtypes.bfloat16))
>>> array, dtype = import_dlpack(half)
>>> str(dtype), np.shares_memory(array, half.array)
('bfloat16', True)
"""

import ctypes
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.runtime.dtype import DataType, DataTypeCode, dtype_of

__all__ = ["export_dlpack", "import_dlpack"]

# The two names a capsule may have, and where its DLTensor begins: the versioned form starts with
# version (2 x uint32), manager context, deleter and flags (uint64).
_TENSOR_OFFSET: Final = {b"dltensor": 0, b"dltensor_versioned": 32}
# Inside DLTensor: data pointer (8), device (2 x int32), ndim (int32), then the dtype.
_DTYPE_OFFSET: Final = 20
_NUMPY_CODES: Final = frozenset(
    {DataTypeCode.INT, DataTypeCode.UINT, DataTypeCode.FLOAT, DataTypeCode.BOOL}
)


class _DLDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Capsule:
    """An exporter that hands out one capsule that we already hold."""

    def __init__(self, capsule: object, device: tuple[int, int]) -> None:
        self._capsule = capsule
        self._device = device

    def __dlpack__(self, **_: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


class _Memory:
    """The memory of another array, writable; the array lives as long as this does."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._owner = array
        self.__array_interface__ = {**array.__array_interface__, "version": 3}
        self.__array_interface__["data"] = (array.ctypes.data, False)


def export_dlpack(array: NDArray[Any], dtype: DataType, **options: Any) -> object:
    """Return a DLPack capsule of ``array``, whose elements are of type ``dtype``.

    ``options`` are those of ``__dlpack__``: stream, max_version, dl_device, copy.
    """
    if dtype.code in _NUMPY_CODES and dtype.lanes == 1 and dtype.bits >= 8:
        return array.__dlpack__(**options)
    if dtype.lanes != 1 or dtype.bits != 8 * array.itemsize:
        raise BufferError(f"DLPack cannot share a tensor of dtype {str(dtype)!r} without a copy")
    capsule = array.view(f"u{array.itemsize}").__dlpack__(**options)
    element = _element_type(capsule)
    element.code, element.bits = dtype.code, dtype.bits
    return capsule


def import_dlpack(source: Any) -> tuple[NDArray[Any], DataType]:
    """Return the memory of a DLPack exporter as an array, and its element type.

    The array is writable unless the exporter says that its memory is read-only.
    """
    device = tuple(source.__dlpack_device__())
    if device[0] != 1:
        raise BufferError(f"expected a DLPack tensor on the CPU (device type 1), got {device}")
    try:
        capsule = source.__dlpack__(max_version=(1, 0))
    except TypeError:  # an exporter older than the keyword
        capsule = source.__dlpack__()
    legacy = _capsule_name(capsule) == b"dltensor"
    element = _element_type(capsule)
    dtype = DataType.make(element.code, element.bits, element.lanes)
    native = dtype.code in _NUMPY_CODES
    if not native:
        element.code = DataTypeCode.UINT
    holder: Any = _Capsule(capsule, device)
    array: NDArray[Any] = np.from_dlpack(holder)
    if not native:
        array = array.view(dtype.numpy())
    if legacy and not array.flags.writeable:
        # a capsule of the old form cannot say "read-only", so NumPy assumes it; producers of
        # that time shared writable memory
        array = np.asarray(_Memory(array)).view(array.dtype)
    return array, dtype if not native else dtype_of(array.dtype)


def _capsule_name(capsule: object) -> bytes:
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    name = get_name(capsule)
    if name not in _TENSOR_OFFSET:
        raise BufferError(f"expected an unused DLPack capsule, got one named {name!r}")
    return bytes(name)


def _element_type(capsule: object) -> _DLDataType:
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = (
        ctypes.c_void_p,
        [ctypes.py_object, ctypes.c_char_p],
    )
    name = _capsule_name(capsule)
    address = get_pointer(capsule, name)
    return _DLDataType.from_address(address + _TENSOR_OFFSET[name] + _DTYPE_OFFSET)
