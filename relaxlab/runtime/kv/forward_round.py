"""A round: the batch between ``begin_forward`` and ``end_forward``, and its index arrays.

The batch decides two things. Tokens are stored before attention if every sequence gets one token
(decode), so that the page tables contain them already; else attention has two parts, over the new
tokens and over the pages as they were. And each depth is read by a decode kernel, row by row, or
by a prefill kernel, where neighbours that share a block are one chunk. Counterpart: kv.md 3.5.

Examples
--------
>>> from relaxlab.runtime.kv.block import BlockTree
>>> table = SequenceTable(BlockTree(8, 4)); table.add(0)
>>> entry = Entry(table.find(0), tokens=1, base=0, stored=0)
>>> chunks_per_depth([entry])[0][0].rows
1
"""

from array import array
from dataclasses import dataclass, field

from relaxlab.runtime.kv.aux_data import (
    Chunk,
    DepthTable,
    IndexArrays,
    coalesce,
    page_ratio,
    prefix_sums,
)
from relaxlab.runtime.kv.cache_config import CacheConfig
from relaxlab.runtime.kv.exact import is_exact
from relaxlab.runtime.kv.sequence import Sequence, SequenceTable
from relaxlab.runtime.kv.sliding_window import reserve
from relaxlab.runtime.kv.token_tree import is_chain, node_depths, tree_mask, window_mask

__all__ = ["Entry", "ForwardRound", "chunks_per_depth"]

_DEPTHS = 2
"""Deeper chains are folded into the last depth."""

_COALESCE_RATIO = 32
"""From this many-fold sharing on, a shared block is read once for all rows."""


@dataclass(slots=True)
class Entry:
    """One sequence of the batch.

    Attributes
    ----------
    sequence, tokens
        Who gets how many tokens.
    base
        Position of the first one (of the first node of an uncommitted tree).
    stored
        Tokens of its last block before this round.
    """

    sequence: Sequence
    tokens: int
    base: int
    stored: int


def chunks_per_depth(entries: list[Entry]) -> list[list[Chunk]]:
    """Return the plain list of chunks of each depth: one chunk per sequence."""
    chains = [entry.sequence.last.chain() for entry in entries]
    depths = min(_DEPTHS, max(map(len, chains), default=0))
    return [
        [
            Chunk(
                entry.tokens,
                chain[depth:] if depth == _DEPTHS - 1 else chain[depth : depth + 1],
            )
            for entry, chain in zip(entries, chains, strict=True)
        ]
        for depth in range(depths)
    ]


@dataclass(slots=True)
class ForwardRound:
    """A batch, how it is computed, and its arrays.

    Attributes
    ----------
    entries
        The sequences in batch order.
    total
        Tokens appended by all.
    has_tree
        Whether token trees were given.
    chunks
        Chunks per depth.
    append_before
        Whether tokens are stored before attention.
    use_decode
        Per depth, whether the decode kernel reads it.
    plain
        Per depth, whether no tree mask is needed there; entry 0 speaks for the new tokens
        among themselves when these are not stored before.
    stored
        Layers (global numbers) whose rows are stored.
    finished
        Whether ``end_forward`` was called.
    settled
        Whether the tables and arrays are written down.
    shares_much
        Whether so many sequences of the batch share a block that it is read once for all.
    sends_pages, sends_tokens
        Whether rows go to another cache.
    """

    entries: list[Entry]
    total: int
    has_tree: bool
    chunks: list[list[Chunk]]
    append_before: bool
    use_decode: list[bool]
    plain: list[bool]
    exact: bool
    stored: set[int] = field(default_factory=set)
    finished: bool = False
    settled: bool = False
    shares_much: bool = False
    sends_pages: bool = False
    sends_tokens: bool = False
    tables: list[DepthTable] = field(default_factory=list)
    window_tables: list[DepthTable] = field(default_factory=list)
    arrays: IndexArrays = field(default_factory=IndexArrays)
    removed: set[int] = field(default_factory=set)

    @staticmethod
    def plan(
        entries: list[Entry], config: CacheConfig, *, has_tree: bool, needs_plan: bool
    ) -> "ForwardRound":
        """Decide how a batch is computed, before anything is reserved."""
        plain = chunks_per_depth(entries)
        decode = all(entry.tokens == 1 for entry in entries)
        chunks, use_decode, shares_much = [], [], False
        for depth, listed in enumerate(plain):
            merged = coalesce(listed)
            ratio = page_ratio(listed, merged)
            shares_much = shares_much or ratio >= _COALESCE_RATIO
            use_decode.append(decode and ratio < _COALESCE_RATIO)
            chunks.append(merged if not use_decode[-1] and depth == 0 else listed)
        append_before = bool(plain) and not config.sequence_sliding and use_decode[-1]
        if needs_plan and config.num_qo_heads // config.num_kv_heads >= 4:
            use_decode = [False] * len(use_decode)
        if any(not entry.sequence.committed for entry in entries):
            append_before = True
        return ForwardRound(
            entries,
            sum(entry.tokens for entry in entries),
            has_tree,
            chunks,
            append_before,
            use_decode,
            [True] * max(len(plain), 1),
            is_exact(),
            shares_much=shares_much,
        )

    # ---- arrays ------------------------------------------------------------------------------

    def begin_again(self) -> None:
        """Be the next round of the same batch, whose tokens are reserved; forget the arrays."""
        self.settled = self.finished = False
        if self.stored:
            self.stored = set()

    def settle(self, config: CacheConfig) -> None:
        """Write down tables and arrays if that has not been done; tokens are stored before."""
        if self.settled:
            return
        for entry in self.entries:
            entry.base = entry.sequence.length - entry.tokens
            entry.stored = entry.sequence.last.length - entry.tokens
        self.arrays = IndexArrays()
        self.fill_tables(config)
        self.fill_arrays(config)

    def fill_tables(self, config: CacheConfig) -> None:
        """Write down the pages of each depth as they are now."""
        self.tables = [DepthTable.of(chunks, exact=self.exact) for chunks in self.chunks]
        if not config.layer_sliding:
            return
        window = config.layer_sliding_window_size
        if self.exact:
            self.window_tables = [DepthTable.of_window(chunks, window) for chunks in self.chunks]
        else:
            # one table over whole chains, so that the window is the sequence's and not a block's
            chains = [Chunk(entry.tokens, entry.sequence.last.chain()) for entry in self.entries]
            self.window_tables = [DepthTable.of_window(chains, window)]

    def fill_arrays(self, config: CacheConfig) -> None:
        """Put all arrays into their buffer, in TVM's order; the tokens must be reserved."""
        self.settled = True
        arrays = self.arrays
        arrays.put("q_rope_position_map", self._positions())
        for depth, table in enumerate(self.tables):
            arrays.put(f"qo_indptr.{depth}", table.qo_indptr)
        for depth, table in enumerate(self.tables):
            arrays.put(f"page_indptr.{depth}", table.page_indptr)
        for depth, table in enumerate(self.tables):
            arrays.put(f"page_indices.{depth}", table.page_indices)
        for depth, table in enumerate(self.window_tables):
            arrays.put(f"window.page_indptr.{depth}", table.page_indptr)
        for depth, table in enumerate(self.window_tables):
            arrays.put(f"window.page_indices.{depth}", table.page_indices)
        rows = 3 if config.sequence_sliding else 1
        for depth, table in enumerate(self.tables):
            table.put_length_info(arrays, f"length_info.{depth}", rows=rows)
            if depth < len(self.window_tables):
                self.window_tables[depth].put_length_info(
                    arrays, f"window.length_info.{depth}", rows=3
                )
        for depth, table in enumerate(self.tables):
            arrays.put(f"k_rope_pos_offset.{depth}", table.k_rope_pos_offset)
            if depth < len(self.window_tables):
                arrays.put(
                    f"window.k_rope_pos_offset.{depth}",
                    self.window_tables[depth].k_rope_pos_offset,
                )
        appended = prefix_sums(entry.tokens for entry in self.entries)
        arrays.put("cur_append_length_indptr", appended)
        arrays.put("k_ragged_rope_pos_offset", [entry.base for entry in self.entries])
        arrays.put("append_position_map", self._append_slots())
        if config.enable_kv_transfer:
            self._put_transfers()
        self._put_trees()
        if config.layer_sliding and not self.exact:
            self._put_window_mask(config.layer_sliding_window_size, appended)

    def _positions(self) -> "array[int]":
        positions = array("i")
        for entry in self.entries:
            if self.has_tree:
                depths = node_depths(entry.sequence.tree)[-entry.tokens :]
                positions.extend([entry.base + depth for depth in depths])
            else:
                positions.extend(range(entry.base, entry.base + entry.tokens))
        return positions

    def _append_slots(self) -> "array[int]":
        """Where each new token goes; -1 if the window left it behind already."""
        slots = array("i")
        for entry in self.entries:
            block = entry.sequence.last
            first = block.length - entry.tokens
            if first == entry.stored and not block.offset:  # nothing ever left this block
                size = block.page_size
                slots.extend(
                    [
                        block.pages[token // size] * size + token % size
                        for token in range(first, first + entry.tokens)
                    ]
                )
                continue
            for j in range(entry.tokens):
                if entry.stored + j < block.sink:
                    slots.append(block.slot(entry.stored + j))
                elif first + j < block.sink:
                    slots.append(-1)
                else:
                    slots.append(block.slot(first + j))
        return slots

    def _put_transfers(self) -> None:
        remote, receivers = array("i"), array("i")
        local_slots, remote_slots, page_receivers = array("i"), array("i"), array("i")
        for entry in self.entries:
            send = entry.sequence.send
            if send is None:
                remote.extend([-1] * entry.tokens)
                receivers.extend([-1] * entry.tokens)
                continue
            for position in range(entry.base, entry.base + entry.tokens):
                at = position - send.begin
                sent = 0 <= at < len(send.slots)
                remote.append(send.slots[at] if sent else -1)
                receivers.append(send.receiver if sent else -1)
                self.sends_tokens = self.sends_tokens or sent
            # some of them may have been popped since
            unsent = min(entry.sequence.unsent, max(entry.base - send.begin, 0))
            if unsent:
                slots = [s for block in entry.sequence.last.chain() for s in block.slots()]
                local_slots.extend(slots[send.begin : send.begin + unsent])
                remote_slots.extend(send.slots[:unsent])
                page_receivers.extend([send.receiver] * unsent)
            entry.sequence.unsent = 0
        self.sends_pages = bool(local_slots)
        arrays = self.arrays
        arrays.put("kv_transfer_remote_position_map", remote)
        arrays.put("kv_transfer_recver_id", receivers)
        arrays.put("kv_transfer_page_to_page_local_position_map", local_slots)
        arrays.put("kv_transfer_page_to_page_remote_position_map", remote_slots)
        arrays.put("kv_transfer_page_to_page_recver_id", page_receivers)

    # ---- trees -------------------------------------------------------------------------------

    def trees_at(self, depth: int) -> list[tuple[int, ...]]:
        """Return the tree that each chunk brings at a depth; () if it belongs elsewhere."""
        if not self.append_before:
            return [entry.sequence.tree for entry in self.entries]
        if self.exact:
            ends = [min(len(entry.sequence.last.chain()), _DEPTHS) - 1 for entry in self.entries]
            return [
                entry.sequence.tree if end == depth else ()
                for entry, end in zip(self.entries, ends, strict=True)
            ]
        by_block = {id(entry.sequence.last): entry.sequence.tree for entry in self.entries}
        return [
            by_block.get(id(chunk.blocks[-1]), ()) if chunk.blocks else ()
            for chunk in self.chunks[depth]
        ]

    def decide_trees(self) -> None:
        """Find out at which depths trees need a mask; the trees must be set."""
        if not self.has_tree:
            return
        if not self.append_before:
            self.plain[0] = all(entry.sequence.is_chain for entry in self.entries)
            return
        for depth, chunks in enumerate(self.chunks):
            trees = self.trees_at(depth)
            self.plain[depth] = all(is_chain(tree) for tree in trees)
            if self.plain[depth] and not self.exact:
                # a new token sees everything before it: with one per sequence no mask is needed
                self.plain[depth] = all(
                    chunk.rows == 1 for chunk, tree in zip(chunks, trees, strict=True) if tree
                )

    def _put_trees(self) -> None:
        for depth, plain in enumerate(self.plain):
            if plain:
                continue
            trees = self.trees_at(depth)
            flat = [number for tree in trees for row in tree_mask(tree) for number in row]
            self.arrays.put(f"tree_attn_mask.{depth}", flat, (len(flat) // 2, 2))
            self.arrays.put(f"tree_attn_mn_indptr.{depth}", prefix_sums(map(len, trees)))

    def _put_window_mask(self, window: int, appended: "array[int]") -> None:
        """For a layer with a window: which new tokens see which new tokens."""
        if self.append_before or all(entry.tokens <= window for entry in self.entries):
            return
        flat = [
            number
            for entry in self.entries
            for row in window_mask(entry.tokens, window)
            for number in row
        ]
        self.arrays.put("window.mask", flat, (len(flat) // 2, 2))
        self.arrays.put("window.mn_indptr", appended)

    # ---- while it runs -------------------------------------------------------------------------

    def reserve_all(self, table: SequenceTable, *, sliding: bool) -> None:
        """Reserve the slots of all new tokens."""
        for entry in self.entries:
            reserve(table, entry.sequence, entry.tokens, sliding=sliding)

    def forget(self, seq_id: int) -> None:
        """Store no more rows of a sequence that was removed: its pages are others' now."""
        at = 0
        for entry in self.entries:
            if entry.sequence.seq_id == seq_id:
                self.arrays.forget("append_position_map", at, entry.tokens, -1)
                self.removed.add(seq_id)
            at += entry.tokens
