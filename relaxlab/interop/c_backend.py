"""The four C functions that kernels expect from TVM's runtime, for processes without it.

Kernels with a parallel loop or a large temporary buffer call functions of TVM's own runtime through
pointers, which stay null where only ``tvm_ffi`` is installed. These are plain versions of them:
parallel loops run on the calling thread, temporary buffers are ordinary memory. Counterpart: the
backend functions of TVM's C API.

Examples
--------
>>> sorted(PROVIDED)[:2]
['__TVMBackendAllocWorkspace', '__TVMBackendFreeWorkspace']
"""

import ctypes
from typing import Any, Final

__all__ = ["PROVIDED", "register_backend"]

_ALIGNMENT: Final = 64
_INT: Final = ctypes.c_int
_POINTER: Final = ctypes.c_void_p


class _ParallelGroup(ctypes.Structure):
    """What a parallel loop is told: how many tasks share the work."""

    _fields_ = (("sync_handle", _POINTER), ("num_task", ctypes.c_int32))


_Body = ctypes.CFUNCTYPE(_INT, _INT, _POINTER, _POINTER)

# Python's allocator: no table of live buffers has to be kept here
_malloc, _free = ctypes.pythonapi.PyMem_RawMalloc, ctypes.pythonapi.PyMem_RawFree
_malloc.argtypes, _malloc.restype = [ctypes.c_size_t], _POINTER
_free.argtypes, _free.restype = [_POINTER], None


def _parallel_launch(body: Any, data: int, _tasks: int) -> int:
    group = _ParallelGroup(None, 1)
    return int(body(0, ctypes.addressof(group), data))


def _parallel_barrier(_task: int, _group: int) -> int:
    return 0


def _alloc_workspace(_type: int, _device: int, size: int, _code: int, _bits: int) -> int | None:
    word = ctypes.sizeof(ctypes.c_size_t)
    # a size near the end of the address space would wrap around to a small one
    block = _malloc(size + _ALIGNMENT + word) if size < 2**62 else None
    if not block:
        return None
    start = -(-(block + word) // _ALIGNMENT) * _ALIGNMENT
    ctypes.c_size_t.from_address(start - word).value = block  # for the one who frees it
    return int(start)


def _free_workspace(_type: int, _device: int, start: int) -> int:
    word = ctypes.sizeof(ctypes.c_size_t)
    _free(ctypes.c_size_t.from_address(start - word).value)
    return 0


PROVIDED: Final = {
    "__TVMBackendParallelLaunch": ctypes.CFUNCTYPE(_INT, _Body, _POINTER, _INT)(_parallel_launch),
    "__TVMBackendParallelBarrier": ctypes.CFUNCTYPE(_INT, _INT, _POINTER)(_parallel_barrier),
    "__TVMBackendAllocWorkspace": ctypes.CFUNCTYPE(
        _POINTER, _INT, _INT, ctypes.c_uint64, _INT, _INT
    )(_alloc_workspace),
    "__TVMBackendFreeWorkspace": ctypes.CFUNCTYPE(_INT, _INT, _INT, _POINTER)(_free_workspace),
}
"""Name of the pointer in a library, and what it shall point to."""


def register_backend(library: ctypes.CDLL) -> None:
    """Have the loader of ``libtvm_ffi`` fill these pointers in libraries that it loads."""
    register = library.TVMFFIEnvModRegisterContextSymbol
    register.argtypes, register.restype = [ctypes.c_char_p, _POINTER], _INT
    for name, function in PROVIDED.items():
        register(name.encode(), ctypes.cast(function, _POINTER))
