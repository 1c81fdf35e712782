"""Rows that leave a cache and come to it: looking in, sending, exporting and importing.

Counterparts: ``DebugGetKV``, ``DisaggPrepareRecv``, ``DisaggMarkSend`` and the page-group calls of
TVM's paged cache (kv.md 3.11 and 3.12).

Examples
--------
See :mod:`relaxlab.runtime.kv.checkpoint` for what is exported and
:mod:`relaxlab.runtime.kv.transfer` for what is sent.

>>> from inspect import isabstract
>>> isabstract(RowExchange)
True
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.kv import checkpoint
from relaxlab.runtime.kv.cache_config import AttnKind
from relaxlab.runtime.kv.exact import is_exact
from relaxlab.runtime.kv.observer import (
    GroupExported,
    GroupImported,
    ImportFinished,
    ImportPrepared,
)
from relaxlab.runtime.kv.paged_state import PagedState
from relaxlab.runtime.kv.sequence import SendTarget
from relaxlab.runtime.kv.sequence import Sequence as CachedSequence
from relaxlab.runtime.kv.transfer import compress, decompress
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.tensor import tensor as new_tensor
from relaxlab.runtime.values import as_value

__all__ = ["RowExchange"]


class RowExchange(PagedState):
    """A paged cache that rows can leave and come to."""

    def debug_get_kv(self, seq_id: int, start: int, end: int, k: Any, v: Any) -> None:
        """Copy K and V of positions ``start`` … ``end - 1`` to k, v: ``[L, end - start, H, D]``."""
        config = self.config
        allowed = (AttnKind.MHA,) if is_exact() else (AttnKind.MHA, AttnKind.MHA_SLIDING)
        self._expect_kinds("debug_get_kv", allowed)
        slots = self._debug_slots("debug_get_kv", seq_id, start, end)
        shape = (config.num_layers, end - start, config.num_kv_heads, config.qk_head_dim)
        outputs = [self._output("debug_get_kv", x, shape) for x in (k, v)]
        for layer, pages in enumerate(self.pages):
            self.kernels.debug_get_kv(pages, slots, *outputs, layer)

    def debug_get_kv_mla(self, seq_id: int, start: int, end: int, kv: Any) -> None:
        """Copy latent rows of positions ``start`` … ``end - 1`` to kv: ``[L, end - start, D]``."""
        self._expect_kinds("debug_get_kv_mla", (AttnKind.MLA,))
        slots = self._debug_slots("debug_get_kv_mla", seq_id, start, end)
        shape = (self.config.num_layers, end - start, self.config.qk_head_dim)
        output = self._output("debug_get_kv_mla", kv, shape)
        for layer, pages in enumerate(self.pages):
            self.kernels.debug_get_kv(pages, slots, output, layer)

    def disagg_prepare_recv(self, seq_id: int, append_length: int) -> ShapeTuple:
        """Reserve slots for rows that another cache will send; return them compressed."""
        self.begin_forward([seq_id], [append_length])
        batch = self._any_round("disagg_prepare_recv")
        return compress(batch.arrays.tensor("append_position_map").array.tolist())

    def disagg_mark_send(
        self, seq_id: int, begin: int, remote_position_map: Sequence[int], receiver: int
    ) -> None:
        """Send a sequence's rows from position ``begin`` on to the slots of a receiver.

        Rows that are here already are sent with the next round, which there must be.
        """
        me = "disagg_mark_send"
        sequence = self._sequences.find(seq_id)
        if not self.config.enable_kv_transfer:
            raise InternalError(f"{me}: the cache was made without KV transfer")
        slots = decompress(remote_position_map)
        if begin < 0:
            raise InternalError(f"{me}: begin: expected at least 0, got {begin}")
        unsent = 0
        if begin < sequence.length:
            if len(slots) <= sequence.length - begin:
                raise InternalError(
                    f"{me}: Need at least one token to prefill: expected a map of more than "
                    f"{sequence.length - begin} slots, got {len(slots)}"
                )
            unsent = sequence.length - begin
        self._settle()
        self._sequences.set_send(sequence, SendTarget(begin, slots, receiver), unsent)

    def get_layout_hash(self) -> str:
        """Return the hash that two caches must share to exchange sequences."""
        checkpoint.check_supported(self.config)
        return checkpoint.layout_hash(self.config)

    def get_checkpoint_metadata(self, seq_id: int) -> str:
        """Return what describes an exported sequence, as JSON."""
        sequence = self._exported(seq_id)
        return checkpoint.metadata_text(self.config, seq_id, sequence.length)

    def export_page_group(self, seq_id: int, group: int, target: Any) -> None:
        """Copy the pages of one layer of a sequence to ``target``, ``[1, n, 2, H, P, D]``."""
        sequence = self._exported(seq_id)
        pages = self._group_pages("export_page_group", group)
        shape = checkpoint.group_shape(self.config, sequence.length)
        output = self._output("export_page_group", target, shape)
        numbers = self.pages_of(seq_id)[: shape[1]]
        output.array[0] = pages[numbers]
        used = sequence.length % self.config.page_size
        if used:
            output.array[0, -1, :, :, used:] = 0
        self._tell(GroupExported(seq_id, group))

    def prepare_import(self, seq_id: int, metadata: str) -> None:
        """Make room for an exported sequence: the whole cache is cleared first."""
        checkpoint.check_supported(self.config)
        self._expect_first(seq_id, "import")
        length = checkpoint.check_metadata(self.config, seq_id, metadata)
        self.clear()
        table = self._sequences
        table.add(seq_id)
        sequence = table.find(seq_id)
        self._tree.allocate(sequence.last, -(-length // self.config.page_size))
        if length:
            table.count(sequence, length)
            table.append(sequence, length)
        self._import = set()
        self._tell(ImportPrepared(seq_id, self.config.num_layers))

    def import_page_group(self, seq_id: int, group: int, source: Any) -> None:
        """Copy one layer of the imported sequence in; each group once, in any order."""
        imported = self._expect_import(seq_id, "import_page_group")
        pages = self._group_pages("import_page_group", group)
        if group in imported:
            raise InternalError(f"import_page_group: group {group} was imported already")
        length = self._sequences.find(seq_id).length
        shape = checkpoint.group_shape(self.config, length)
        values = self._output("import_page_group", source, shape)
        pages[self.pages_of(seq_id)] = values.array[0]
        imported.add(group)
        self._tell(GroupImported(seq_id, group))

    def finish_import(self, seq_id: int) -> None:
        """End the import; all groups must be here."""
        imported = self._expect_import(seq_id, "finish_import")
        missing = sorted(set(range(self.config.num_layers)) - imported)
        if missing:
            raise InternalError(
                f"finish_import: missing group {', '.join(map(str, missing))} "
                f"of {self.config.num_layers}"
            )
        self._import = None
        self._tell(ImportFinished(seq_id))

    def _expect_first(self, seq_id: int, what: str) -> None:
        if seq_id != 0:
            raise InternalError(f"Checkpoint {what}: expected sequence id 0, got {seq_id}")

    def _exported(self, seq_id: int) -> CachedSequence:
        checkpoint.check_supported(self.config)
        self._refuse_during_import("be exported from")
        self._expect_first(seq_id, "export")
        sequence = self._sequences.find(seq_id)
        if not sequence.committed or not sequence.is_chain:
            raise InternalError(
                "Checkpoint export: the token tree of the sequence has not been committed"
            )
        return sequence

    def _expect_import(self, seq_id: int, me: str) -> set[int]:
        if self._import is None:
            raise InternalError(f"{me}: no import has been prepared: call prepare_import first")
        self._expect_first(seq_id, "import")
        return self._import

    def _group_pages(self, me: str, group: int) -> np.ndarray[Any, Any]:
        if not 0 <= group < len(self.pages):
            raise InternalError(
                f"{me}: group: expected 0 to {len(self.pages) - 1}, one per layer, got {group}"
            )
        return self.pages[group].array

    def _expect_kinds(self, me: str, allowed: tuple[AttnKind, ...]) -> None:
        kinds = [self.config.kind(layer) for layer in range(self.config.num_layers)]
        if any(kind not in allowed for kind in kinds):
            raise InternalError(
                f"{me}: expected layers of kind {' or '.join(k.name for k in allowed)} only, "
                f"got {', '.join(kind.name for kind in kinds)}"
            )

    def _debug_slots(self, me: str, seq_id: int, start: int, end: int) -> Tensor:
        length = self._sequences.find(seq_id).length
        if not 0 <= start < end <= length:
            raise InternalError(
                f"{me}: expected 0 <= start < end <= {length}, the length of sequence {seq_id}, "
                f"got {start} and {end}"
            )
        return new_tensor(np.array(self._sequences.slots(seq_id)[start:end], np.int32))

    def _output(self, me: str, value: Any, shape: tuple[int, ...]) -> Tensor:
        found = as_value(value)
        if not isinstance(found, Tensor):
            raise TypeError(f"{me}: expected Tensor, got {type(value).__name__}")
        if tuple(found.shape) != shape or found.dtype != self.config.dtype:
            raise InternalError(
                f"{me}: expected shape {shape} and dtype {str(self.config.dtype)!r}, got "
                f"{tuple(found.shape)} and {str(found.dtype)!r}"
            )
        return found
