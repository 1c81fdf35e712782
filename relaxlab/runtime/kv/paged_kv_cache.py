"""The paged cache: keys and values of many sequences in pages, shared where they are equal.

This is the object that a compiled model is given and a serving engine drives. It puts together
the parts, each in a file of its own: the page pool, the block tree, the sequences, windows, the
round with its index arrays, and the attention calls. Counterpart: TVM's
``relax.vm.PagedAttentionKVCache`` (kv.md section 3).

Examples
--------
>>> from relaxlab.runtime.kv.cache_config import CacheConfig
>>> from relaxlab.runtime.kv.kernel_table import KernelTable
>>> def nothing(*arguments): ...
>>> cache = PagedAttentionKVCache(
...     CacheConfig(
...         reserved_num_seqs=4, total_token_capacity=64, prefill_chunk_size=32, page_size=4,
...         num_qo_heads=4, num_kv_heads=2, qk_head_dim=8,
...     ),
...     KernelTable(
...         merge=(nothing,), split_rotary=nothing, copy_single_page=nothing,
...         debug_get_kv=nothing, compact_copy=nothing,
...     ),
... )
>>> cache.add_sequence(0)
>>> cache.begin_forward([0], [6])
>>> cache.slots_of(0), cache.get_query_positions().array.tolist()
([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5])
>>> cache
PagedAttentionKVCache(1 sequences, 6 tokens, 15 of 17 pages free)
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.device import Device, cpu
from relaxlab.runtime.kv import checkpoint, token_tree
from relaxlab.runtime.kv.attend import Attention
from relaxlab.runtime.kv.block import BlockTree
from relaxlab.runtime.kv.cache_config import AttnKind, CacheConfig
from relaxlab.runtime.kv.exact import is_exact
from relaxlab.runtime.kv.forward_round import Entry, ForwardRound
from relaxlab.runtime.kv.kernel_table import KernelTable
from relaxlab.runtime.kv.kv_state import AttentionKVCache
from relaxlab.runtime.kv.misuse import KVCacheWarning
from relaxlab.runtime.kv.observer import (
    CacheCleared,
    Event,
    GroupExported,
    GroupImported,
    ImportFinished,
    ImportPrepared,
    Misused,
    Observer,
    RemovalCause,
    RoundFinished,
    RoundStarted,
    SequenceRetained,
    SequenceRevived,
    TokensCompacted,
)
from relaxlab.runtime.kv.round_checks import (
    check_committed,
    check_round,
    check_tree_supported,
    pages_needed,
    refuse_latent_tree,
    split_tree,
)
from relaxlab.runtime.kv.sequence import SendTarget, SequenceTable
from relaxlab.runtime.kv.sequence import Sequence as CachedSequence
from relaxlab.runtime.kv.sliding_window import check_window
from relaxlab.runtime.kv.steady_decode import SteadyDecode
from relaxlab.runtime.kv.transfer import Transfer, compress, decompress
from relaxlab.runtime.tensor import Tensor, require_cpu
from relaxlab.runtime.tensor import tensor as new_tensor
from relaxlab.runtime.values import as_value

__all__ = ["PagedAttentionKVCache"]


class PagedAttentionKVCache(AttentionKVCache):
    """Keys and values of many sequences, in pages.

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

    # ---- sequences -----------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget all sequences; all pages are free again, in their first order. Data stays."""
        self._sequences.clear()
        self._round = self._import = self._steady = None
        self._tell(CacheCleared())

    def add_sequence(self, seq_id: int) -> None:
        """Begin an empty sequence; it takes no page."""
        self._before_change("add a sequence")
        self._sequences.add(seq_id)

    def remove_sequence(
        self, seq_id: int, *, cause: RemovalCause = "removed", reason: str = ""
    ) -> None:
        """Drop a sequence and give back what no other sequence uses.

        Parameters
        ----------
        seq_id
            Its id.
        cause, reason
            Why, for the observer: ``"evicted"`` and ``"preempted"`` come with a reason in words.
        """
        self._before_change("remove a sequence")
        self._sequences.find(seq_id)
        batch = self._open_round()
        if batch is not None and any(e.sequence.seq_id == seq_id for e in batch.entries):
            self._warn(
                f"remove_sequence: sequence {seq_id} belongs to the round that is under way: its "
                "rows are still computed, but stored no more"
            )
            if not is_exact():
                batch.forget(seq_id)
        self._sequences.remove(seq_id, cause, reason)

    def fork_sequence(self, parent: int, child: int, position: int = -1) -> None:
        """Begin ``child`` with the first ``position`` tokens of ``parent``; -1 means all.

        Full pages are shared. Inside a page, its rows before the position are copied, which takes
        one page; at the end of a full page nothing is copied or taken.
        """
        self._before_change("fork a sequence")
        self._sequences.fork(parent, child, position, self._copy_rows)

    def popn(self, seq_id: int, count: int) -> None:
        """Forget the last ``count`` tokens of a sequence."""
        self._before_change("shorten a sequence")
        self._sequences.popn(seq_id, count, self._copy_rows)

    def retain_sequence(self, seq_id: int) -> None:
        """Keep a sequence for its contents only; pages that only such sequences hold are evictable.

        Nothing else changes: it can be forked, shortened, revived, or removed to free its pages.
        """
        sequence = self._sequences.find(seq_id)
        if not sequence.retained:
            sequence.retained = True
            self._tell(SequenceRetained(seq_id))

    def revive_sequence(self, seq_id: int) -> None:
        """Let a retained sequence be in use again."""
        sequence = self._sequences.find(seq_id)
        if sequence.retained:
            sequence.retained = False
            self._tell(SequenceRevived(seq_id))

    def enable_sliding_window_for_seq(self, seq_id: int, window: int, sink: int) -> None:
        """Let a sequence keep its first ``sink`` tokens and the newest, ``window`` in all."""
        if not self.config.support_sliding_window and not self.config.layer_sliding:
            raise InternalError(
                "The KV cache does not support sliding window: "
                "make it with support_sliding_window=True"
            )
        sequence = self._sequences.find(seq_id)
        check_window(sequence, window, sink)
        self._before_change("give a sequence a window")
        self._sequences.set_window(sequence, window, sink)

    # ---- rounds --------------------------------------------------------------------------------

    def begin_forward(
        self,
        seq_ids: Sequence[int],
        append_lengths: Sequence[int],
        token_tree: Sequence[int] | None = None,
    ) -> None:
        """Fix the batch of the next round and reserve its slots.

        Parameters
        ----------
        seq_ids, append_lengths
            The sequences in batch order, and how many tokens each gets.
        token_tree
            Parents of the new tokens, one sequence after the other; None: plain sequences.

        Raises
        ------
        InternalError
            If the batch is not possible or pages lack; then nothing has changed.
        """
        steady = self._steady
        if (
            steady is not None
            and token_tree is None
            and seq_ids == steady.seq_ids
            and append_lengths == steady.append_lengths
            and steady.exact == is_exact()
            and steady.again()
        ):
            return
        self._refuse_during_import("begin a forward pass")
        if token_tree is not None:
            refuse_latent_tree(self.config)
        if len(seq_ids) != len(append_lengths):
            raise InternalError(
                f"The sizes of seq_ids and append_lengths differ: {len(seq_ids)} and "
                f"{len(append_lengths)}"
            )
        if not is_exact():
            seq_ids, append_lengths = self._merge_repeated(seq_ids, append_lengths, token_tree)
            check_round(self._sequences, self.config, seq_ids, append_lengths, token_tree)
            self._warn_about_round(append_lengths)
        self._settle()
        table, config = self._sequences, self.config
        entries = []
        for seq_id, length in zip(seq_ids, append_lengths, strict=True):
            sequence = table.find(seq_id)
            base = sequence.length - len(sequence.tree)
            entries.append(Entry(sequence, length, base, sequence.last.length))
            table.count(sequence, length)
        batch = ForwardRound.plan(
            entries,
            config,
            has_tree=token_tree is not None,
            needs_plan=self.kernels.needs_plan,
        )
        self._set_trees(batch, token_tree, append_lengths)
        batch.decide_trees()
        if batch.append_before:
            batch.reserve_all(table, sliding=config.sequence_sliding)
            batch.fill_tables(config)
        else:
            batch.fill_tables(config)
            batch.reserve_all(table, sliding=config.sequence_sliding)
        batch.fill_arrays(config)
        self._round = batch
        if self._tree.observer is None:
            self._steady = SteadyDecode.after(batch, self._tree, config)
        self._tell(RoundStarted(tuple(seq_ids), tuple(append_lengths), token_tree is not None))

    def _set_trees(
        self,
        batch: ForwardRound,
        tree: Sequence[int] | None,
        append_lengths: Sequence[int],
    ) -> None:
        table = self._sequences
        if tree is None:
            for entry in batch.entries:
                check_committed(entry.sequence)
                entry.sequence.is_chain = True
            return
        check_tree_supported(self.config)
        for index, (entry, part) in enumerate(
            zip(batch.entries, split_tree(tree, append_lengths), strict=True)
        ):
            sequence = entry.sequence
            whole = part if sequence.committed else (*sequence.tree, *part)
            token_tree.check_tree(whole, index)
            table.set_tree(sequence, whole, token_tree.is_chain(whole))

    def end_forward(self) -> None:
        """Finish the round."""
        if self._round is not None and not self._round.finished:
            self._round.finished = True
            self._tell(RoundFinished())

    def get_query_positions(self) -> Tensor:
        """Return the positions of this round's tokens, int32 ``[T]``."""
        batch = self._any_round("get_query_positions")
        if batch.exact and batch.total > self.config.prefill_chunk_size:
            raise ValueError(
                f"a batch of {batch.total} tokens exceeds the prefill chunk size "
                f"{self.config.prefill_chunk_size}"
            )
        return batch.arrays.tensor("q_rope_position_map")

    def commit_accepted_token_tree_nodes(
        self, seq_ids: Sequence[int], leaf_indices: Sequence[int]
    ) -> None:
        """Keep, of each sequence's tree, the path from its root to the leaf; -1 keeps nothing."""
        if len(seq_ids) != len(leaf_indices):
            raise InternalError(
                f"The sizes of seq_ids and leaf_indices differ: {len(seq_ids)} and "
                f"{len(leaf_indices)}"
            )
        pairs = []
        for seq_id, leaf in zip(seq_ids, leaf_indices, strict=True):
            sequence = self._sequences.find(seq_id)
            if leaf != -1 and sequence.committed:
                raise InternalError(
                    f"The accepted nodes of sequence {seq_id} are already committed"
                )
            if leaf < -1 or (leaf != -1 and leaf >= len(sequence.tree)):
                raise InternalError(
                    f"Invalid tree index {leaf}: expected -1 (nothing accepted) or a node of the "
                    f"{len(sequence.tree)} in the tree of sequence {seq_id}"
                )
            pairs.append((sequence, leaf))
        self._settle()
        if is_exact():
            self._commit_as_tvm(pairs)
            return
        if len(set(seq_ids)) < len(seq_ids):
            raise InternalError(f"commit: sequences are given more than once: {list(seq_ids)}")
        moves = []
        for sequence, leaf in pairs:
            block, tree = sequence.last, sequence.tree
            first = block.length - len(tree)
            moves.append(
                [
                    (block.slot(first + node), block.slot(first + place))
                    for place, node in enumerate(token_tree.path_to(tree, leaf))
                    if node != place
                ]
            )
        self._compact(moves, len(moves))
        for sequence, leaf in pairs:
            path, nodes = token_tree.path_to(sequence.tree, leaf), len(sequence.tree)
            self._sequences.drop_tree(sequence, tuple(path))
            self._sequences.popn(sequence.seq_id, nodes - len(path), self._copy_rows)

    def _commit_as_tvm(self, pairs: list[tuple[CachedSequence, int]]) -> None:
        """Commit by position in the last batch, and compact only if the last one is no chain."""
        batch = self._any_round("commit_accepted_token_tree_nodes")
        paths = [token_tree.path_to(sequence.tree, leaf) for sequence, leaf in pairs]
        if pairs and not pairs[-1][0].is_chain:
            slots = batch.arrays.tensor("append_position_map").array.tolist()
            moves, at = [], 0
            for path, entry in zip(paths, batch.entries, strict=False):
                moves.append(
                    [
                        (slots[at + node], slots[at + place])
                        for place, node in enumerate(path)
                        if node != place
                    ]
                )
                at += entry.tokens
            self._compact(moves, len(batch.entries))
        for (sequence, _), path, entry in zip(pairs, paths, batch.entries, strict=False):
            # an invariant of popn is that trees are gone when it may fork
            self._sequences.drop_tree(sequence, tuple(path))
            seq_id = entry.sequence.seq_id
            self._sequences.popn(seq_id, entry.tokens - len(path), self._copy_rows)

    def _compact(self, moves: list[list[tuple[int, int]]], batch_size: int) -> None:
        """Move rows from slot to slot in every layer, in order."""
        flat = [move for part in moves for move in part]
        if not flat:
            return
        ends = np.cumsum([0, *map(len, moves)]).astype(np.int32)
        pairs = np.array(flat, np.int32).T
        page, row = np.divmod(pairs[1], self.config.page_size)
        with self._restored_on_failure(lambda _: (page, slice(None), slice(None), row)):
            for pages in self.pages:
                self.kernels.compact_copy(
                    pages, new_tensor(ends), new_tensor(np.ascontiguousarray(pairs)), batch_size
                )
        self._tell(TokensCompacted(tuple(flat)))

    # ---- attention -----------------------------------------------------------------------------

    def attention_with_fused_qkv(self, layer: int, qkv: Any, o: Any, sm_scale: float) -> None:
        """Split, rotate, append and attend; see :class:`AttentionKVCache`."""
        batch = self._any_round("attention_with_fused_qkv")
        rows = getattr(qkv, "shape", (batch.total,))[0]
        if rows > batch.total:
            self._warn(
                f"attention_with_fused_qkv: got {rows} rows for a batch of {batch.total} tokens; "
                f"rows from {batch.total} on are neither read nor written"
            )
        self._attention.fused_qkv(batch, layer, qkv, o, sm_scale)

    def self_attention(
        self, layer: int, q: Any, k: Any, v: Any, o: Any, lse: Any, sm_scale: float
    ) -> None:
        """Attend to this round's tokens only; nothing is rotated beforehand or stored."""
        batch = self._any_round("self_attention")
        self._attention.self_attention(batch, layer, q, k, v, o, lse, sm_scale)

    def cross_attention(self, layer: int, q: Any, o: Any, lse: Any, sm_scale: float) -> None:
        """Attend to the pages only; without any page o is 0 and lse -5e4."""
        batch = self._any_round("cross_attention")
        self._attention.cross_attention(batch, layer, q, o, lse, sm_scale)

    def attention_with_shared_kv(
        self, source_layer: int, q: Any, current_k: Any, current_v: Any, o: Any, sm_scale: float
    ) -> None:
        """Attend to another layer's pages and this round's keys; nothing is stored."""
        batch = self._any_round("attention_with_shared_kv")
        self._attention.shared_kv(batch, source_layer, q, current_k, current_v, o, sm_scale)

    def append_mla_kv(self, layer: int, kv: Any) -> None:
        """Store the latent rows of an MLA layer."""
        self._attention.append_mla(self._any_round("append_mla_kv"), layer, kv)

    def merge_attn_output_inplace(self, o1: Any, lse1: Any, o2: Any, lse2: Any) -> None:
        """Combine two partial results into the first."""
        self._attention.merge(o1, lse1, o2, lse2)

    # ---- data out and in -----------------------------------------------------------------------

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

    def _merge_repeated(
        self,
        seq_ids: Sequence[int],
        append_lengths: Sequence[int],
        tree: Sequence[int] | None,
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Take neighbours of one id for what they are: one sequence that gets all the tokens."""
        if len(set(seq_ids)) == len(seq_ids):
            return seq_ids, append_lengths
        self._warn(f"begin_forward: sequences are in the batch more than once: {list(seq_ids)}")
        if tree is not None:
            raise InternalError(
                f"A batch with token trees has sequences more than once: {list(seq_ids)}"
            )
        ids: list[int] = []
        lengths: list[int] = []
        for seq_id, length in zip(seq_ids, append_lengths, strict=True):
            if ids and ids[-1] == seq_id and length > 0:
                lengths[-1] += length
            else:
                ids.append(seq_id)
                lengths.append(length)
        return ids, lengths

    def _warn_about_round(self, append_lengths: Iterable[int]) -> None:
        if self._open_round() is not None:
            self._warn(
                "begin_forward: the round before was not finished: its tokens stay appended; "
                "call end_forward between rounds"
            )
        total = sum(append_lengths)
        if total > self.config.prefill_chunk_size:
            self._warn(
                f"begin_forward: a batch of {total} tokens exceeds the prefill chunk size "
                f"{self.config.prefill_chunk_size}: temporaries are made larger; split the prompt"
            )

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

    def __repr__(self) -> str:
        pool = self._tree.pool
        total = sum(sequence.length for sequence in self._sequences)
        return (
            f"PagedAttentionKVCache({len(self._sequences)} sequences, {total} tokens, "
            f"{pool.available} of {pool.num_pages} pages free)"
        )
