"""Memory of the machine: blocks, the two allocators, and storages.

A storage owns one block of memory and tensors are cut out of it. The block goes back to its
allocator when nothing can see it any more: neither the storage, nor a tensor, nor a NumPy view
of a tensor. Counterpart: TVM's ``memory_manager`` and ``vm.Storage``.

Examples
--------
>>> pool = PooledAllocator(Device("cpu"))
>>> storage = pool.storage(100)
>>> storage.nbytes, pool.free_blocks()
(4096, [])
>>> t = storage.tensor(ShapeTuple((2,)), DataType("float32"), 8)
>>> del storage                 # the tensor still needs the block
>>> pool.free_blocks()
[]
>>> del t
>>> pool.free_blocks()
[4096]
"""

import ctypes
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, Final, Literal, Protocol, cast
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.describe import Describer, StorageValue
from relaxlab.runtime.device import Device
from relaxlab.runtime.dtype import DataType, DataTypeCode
from relaxlab.runtime.tensor import Tensor, require_cpu

__all__ = [
    "Allocator",
    "AllocatorKind",
    "NaiveAllocator",
    "PooledAllocator",
    "Storage",
    "allocator_for",
    "clear_pools",
    "layout",
]

AllocatorKind = Literal["naive", "pooled"]

PAGE_BYTES: Final = 4096
_ALIGNMENT: Final = 64
_BYTE: Final = np.dtype(np.uint8)
_new_tensor: Final = Tensor.__new__


class Block:
    """A piece of memory that an allocator hands out again and again."""

    __slots__ = ("__weakref__", "memory", "nbytes")

    def __init__(self, nbytes: int) -> None:
        raw = np.empty(nbytes + _ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % _ALIGNMENT
        # NumPy looks through arrays of arrays (and memoryviews) for the last owner. Views of a
        # lease must hold the lease itself, so what lies below it has to be something else.
        memory = (ctypes.c_char * nbytes).from_buffer(cast(Any, raw), start)
        self.memory = cast(Any, memory)
        self.nbytes = nbytes


class _Lease(np.ndarray[Any, np.dtype[np.uint8]]):
    """The bytes of a block as long as anybody sees them; every view has it as its base."""

    # of the class, so that views of a lease have none and give nothing back
    storage_block: Block | None = None
    allocator: "Allocator | None" = None

    def __del__(self) -> None:
        if self.allocator is not None and self.storage_block is not None:
            self.allocator.give_back(self.storage_block)


class Storage:
    """One block of memory, from which tensors are cut.

    Attributes
    ----------
    nbytes
        Size of the block; the pooled allocator rounds up.
    device
        Where it is.
    """

    __slots__ = ("__weakref__", "_block", "_lease", "device", "nbytes")

    def __init__(self, block: Block, allocator: "Allocator") -> None:
        lease = _Lease((block.nbytes,), _BYTE, block.memory)
        lease.storage_block, lease.allocator = block, allocator
        self._lease = lease
        self._block = block
        self.nbytes = block.nbytes
        self.device = allocator.device

    def tensor(self, shape: ShapeTuple, dtype: DataType, byte_offset: int = 0) -> Tensor:
        """Return a tensor on the bytes from ``byte_offset`` on; its contents are what is there.

        Raises
        ------
        InternalError
            If it would reach outside the storage, or no tensor can have that dtype.
        """
        return self.cut(shape, dtype, byte_offset, layout(shape, dtype))

    def cut(
        self,
        shape: ShapeTuple,
        dtype: DataType,
        byte_offset: int,
        known_layout: tuple[tuple[int, ...], np.dtype[Any], int],
    ) -> Tensor:
        """Return what :meth:`tensor` does, given ``layout(shape, dtype)``."""
        full, element, needed = known_layout
        if byte_offset < 0 or byte_offset + needed > self.nbytes:
            raise InternalError(
                f"cannot allocate a tensor of shape {tuple(shape)} and dtype {str(dtype)!r} at "
                f"offset {byte_offset}: it needs {needed} bytes, but the region size of the "
                f"storage is {self.nbytes}"
            )
        array: NDArray[Any] = np.ndarray(full, element, self._lease, byte_offset)
        # what Tensor(...) does, without asking the array for what is known
        tensor = _new_tensor(Tensor)
        tensor.array = array
        tensor.dtype = dtype
        tensor.shape = shape
        tensor.device = self.device
        tensor.byte_offset = byte_offset
        return tensor

    def fill(self, byte: int) -> None:
        """Set every byte; makes the contents of fresh memory predictable."""
        self._lease[...] = byte

    def describe(self, describer: Describer) -> StorageValue:
        """Return what an event says about the storage."""
        return StorageValue(
            storage=describer.number(self._lease),
            block=describer.number(self._block, "block"),
            nbytes=self.nbytes,
            device=str(self.device),
        )

    def __repr__(self) -> str:
        return f"Storage({self.nbytes} bytes on {self.device})"


class Allocator(Protocol):
    """Where blocks come from and go back to."""

    device: Device

    def storage(self, nbytes: int) -> Storage:
        """Return a storage of at least ``nbytes``."""

    def give_back(self, block: Block) -> None:
        """Take a block that nothing sees any more."""


class Borrower(Protocol):
    """Who keeps storages that are not in use; see :meth:`PooledAllocator.lend`."""

    def take_back(self) -> None:
        """Let go of the storages that are not in use."""


class NaiveAllocator:
    """Asks the system for every block, of exactly the size wanted, and frees it at once."""

    def __init__(self, device: Device) -> None:
        self.device = require_cpu(device)

    def storage(self, nbytes: int) -> Storage:
        """Return a storage of exactly ``nbytes``."""
        return Storage(_new_block(nbytes, self.device), self)

    def give_back(self, block: Block) -> None:
        """Drop the block."""


class PooledAllocator:
    """Keeps freed blocks and hands them out again, the last freed first.

    Sizes are rounded up to multiples of 4096 bytes, and only a block of exactly that size is
    reused.
    """

    def __init__(self, device: Device) -> None:
        self.device = require_cpu(device)
        self._free: dict[int, list[Block]] = {}
        # collections of objects that hold blocks which nobody uses, by size of block
        self._lent: dict[int, WeakSet[Borrower]] = {}
        _POOLS.add(self)

    def storage(self, nbytes: int) -> Storage:
        """Return a storage of ``nbytes`` rounded up; contents are left from the last user."""
        size = -(-nbytes // PAGE_BYTES) * PAGE_BYTES
        blocks = self._free.get(size)
        if not blocks and size in self._lent:
            self._take_back(size)
            blocks = self._free.get(size)
        if blocks:
            block = blocks.pop()
        else:
            try:
                block = _new_block(size, self.device)
            except MemoryError:
                self.clear()
                block = _new_block(size, self.device)
        return Storage(block, self)

    def give_back(self, block: Block) -> None:
        """Keep the block for the next storage of its size."""
        self._free.setdefault(block.nbytes, []).append(block)

    def lend(self, borrower: Borrower, sizes: Iterable[int]) -> None:
        """Let somebody hold storages that are free as far as anybody can see.

        They are taken back when a block of one of the sizes is wanted, or somebody looks.
        """
        for size in sizes:
            self._lent.setdefault(size, WeakSet()).add(borrower)

    def _take_back(self, size: int) -> None:
        for borrower in list(self._lent[size]):
            borrower.take_back()

    def clear(self) -> None:
        """Return every free block to the system."""
        for size in list(self._lent):
            self._take_back(size)
        self._free.clear()

    def free_blocks(self) -> list[int]:
        """Return the sizes of the free blocks, those of one size in order of their freeing."""
        for size in list(self._lent):
            self._take_back(size)
        return [block.nbytes for blocks in self._free.values() for block in blocks]


# The one piece of process-wide state: pools are shared by all machines, as TVM's are, so that
# ``vm.builtin.memory_manager.clear`` finds them all.
_POOLS: Final[WeakSet[PooledAllocator]] = WeakSet()


@cache
def allocator_for(device: Device, kind: AllocatorKind) -> Allocator:
    """Return the process's allocator of that kind on that device."""
    return NaiveAllocator(device) if kind == "naive" else PooledAllocator(device)


def clear_pools() -> None:
    """Return the free blocks of every pool to the system."""
    for pool in list(_POOLS):
        pool.clear()


def _new_block(nbytes: int, device: Device) -> Block:
    if nbytes < 0:
        raise InternalError(f"cannot allocate {nbytes} bytes on {device}: the size is negative")
    try:
        return Block(nbytes)
    except (MemoryError, ValueError):
        raise MemoryError(f"cannot allocate {nbytes} bytes on {device}: out of memory") from None


@lru_cache(maxsize=4096)  # a decode step allocates the same few shapes again and again
def layout(shape: ShapeTuple, dtype: DataType) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Return the array shape (lanes last), the element type and the bytes of a tensor."""
    bits, lanes = dtype.bits, dtype.lanes
    one_bit = (dtype.code, bits, lanes) == (DataTypeCode.UINT, 1, 1)
    if lanes < 1 or not bits or (bits & (bits - 1)) or (bits % 8 and not one_bit):
        raise InternalError(
            f"cannot allocate a tensor of dtype {str(dtype) or 'void'!r}: expected whole "
            "bytes, a power of two of bits, and at least one lane"
        )
    if shape and min(shape) < 0:
        raise InternalError(
            f"cannot allocate a tensor of shape {tuple(shape)}: an extent is negative"
        )
    element = dtype.with_lanes(1).numpy()
    full = (*shape, lanes) if lanes != 1 else tuple(shape)
    return full, element, shape.numel() * element.itemsize * lanes
