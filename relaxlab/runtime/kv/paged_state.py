"""What a paged cache consists of, and how it is looked at.

The parts are put together here, and everything that does not change the cache: lengths, pages,
slots. What changes it comes in three pieces on top: rounds and sequences (``paged_kv_cache``),
commits of token trees (``tree_commit``), rows that leave and come (``row_exchange``).
Counterpart: the fields and getters of TVM's ``PagedAttentionKVCache``.

Examples
--------
See :mod:`relaxlab.runtime.kv.paged_kv_cache`; this class is abstract.

>>> from inspect import isabstract
>>> isabstract(PagedState)
True
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.runtime.device import Device, cpu
from relaxlab.runtime.kv.attend import Attention
from relaxlab.runtime.kv.block import BlockTree
from relaxlab.runtime.kv.cache_config import CacheConfig
from relaxlab.runtime.kv.exact import is_exact
from relaxlab.runtime.kv.forward_round import ForwardRound
from relaxlab.runtime.kv.kernel_table import KernelTable
from relaxlab.runtime.kv.kv_state import AttentionKVCache
from relaxlab.runtime.kv.misuse import KVCacheWarning
from relaxlab.runtime.kv.observer import Event, Misused, Observer
from relaxlab.runtime.kv.round_checks import pages_needed
from relaxlab.runtime.kv.sequence import SequenceTable
from relaxlab.runtime.kv.snapshot import CacheState, snapshot
from relaxlab.runtime.kv.steady_decode import SteadyDecode
from relaxlab.runtime.kv.transfer import Transfer
from relaxlab.runtime.tensor import Tensor, require_cpu

__all__ = ["PagedState"]


class PagedState(AttentionKVCache):
    """The parts of a paged cache.

    Parameters
    ----------
    config
        Sizes and modes.
    kernels
        The functions that compute.
    device
        Where the pages are; the CPU when omitted.
    observer
        Told about every change; also settable later.

    Attributes
    ----------
    config
        As given.
    pages : list of Tensor
        One tensor per local layer, ``[pages, 2, H, P, D]``; MLA: ``[pages, P, D]``.
    """

    def __init__(
        self,
        config: CacheConfig,
        kernels: KernelTable,
        device: Device | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.config = config
        self.device = require_cpu(cpu() if device is None else device)
        self._tree = BlockTree(config.num_total_pages, config.page_size)
        self._tree.observer = observer
        self._sequences = SequenceTable(self._tree)
        transfer = Transfer(self.device) if config.enable_kv_transfer else None
        if transfer is not None:
            self.pages = transfer.allocate(config)
        else:
            self.pages = [
                # zeros, since a kernel may read rows that were never written and weigh them by 0
                Tensor(np.zeros(config.pages_shape(layer), config.dtype.numpy()), config.dtype)
                for layer in range(config.num_layers)
            ]
        self._attention = Attention(config, kernels, self._tree, self.pages, transfer, self.device)
        self._round: ForwardRound | None = None
        self._import: set[int] | None = None
        self._steady: SteadyDecode | None = None

    @property
    def kernels(self) -> KernelTable:
        """The functions that compute; another table may be set between calls."""
        return self._attention.kernels

    @kernels.setter
    def kernels(self, kernels: KernelTable) -> None:
        self._attention.kernels = kernels

    # ---- looking -------------------------------------------------------------------------------

    @property
    def observer(self) -> Observer | None:
        """Who is told about changes."""
        return self._tree.observer

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        self._steady = None
        self._tree.observer = observer

    @property
    def sequences(self) -> SequenceTable:
        """The sequences; to look at, not to change."""
        return self._sequences

    @property
    def blocks(self) -> BlockTree:
        """The blocks and the pool; to look at, not to change."""
        return self._tree

    @property
    def current_round(self) -> ForwardRound | None:
        """The round begun last; None before the first one."""
        if self._round is not None:
            self._round.settle(self.config)
        return self._round

    @property
    def groups_imported(self) -> frozenset[int] | None:
        """Which groups of a running import are here; None if none is running."""
        return None if self._import is None else frozenset(self._import)

    def snapshot(self) -> CacheState:
        """Return the state as plain values, which the events told so far fold to."""
        return snapshot(self)

    def empty(self) -> bool:
        """Whether no sequence exists and every page is free."""
        pool = self._tree.pool
        return not len(self._sequences) and pool.available == pool.num_pages

    def get_num_available_pages(self) -> int:
        """Return the number of free pages."""
        return self._tree.pool.available

    def get_num_evictable_pages(self) -> int:
        """Return how many pages only retained sequences hold."""
        used = {
            block.index
            for sequence in self._sequences
            if not sequence.retained
            for block in sequence.last.chain()
        }
        return sum(len(block.pages) for block in self._tree if block.index not in used)

    def get_total_sequence_length(self) -> int:
        """Return the sum of all lengths; a shared prefix counts once per sequence."""
        return sum(sequence.length for sequence in self._sequences)

    def get_sequence_length(self, seq_id: int) -> int:
        """Return the current length of a sequence in tokens."""
        self._refuse_during_import("tell the length of a sequence")
        return self._sequences.find(seq_id).length

    def __contains__(self, seq_id: object) -> bool:
        return seq_id in self._sequences

    def sequence_ids(self) -> list[int]:
        """Return the ids of all sequences, oldest first."""
        return [sequence.seq_id for sequence in self._sequences]

    def pages_of(self, seq_id: int) -> list[int]:
        """Return the pages of a sequence in order, those of a shared prefix included."""
        chain = self._sequences.find(seq_id).last.chain()
        return [page for block in chain for page in block.pages]

    def slots_of(self, seq_id: int) -> list[int]:
        """Return where the tokens of a sequence lie, in order: ``page * page_size + row``."""
        return self._sequences.slots(seq_id)

    def pages_needed(self, seq_ids: Sequence[int], append_lengths: Sequence[int]) -> int:
        """Return how many pages must be free for ``begin_forward`` to accept a batch."""
        batch = [self._sequences.find(seq_id) for seq_id in seq_ids]
        return pages_needed(self._sequences, self.config, batch, append_lengths)

    # ---- inside --------------------------------------------------------------------------------

    def _copy_rows(self, source: int, target: int, rows: int) -> None:
        with self._restored_on_failure(lambda _: target):
            for pages in self.pages:
                self.kernels.copy_single_page(pages, source, target, rows)

    @contextmanager
    def _restored_on_failure(self, place: Callable[[Tensor], Any]) -> Iterator[None]:
        """Put back what kernels overwrite in each layer's pages if one of them fails."""
        kept = [pages.array[place(pages)].copy() for pages in self.pages]
        try:
            yield
        except BaseException:
            for pages, rows in zip(self.pages, kept, strict=True):
                pages.array[place(pages)] = rows
            raise

    def _tell(self, event: Event) -> None:
        if self._tree.observer is not None:
            self._tree.observer(event)

    def _warn(self, message: str) -> None:
        if is_exact():
            return
        warnings.warn(message, KVCacheWarning, stacklevel=4)
        self._tell(Misused(message))

    def _open_round(self) -> ForwardRound | None:
        batch = self._round
        return None if batch is None or batch.finished else batch

    def _any_round(self, me: str) -> ForwardRound:
        if self._round is None:
            raise InternalError(f"{me}: call begin_forward first: there is no batch")
        self._round.settle(self.config)
        return self._round

    def _refuse_during_import(self, what: str) -> None:
        if self._import is not None:
            raise InternalError(
                f"The KV cache cannot {what} before the checkpoint import is finished: "
                "call finish_import, or clear to give it up"
            )

    def _before_change(self, what: str) -> None:
        """Be ready for a change of sequences: refuse it, or write down what depends on them."""
        if not is_exact():
            self._refuse_during_import(what)
        self._settle()

    def _settle(self) -> None:
        self._steady = None
        if self._round is not None:
            self._round.settle(self.config)

    def __repr__(self) -> str:
        pool = self._tree.pool
        total = sum(sequence.length for sequence in self._sequences)
        return (
            f"PagedAttentionKVCache({len(self._sequences)} sequences, {total} tokens, "
            f"{pool.available} of {pool.num_pages} pages free)"
        )
