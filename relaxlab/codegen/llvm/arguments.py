"""Calling a compiled kernel from Python, with every check there is.

This is the careful way: it explains what is wrong with an argument, copies arrays that are not
contiguous, notices arguments that overlap, and raises the error that a kernel ended with. The
fast way in ``fastcall.py`` comes here for everything out of the ordinary. Counterpart: the checks
in TVM's packed functions.

Examples
--------
>>> CompiledKernel.__name__
'CompiledKernel'
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxlab.codegen.llvm.callbacks import Callbacks
from relaxlab.codegen.llvm.kernel import CALLBACK_SLOT, MISFIT, POOL_SLOT, RESULT_SLOT, Plan
from relaxlab.codegen.llvm.machine import Linked
from relaxlab.codegen.llvm.sites import error_of
from relaxlab.codegen.llvm.threads import pool
from relaxlab.errors import InternalError
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor
from relaxlab.tirx.function import PrimFunc
from relaxlab.tirx.signature import Signature

__all__ = ["CompiledKernel"]

_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_STATE = ctypes.c_int64 * (POOL_SLOT + 1)


class CompiledKernel:
    """A kernel that can be called.

    Parameters
    ----------
    plan
        What it takes and what can go wrong.
    linked
        Its machine code.
    func
        The kernel itself.
    plainly
        Makes a version that does everything in order, for arguments that overlap.
    """

    def __init__(
        self,
        plan: Plan,
        linked: Linked,
        func: PrimFunc,
        plainly: "Callable[[], CompiledKernel] | None",
    ) -> None:
        self.plan = plan
        self.linked = linked
        self.callbacks = Callbacks(plan.callbacks, plan.name)
        self.signature = Signature(func, plan.name)
        self._function = _PROTOTYPE(linked.addresses["kernel"])
        #: Address of the pool of threads; 0 for a kernel that has nothing to share.
        self.pool = pool().address if plan.parts else 0
        self._plainly = plainly
        self._plain: CompiledKernel | None = None

    @property
    def minds_overlap(self) -> bool:
        """Whether arguments that overlap need another version of the kernel."""
        return self._plainly is not None

    def __call__(self, *args: Any) -> Any:
        """Run; see ``tirx.interp.Interpreter`` for arguments, results and errors."""
        bound = self.signature.bind(args)
        params = self.signature.func.params
        words: list[int] = []
        dims: list[int] = []
        keep: list[Any] = []
        copies: list[tuple[NDArray[Any], NDArray[Any]]] = []
        spans: list[tuple[int, int, bool]] = []
        for position, (param, spec) in enumerate(zip(params, self.plan.parameters, strict=True)):
            if spec.kind == "buffer":
                given = bound.arrays[param]
                array = self._contiguous(given, spec.written, spec.name)
                if array is not given and spec.written:
                    copies.append((given, array))
                keep.append(array)
                address = array.__array_interface__["data"][0]
                spans.append((address, address + array.nbytes, spec.written))
                words.append(address)
                dims.extend(array.shape)
            elif spec.kind == "number":
                words.append(_word(bound.sizes[param], spec.dtype))
            else:
                words.append(self._fields(args[position], keep))
        if self._plainly is not None and _overlap(spans):
            if self._plain is None:
                self._plain = self._plainly()
            return self._plain(*args)
        words.extend(dims)
        block = (ctypes.c_int64 * max(len(words), 1))(*words)
        state = _STATE()
        state[CALLBACK_SLOT] = self.callbacks.address
        state[POOL_SLOT] = self.pool
        before, self.callbacks.pending.arguments = self.callbacks.pending.arguments, args
        try:
            status = self._function(ctypes.addressof(block), ctypes.addressof(state))
        finally:
            self.callbacks.pending.arguments = before
        if status:
            self.fail(status, state)
        for given, array in copies:
            given[...] = array
        return self.result(state)

    def fail(self, status: int, state: Any) -> None:
        """Raise the error that a status stands for."""
        if status == MISFIT:
            raise InternalError(
                f"kernel {self.plan.name!r} refuses arguments that its signature accepts"
            )
        record = self.plan.sites[status - 1]
        if record[0] == "callback":
            raise self.callbacks.take_error()
        raise error_of(record, self.plan.name, state[:RESULT_SLOT])

    def fail_at(self, status: int, address: int) -> None:
        """Raise the error for a status and details at an address."""
        self.fail(status, _STATE.from_address(address))

    def result(self, state: Any) -> Any:
        """Return what the kernel returned, or None."""
        if self.plan.returns is None:
            return None
        dtype, word = DataType(self.plan.returns), state[RESULT_SLOT]
        if dtype.is_float:
            return dtype.numpy().type(struct.unpack("<d", struct.pack("<q", word))[0])
        if dtype.is_bool:
            return bool(word)
        return word & (2**64 - 1) if dtype.is_uint else word

    def _contiguous(self, array: NDArray[Any], written: bool, name: str) -> NDArray[Any]:
        if written and not array.flags.writeable:
            raise ValueError(
                f"kernel {self.plan.name!r} writes to {name}, but the array passed for it is "
                "read-only"
            )
        if array.flags.c_contiguous and array.flags.aligned:
            return array
        return np.require(array, requirements=["C", "A"]).copy()

    def _fields(self, value: Any, keep: list[Any]) -> int:
        """Return the address of the words that describe a tensor, as ``T.tvm_struct_get`` asks."""
        if value is None:
            return 0
        tensor = value if isinstance(value, Tensor) else Tensor(np.asarray(value))
        shape = np.array([*tensor.shape, 0], np.int64)
        strides = np.array([*tensor.strides, 0], np.int64)
        dtype = tensor.dtype
        words = (ctypes.c_int64 * 9)(
            0,
            tensor.array.__array_interface__["data"][0],
            shape.__array_interface__["data"][0],
            strides.__array_interface__["data"][0],
            tensor.ndim,
            dtype.code,
            dtype.bits,
            dtype.lanes,
            tensor.byte_offset,
        )
        keep.extend((tensor, shape, strides, words))
        return ctypes.addressof(words)


def _word(value: Any, dtype: str) -> int:
    if DataType(dtype).is_float:
        word: int = struct.unpack("<q", struct.pack("<d", float(value)))[0]
        return word
    number = int(value)
    # as 64 bits hold it, whatever the size
    return (number + 2**63) % 2**64 - 2**63


def _overlap(spans: Sequence[tuple[int, int, bool]]) -> bool:
    """Say whether memory that is written to belongs to another argument too."""
    for position, (start, end, written) in enumerate(spans):
        if not written or start == end:
            continue
        for other, (low, high, _) in enumerate(spans):
            if other != position and low < high and start < high and low < end:
                return True
    return False
