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

from collections.abc import Iterable, Sequence
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.runtime.kv import token_tree
from relaxlab.runtime.kv.exact import is_exact
from relaxlab.runtime.kv.forward_round import Entry, ForwardRound
from relaxlab.runtime.kv.observer import (
    CacheCleared,
    RemovalCause,
    RoundFinished,
    RoundStarted,
    SequenceRetained,
    SequenceRevived,
)
from relaxlab.runtime.kv.round_checks import (
    check_committed,
    check_round,
    check_tree_supported,
    refuse_latent_tree,
    split_tree,
)
from relaxlab.runtime.kv.row_exchange import RowExchange
from relaxlab.runtime.kv.sliding_window import check_window
from relaxlab.runtime.kv.steady_decode import SteadyDecode
from relaxlab.runtime.kv.tree_commit import TreeCommits
from relaxlab.runtime.tensor import Tensor

__all__ = ["PagedAttentionKVCache"]


class PagedAttentionKVCache(TreeCommits, RowExchange):
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
        """Let a sequence keep its first ``sink`` tokens and the newest, ``window`` in all.

        Raises
        ------
        InternalError
            If the cache was made without sliding windows, there is no such sequence, it has a
            window already, or the numbers make none.
        """
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
        """Return the positions of this round's tokens, int32 ``[T]``.

        Raises
        ------
        ValueError
            In :func:`exact` mode, if the round is longer than a chunk of prefill.
        """
        batch = self._any_round("get_query_positions")
        if batch.exact and batch.total > self.config.prefill_chunk_size:
            raise ValueError(
                f"a batch of {batch.total} tokens exceeds the prefill chunk size "
                f"{self.config.prefill_chunk_size}"
            )
        return batch.arrays.tensor("q_rope_position_map")

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

    # ---- misuse --------------------------------------------------------------------------------

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
