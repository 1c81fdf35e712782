"""Pages that another process can write to: which bytes of a row go where.

A cache that is made for transfers finds four functions by name (`relaxlab.runtime.kv.transfer`):
one makes the memory of its pages, two put rows into the pages of a receiver. Here they are, but
for the carrying itself, which a subclass does: by MPI (`relaxlab.serve.disaggregate`), or by memory
that two processes of one machine share (`relaxlab.serve.neighbour`). Counterpart: TVM's NVSHMEM
functions, kv.md 3.11.

Examples
--------
Three rows for one receiver, in pages of four rows; the last one is in another page:

>>> slots, receivers = np.array([6, 7, 8], "int32"), np.array([1, 1, 1], "int32")
>>> breaks(slots, receivers, size=4).tolist()
[False, True]
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.runtime.packed_func import PackedFunc, register_global_func, remove_global_func
from relaxlab.runtime.tensor import Tensor

__all__ = ["Blocks", "PageMemory", "breaks"]

_NAMES: Final = (
    "runtime.disco.nvshmem.init_nvshmem",
    "runtime.disco.nvshmem.empty",
    "nvshmem.KVTransfer",
    "nvshmem.KVTransferPageToPage",
)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Where rows go in the receiver's memory: equal blocks, equally far apart.

    Attributes
    ----------
    at
        Byte of the first block.
    count
        How many: one for the keys and one for the values of each head.
    length, stride
        Bytes of a block, and from the beginning of one to that of the next.
    """

    at: int
    count: int
    length: int
    stride: int


class PageMemory(ABC):
    """Memory in each of several processes, which the others can write to.

    Parameters
    ----------
    comm
        Carries control messages: ``send``, ``isend``, ``recv`` and ``iprobe`` of an ``mpi4py``
        communicator.

    Attributes
    ----------
    bytes_put : int
        Bytes of rows that were put into the memory of others.
    """

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.bytes_put = 0
        self._made = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let caches made within send their rows through this memory."""
        functions: tuple[PackedFunc, ...] = (
            lambda *_: None,
            self._empty,
            self._put_tokens,
            self._put_pages,
        )
        for name, function in zip(_NAMES, functions, strict=True):
            register_global_func(name, function)
        try:
            yield
        finally:
            for name in _NAMES:
                remove_global_func(name)

    @abstractmethod
    def flush(self) -> None:
        """Return when everything that was put is there."""

    @abstractmethod
    def sync(self) -> None:
        """See what others have put."""

    def lost(self) -> bool:
        """Whether it is known that the other process has ended."""
        return False

    @abstractmethod
    def _allocate(self, size: int) -> Any:
        """Return a writable buffer of so many bytes that the others can reach."""

    @abstractmethod
    def _write(self, rows: NDArray[Any], receiver: int, place: Blocks) -> None:
        """Put contiguous rows into the receiver's memory."""

    def _empty(self, shape: Sequence[int], dtype: Any, device: Any) -> Tensor:
        if self._made:
            raise RuntimeError("symmetric memory: there is a cache already: one memory, one cache")
        self._made = True
        kind = dtype.numpy()
        buffer = self._allocate(int(np.prod(shape)) * kind.itemsize)
        array = np.frombuffer(buffer, kind).reshape(tuple(shape))
        array[:] = 0
        return Tensor(array, dtype, device)

    def _put_tokens(
        self, pages: Tensor, k: Tensor, v: Tensor, slots: Tensor, receivers: Tensor, _: object
    ) -> None:
        self._put(pages, k.array, v.array, slots.array, receivers.array)

    def _put_pages(
        self,
        pages: Tensor,
        local: Tensor,
        slots: Tensor,
        local_slots: Tensor,
        receivers: Tensor,
        _: object,
    ) -> None:
        page, row = np.divmod(local_slots.array, local.shape[3])
        k, v = local.array[page, 0, :, row], local.array[page, 1, :, row]
        self._put(pages, k, v, slots.array, receivers.array)

    def _put(
        self,
        pages: Tensor,
        k: NDArray[Any],
        v: NDArray[Any],
        slots: NDArray[np.int32],
        receivers: NDArray[np.int32],
    ) -> None:
        """Put rows ``[n, H, D]`` into the slots of receivers, as few and large as pages allow."""
        _, _, heads, size, dim = (int(n) for n in pages.shape)
        width = dim * k.itemsize
        page_bytes = 2 * heads * size * width
        starts = [0, *(np.flatnonzero(breaks(slots, receivers, size)) + 1).tolist(), len(slots)]
        for first, last in pairwise(starts):
            slot = int(slots[first]) if first < last else -1
            if slot < 0:
                continue
            rows = np.stack([k[first:last], v[first:last]]).transpose(0, 2, 1, 3).copy()
            page, row = divmod(slot, size)
            at = pages.byte_offset + page * page_bytes + row * width
            place = Blocks(at, 2 * heads, (last - first) * width, size * width)
            self._write(rows, int(receivers[first]), place)
            self.bytes_put += rows.nbytes


def breaks(slots: NDArray[np.int32], receivers: NDArray[np.int32], size: int) -> NDArray[np.bool_]:
    """Say after which rows another run begins: elsewhere, in another page, or for another.

    Parameters
    ----------
    slots, receivers
        Of each row, shape ``[n]``; slot -1 is a row that goes nowhere.
    size
        Rows in a page.

    Returns
    -------
    numpy.ndarray
        Shape ``[n - 1]``.
    """
    here, after = slots[:-1], slots[1:]
    apart = (after != here + 1) | (after % size == 0) | (receivers[1:] != receivers[:-1])
    both_nowhere = (here < 0) & (after < 0)
    broken: NDArray[np.bool_] = apart & ~both_nowhere
    return broken
