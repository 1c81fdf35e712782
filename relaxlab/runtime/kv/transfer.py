"""Sending rows to another cache while they are computed: prefill here, decode there.

The receiver reserves slots and publishes them as a compressed map; the sender marks a sequence
with that map, and from then on every layer sends its rows as it stores them. Rows that were here
before go once, page to page. What carries the bytes is found by name among the global functions
when the cache is made: a network library, a copy between two pools in one process, or MPI.
Counterpart: kv.md 3.11 (NVSHMEM in TVM).

Examples
--------
>>> compress([2, 3, 4, 9])
ShapeTuple((2, 2, 3, 9, 1))
>>> decompress((2, 2, 3, 9, 1))
(2, 3, 4, 9)
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.device import Device
from relaxlab.runtime.kv.cache_config import CacheConfig
from relaxlab.runtime.kv.forward_round import ForwardRound
from relaxlab.runtime.kv.observer import Observer, PagesSent, TokensSent
from relaxlab.runtime.packed_func import PackedFunc, get_global_func
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.values import as_value

__all__ = ["Transfer", "compress", "decompress"]

_NAMES: Final = (
    "runtime.disco.nvshmem.init_nvshmem",
    "runtime.disco.nvshmem.empty",
    "nvshmem.KVTransfer",
    "nvshmem.KVTransferPageToPage",
)


class Transfer:
    """The functions that carry rows.

    Parameters
    ----------
    device
        Where the pages are.

    Raises
    ------
    InternalError
        If one of the functions is not registered.
    """

    def __init__(self, device: Device) -> None:
        found: list[PackedFunc] = []
        for name in _NAMES:
            try:
                found.append(get_global_func(name))
            except ValueError:
                raise InternalError(
                    f"KV transfer needs the global function {name!r}, which is not registered: "
                    f"register all of {', '.join(_NAMES)} before the cache is made"
                ) from None
        _, self._empty, self._tokens, self._page_to_page = found
        self._device = device

    def allocate(self, config: CacheConfig) -> list[Tensor]:
        """Return the pages of all layers: views of one tensor that receivers can write to."""
        shape = ShapeTuple((config.num_layers, *config.pages_shape(0)))
        whole = as_value(self._empty(shape, config.dtype, self._device))
        if not isinstance(whole, Tensor) or whole.shape != shape or whole.dtype != config.dtype:
            raise InternalError(
                f"runtime.disco.nvshmem.empty: expected a tensor of shape {tuple(shape)} and dtype "
                f"{str(config.dtype)!r}, got {whole!r}"
            )
        width = whole.nbytes // config.num_layers
        return [
            Tensor(
                whole.array[layer], config.dtype, whole.device, whole.byte_offset + layer * width
            )
            for layer in range(config.num_layers)
        ]

    def send(
        self,
        batch: ForwardRound,
        layer: int,
        pages: Tensor,
        k: Tensor,
        v: Tensor,
        observer: Observer | None,
    ) -> None:
        """Send what a layer has to send in this round."""
        arrays = batch.arrays
        if batch.sends_pages:
            local = arrays.tensor("kv_transfer_page_to_page_local_position_map")
            remote = arrays.tensor("kv_transfer_page_to_page_remote_position_map")
            receivers = arrays.tensor("kv_transfer_page_to_page_recver_id")
            self._page_to_page(pages, pages, remote, local, receivers, None)
            if observer is not None:
                observer(PagesSent(layer, _ints(local), _ints(remote), _ints(receivers)))
        if batch.sends_tokens:
            remote = arrays.tensor("kv_transfer_remote_position_map")
            receivers = arrays.tensor("kv_transfer_recver_id")
            self._tokens(pages, k, v, remote, receivers, None)
            if observer is not None:
                observer(TokensSent(layer, _ints(remote), _ints(receivers)))


def compress(slots: Iterable[int]) -> ShapeTuple:
    """Return slots as a count of runs, then first slot and length of each run."""
    runs: list[list[int]] = []
    for slot in slots:
        if runs and slot == runs[-1][0] + runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([slot, 1])
    return ShapeTuple([len(runs), *(number for run in runs for number in run)])


def decompress(compressed: Sequence[int]) -> tuple[int, ...]:
    """Return the slots of a compressed map.

    Raises
    ------
    InternalError
        If the numbers are no such map.
    """
    numbers = list(compressed)
    if not numbers or len(numbers) != 1 + 2 * numbers[0] or any(n < 1 for n in numbers[2::2]):
        raise InternalError(
            "compressed position map: expected a count n, then n pairs of first slot and length, "
            f"got {numbers}"
        )
    return tuple(
        slot
        for first, length in zip(numbers[1::2], numbers[2::2], strict=True)
        for slot in range(first, first + length)
    )


def _ints(tensor: Tensor) -> tuple[int, ...]:
    values: list[Any] = tensor.array.tolist()
    return tuple(values)
