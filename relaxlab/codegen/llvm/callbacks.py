"""Python functions that compiled kernels call: BLAS through NumPy, and packed functions.

A kernel passes a block of 64-bit words; a record made when the kernel was compiled says what
they are. An error that the function raises waits here until the kernel has ended.
Counterpart: ``TVMFuncCall`` from generated code.

Examples
--------
>>> Callbacks([], "f").records
[]
"""

import ctypes
import struct
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxlab.codegen.llvm import few_rows
from relaxlab.errors import InternalError
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.packed_func import GLOBAL_FUNCTIONS
from relaxlab.runtime.tensor import Tensor

__all__ = ["Callbacks", "array_at"]

_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)


class _Pending(threading.local):
    """What a thread's running kernels wait for: an error, and the arguments they got."""

    error: BaseException | None = None
    arguments: tuple[Any, ...] = ()


class Callbacks:
    """The functions that one kernel calls.

    Parameters
    ----------
    records
        ``["matmul", dtype, batch loops]`` or ``["packed", name, kinds, result dtype]``.
    kernel
        What messages call the kernel.

    Attributes
    ----------
    address
        What a kernel calls; 0 if it calls nothing.
    """

    def __init__(self, records: Sequence[Sequence[Any]], kernel: str) -> None:
        self.records = list(records)
        self.kernel = kernel
        self.pending = _Pending()
        self._pointer = _PROTOTYPE(self._call) if records else None
        self.address = (
            ctypes.cast(self._pointer, ctypes.c_void_p).value or 0 if self._pointer else 0
        )

    def take_error(self) -> BaseException:
        """Return the error that ended the kernel, and forget it."""
        error, self.pending.error = self.pending.error, None
        return error or InternalError(f"kernel {self.kernel!r} was ended by a callback")

    def _call(self, words: int, number: int) -> int:
        try:
            record = self.records[number]
            if record[0] == "matmul":
                _matmul(words, *record[1:])
            else:
                self._packed(words, *record[1:])
        except BaseException as error:  # noqa: BLE001  # raised again when the kernel has ended
            self.pending.error = error
            return 1
        return 0

    def _packed(
        self, words: int, name: str, kinds: Sequence[Sequence[Any]], result: str | None
    ) -> None:
        function = GLOBAL_FUNCTIONS.find(name)
        if function is None:
            raise InternalError(
                f"kernel {self.kernel!r} calls the packed function {name!r}, which is not "
                "registered; register it with register_global_func"
            )
        given = list(_words(words, sum(_width(kind) for kind in kinds)))
        arguments = [self._argument(kind, given) for kind in kinds]
        answer = function(*arguments)
        if result is not None and not DataType(result).is_handle:
            block = (ctypes.c_int64 * 1).from_address(words)
            value = 0 if answer is None else answer
            if DataType(result).is_float:
                (block[0],) = struct.unpack("<q", struct.pack("<d", float(value)))
            else:
                block[0] = int(value)

    def _argument(self, kind: Sequence[Any], given: list[int]) -> Any:
        match kind:
            case ["text", text]:
                return text
            case ["parameter", position]:
                return self.pending.arguments[position]
            case ["int"]:
                return given.pop(0)
            case ["bool"]:
                return bool(given.pop(0))
            case ["float"]:
                return struct.unpack("<d", struct.pack("<q", given.pop(0)))[0]
            case ["tensor", dtype, rank]:
                address = given.pop(0)
                shape = [given.pop(0) for _ in range(rank)]
                element = DataType(dtype)
                return Tensor(array_at(address, shape, element.numpy()), element)
            case _:
                raise InternalError(f"a packed argument of kind {kind!r}")


def _width(kind: Sequence[Any]) -> int:
    if kind[0] == "tensor":
        return 1 + int(kind[2])
    return 0 if kind[0] in ("text", "parameter") else 1


@cache
def _block_type(count: int) -> Any:
    return ctypes.c_int64 * count


def _words(address: int, count: int) -> Sequence[int]:
    words: Sequence[int] = _block_type(count).from_address(address)
    return words


def array_at(
    address: int, shape: Sequence[int], dtype: np.dtype[Any], strides: Sequence[int] | None = None
) -> NDArray[Any]:
    """Return an array over memory that somebody else keeps alive.

    Parameters
    ----------
    address
        Of the first element.
    shape
        Extents.
    dtype
        Of the elements.
    strides
        In elements, never negative; dense when omitted.
    """
    if 0 in shape:
        return np.empty(shape, dtype)
    if strides is None:
        reach = int(np.prod(shape, dtype=np.int64))
        return np.ndarray(shape, dtype, _bytes_at(address, reach * dtype.itemsize))
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    memory = _bytes_at(address, reach * dtype.itemsize)
    return np.ndarray(shape, dtype, memory, 0, [s * dtype.itemsize for s in strides])


def _bytes_at(address: int, count: int) -> Any:
    return (ctypes.c_char * count).from_address(address)


def _matmul(words: int, dtype: str, batch: int) -> None:
    element = DataType(dtype).numpy()
    given = list(_words(words, 3 + (batch + 3) + 3 * (batch + 2)))
    addresses, extents = given[:3], given[3 : 6 + batch]
    *outer, rows, inner, columns = extents
    strides = given[6 + batch :]
    shapes = ([*outer, rows, inner], [*outer, inner, columns], [*outer, rows, columns])
    width = batch + 2
    left, right, out = (
        array_at(address, shape, element, strides[k * width : (k + 1) * width])
        for k, (address, shape) in enumerate(zip(addresses, shapes, strict=True))
    )
    if not few_rows.multiply(left, right, out):
        np.matmul(left, right, out=out)
