"""Copying one sequence out to host memory and back in: preemption without computing again.

Unlike a checkpoint this works for every kind of layer, every id, windows included, beside other
sequences, and several at a time; what it gives is NumPy arrays for this process. A prefix that was
shared comes back as the sequence's own. There is no TVM counterpart.

Examples
--------
>>> SavedSequence(length=0, rows=(), window=-1, sink=0).nbytes
0
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxlab.errors import InternalError
from relaxlab.runtime.kv.cache_config import AttnKind
from relaxlab.runtime.kv.observer import SequenceExported, SequenceImported
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache

__all__ = ["SavedSequence", "restore_sequence", "save_sequence"]


@dataclass(frozen=True, slots=True, eq=False)
class SavedSequence:
    """The rows of one sequence.

    Attributes
    ----------
    length
        Tokens.
    rows
        Per layer, ``[length, 2, H, D]`` (K, then V), for MLA ``[length, D]``.
    window, sink
        Of the sequence; window -1 means none.
    """

    length: int
    rows: tuple[NDArray[Any], ...]
    window: int
    sink: int

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return sum(rows.nbytes for rows in self.rows)


def save_sequence(cache: PagedAttentionKVCache, seq_id: int) -> SavedSequence:
    """Return a copy of a sequence's rows; the cache is not changed.

    Raises
    ------
    InternalError
        If there is no such sequence, or its token tree waits for a commit.
    """
    sequence = cache.sequences.find(seq_id)
    if not sequence.committed:
        raise InternalError(
            f"the token tree of sequence {seq_id} has not been committed: "
            "call commit_accepted_token_tree_nodes before it is saved"
        )
    pages, row = np.divmod(np.array(cache.slots_of(seq_id), np.int64), cache.config.page_size)
    rows = tuple(
        layer.array[pages, row] if latent else layer.array[pages, :, :, row]
        for layer, latent in _layers(cache)
    )
    prefix = sequence.length - sequence.last.length
    # what lies in shared blocks never slides, so it is a sink
    sink = max(sequence.sink, prefix) if sequence.window != -1 else 0
    if cache.blocks.observer is not None:
        cache.blocks.observer(SequenceExported(seq_id, sequence.length))
    return SavedSequence(sequence.length, rows, sequence.window, sink)


def restore_sequence(cache: PagedAttentionKVCache, seq_id: int, saved: SavedSequence) -> None:
    """Begin a sequence with saved rows.

    Raises
    ------
    InternalError
        If the id is in use, the rows do not fit the layers, or pages lack; nothing has changed.
    """
    if cache.groups_imported is not None:
        raise InternalError("a sequence cannot be restored while a checkpoint is being imported")
    config, table = cache.config, cache.sequences
    layers = _layers(cache)
    if len(saved.rows) != len(layers):
        raise InternalError(
            f"restore sequence {seq_id}: expected rows of {len(layers)} layers, "
            f"got {len(saved.rows)}"
        )
    for number, ((layer, latent), rows) in enumerate(zip(layers, saved.rows, strict=True)):
        inner = layer.shape[2:] if latent else (*layer.shape[1:3], layer.shape[4])
        shape = (saved.length, *inner)
        if rows.shape != shape or rows.dtype != layer.array.dtype:
            raise InternalError(
                f"restore sequence {seq_id}: layer {number}: expected shape {shape} and dtype "
                f"{layer.array.dtype}, got {rows.shape} and {rows.dtype}"
            )
    needed = -(-saved.length // config.page_size)
    if seq_id not in cache and needed > cache.get_num_available_pages():
        table.refuse_full(
            f"restoring {saved.length} tokens of sequence {seq_id} needs {needed} pages", needed
        )
    cache.add_sequence(seq_id)
    sequence = table.find(seq_id)
    cache.blocks.allocate(sequence.last, needed)
    if saved.length:
        table.count(sequence, saved.length)
        table.append(sequence, saved.length)
    if saved.window != -1:
        table.set_window(sequence, saved.window, saved.sink)
    pages, row = np.divmod(np.array(cache.slots_of(seq_id), np.int64), config.page_size)
    for (layer, latent), rows in zip(layers, saved.rows, strict=True):
        if latent:
            layer.array[pages, row] = rows
        else:
            layer.array[pages, :, :, row] = rows
    if cache.blocks.observer is not None:
        cache.blocks.observer(SequenceImported(seq_id, saved.length))


def _layers(cache: PagedAttentionKVCache) -> list[tuple[Any, bool]]:
    """Return each layer's pages, and whether its rows are latent."""
    found = []
    for number, pages in enumerate(cache.pages):
        kind = cache.config.kind(number)
        if kind is AttnKind.LINEAR:
            raise InternalError(f"layer {number} is linear: it has no rows to copy")
        found.append((pages, kind is AttnKind.MLA))
    return found
