"""A small paged cache beside a model that knows no pages: what each sequence holds, token by token.

Every token has a number, and its key and value are rows of fixed tables, so contents can be read
back from the pages and outputs compared with a dense formula.
"""

from typing import Any

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.runtime.kv.attention import KernelSpec, pick
from relaxlab.runtime.kv.cache_config import AttnKind, CacheConfig
from relaxlab.runtime.kv.invariants import check
from relaxlab.runtime.kv.kernel_table import Backend, KernelTable
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.runtime.kv.snapshot import StateFold, snapshot
from relaxlab.runtime.kv.swap import restore_sequence, save_sequence

HEADS, KV_HEADS, SIZE = 2, 1, 2
SCALE = 0.7
TABLE = np.random.default_rng(3).standard_normal((2, 2048, KV_HEADS, SIZE)).astype("float32")


def kernels(config: CacheConfig, family: str | None = None) -> KernelTable:
    """Return our kernels for a configuration."""
    spec = KernelSpec(
        config.num_qo_heads,
        config.num_kv_heads,
        config.qk_head_dim,
        config.v_head_dim,
        page_size=config.page_size,
        dtype=str(config.dtype),
        layer_window=config.layer_sliding_window_size if config.layer_sliding else 0,
    )
    merge = pick("merge_state_inplace", spec, family)
    return KernelTable(
        merge=(merge, merge),
        split_rotary=pick("split_rotary", spec, family),
        copy_single_page=pick("copy_single_page", spec, family),
        debug_get_kv=pick("debug_get_kv", spec, family),
        compact_copy=pick("compact_copy", spec, family),
        transpose_append_mha=pick("transpose_append", spec, family),
        **{
            kind: Backend("tirx", pick(kind, spec, family))
            for kind in (
                *("ragged_prefill", "paged_prefill", "paged_decode"),
                *("paged_prefill_sliding", "paged_decode_sliding"),
                *("paged_prefill_tree", "ragged_prefill_tree"),
            )
        },
    )


def small_config(**changes: Any) -> CacheConfig:
    """Return a configuration of one layer with 10 pages of 3 tokens, or as changed."""
    given: dict[str, Any] = {
        "reserved_num_seqs": 2,
        "total_token_capacity": 27,
        "prefill_chunk_size": 64,
        "page_size": 3,
        "num_qo_heads": HEADS,
        "num_kv_heads": KV_HEADS,
        "qk_head_dim": SIZE,
    }
    return CacheConfig(**given | changes)


def ancestors(parents: list[int]) -> np.ndarray:
    """Return which node sees which node."""
    sees = np.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):
        if parent != -1:
            sees[node] |= sees[parent]
    return sees


class Modelled:
    """A cache and its model, kept in step; every operation checks everything.

    Attributes
    ----------
    held
        Token numbers of each sequence, as it keeps them.
    trees
        Parents and token numbers of uncommitted trees; the tokens are at the end of ``held``.
    """

    def __init__(
        self, config: CacheConfig, family: str | None = None, *, observed: bool = True
    ) -> None:
        self.cache = PagedAttentionKVCache(config, kernels(config, family))
        self.folded = StateFold(snapshot(self.cache)) if observed else None
        if self.folded is not None:
            self.cache.observer = self.folded.apply
        self.config = config
        self.held: dict[int, list[int]] = {}
        self.trees: dict[int, list[int]] = {}
        self.saved: dict[int, tuple[list[int], Any]] = {}
        self.next_token = 0
        self.operations = 0

    # ---- checks --------------------------------------------------------------------------------

    def verify(self) -> None:
        """Compare cache, events and model."""
        self.operations += 1
        check(self.cache)
        if self.folded is not None:
            assert self.folded.state() == snapshot(self.cache)
        assert {s.seq_id: s.length for s in self.cache.sequences} == {
            seq_id: len(tokens) for seq_id, tokens in self.held.items()
        }
        slots = {seq_id: self.cache.slots_of(seq_id) for seq_id in self.held}
        for seq_id, tokens in self.held.items():
            self.verify_contents(slots[seq_id], tokens)

    def verify_contents(self, slots: list[int], tokens: list[int]) -> None:
        page, row = np.divmod(np.array(slots, int), self.config.page_size)
        for pages in self.cache.pages:
            for which in (0, 1):
                got = pages.array[page, which, :, row]
                np.testing.assert_array_equal(got, TABLE[which, tokens])

    def refused(self, operation: Any, *arguments: Any) -> str:
        """Expect a refusal that changes nothing; return its message."""
        before, after = snapshot(self.cache), None
        try:
            operation(*arguments)
        except InternalError as error:
            after = str(error)
        assert after, "expected a refusal with a message"
        assert snapshot(self.cache) == before
        self.verify()
        return after

    # ---- operations ----------------------------------------------------------------------------

    def add(self, seq_id: int) -> None:
        self.cache.add_sequence(seq_id)
        self.held[seq_id] = []
        self.verify()

    def remove(self, seq_id: int) -> None:
        self.cache.remove_sequence(seq_id)
        del self.held[seq_id]
        self.trees.pop(seq_id, None)
        self.verify()

    def fork_position_allowed(self, parent: int, position: int) -> bool:
        sequence = self.cache.sequences.find(parent)
        if parent in self.trees:
            return False
        kept = sequence.length - sequence.last.length + sequence.last_block_sink
        return sequence.window == -1 or position <= kept

    def fork(self, parent: int, child: int, position: int) -> bool:
        """Fork; return whether it was done, which is known beforehand."""
        possible = self.fork_position_allowed(parent, position) and (
            position % self.config.page_size == 0 or self.cache.get_num_available_pages() > 0
        )
        if not possible:
            self.refused(self.cache.fork_sequence, parent, child, position)
            return False
        self.cache.fork_sequence(parent, child, position)
        self.held[child] = self.held[parent][:position]
        self.verify()
        return True

    def popn(self, seq_id: int, count: int) -> None:
        length = len(self.held[seq_id])
        before = snapshot(self.cache)
        refusal = ""
        try:
            self.cache.popn(seq_id, count)
        except InternalError as error:
            refusal = str(error)
        if refusal:
            # a partial page of a shared block, and nowhere to copy it to
            assert "full" in refusal
            assert self.cache.get_num_available_pages() == 0
            assert snapshot(self.cache) == before
            self.verify()
            return
        del self.held[seq_id][length - count :]
        if seq_id in self.trees:
            left = self.trees[seq_id][: max(len(self.trees[seq_id]) - count, 0)]
            self.trees[seq_id] = left
            if not left:
                del self.trees[seq_id]
        self.verify()

    def window(self, seq_id: int, window: int, sink: int) -> bool:
        sequence = self.cache.sequences.find(seq_id)
        prefix = sequence.length - sequence.last.length
        if sequence.window != -1 or prefix >= window:
            self.refused(self.cache.enable_sliding_window_for_seq, seq_id, window, sink)
            return False
        self.cache.enable_sliding_window_for_seq(seq_id, window, sink)
        self.verify()
        return True

    def clear(self) -> None:
        self.cache.clear()
        self.held, self.trees = {}, {}
        self.verify()

    def save(self, seq_id: int) -> None:
        self.saved[seq_id] = (list(self.held[seq_id]), save_sequence(self.cache, seq_id))
        self.remove(seq_id)

    def restore(self, seq_id: int) -> None:
        tokens, saved = self.saved[seq_id]
        needed = -(-len(tokens) // self.config.page_size)
        if needed > self.cache.get_num_available_pages():
            self.refused(restore_sequence, self.cache, seq_id, saved)
            return
        restore_sequence(self.cache, seq_id, saved)
        del self.saved[seq_id]
        self.held[seq_id] = tokens
        self.verify()

    def round(
        self,
        batch: list[tuple[int, int]],
        trees: dict[int, list[int]] | None = None,
    ) -> bool:
        """One round of (sequence, new tokens), with attention; return whether it was accepted.

        ``trees`` gives the parents of each sequence's new nodes.
        """
        ids, lengths = [seq_id for seq_id, _ in batch], [count for _, count in batch]
        flat = None if trees is None else [parent for seq_id in ids for parent in trees[seq_id]]
        waiting = [seq_id for seq_id in ids if seq_id in self.trees]
        enough = self.cache.pages_needed(ids, lengths) <= self.cache.get_num_available_pages()
        if not enough or (trees is None and waiting):
            message = self.refused(self.cache.begin_forward, ids, lengths, flat)
            if trees is not None or not waiting:
                assert "The KV cache is full" in message
            return False
        self.cache.begin_forward(tuple(ids), tuple(lengths), flat)
        if self.folded is not None:
            assert self.folded.state() == snapshot(self.cache)
        self.attend(batch, trees)
        self.cache.end_forward()
        self.verify()
        return True

    def attend(self, batch: list[tuple[int, int]], trees: dict[int, list[int]] | None) -> None:
        total = sum(count for _, count in batch)
        new = np.arange(self.next_token, self.next_token + total) % TABLE.shape[1]
        self.next_token += total
        random = np.random.default_rng(self.next_token)
        q = random.standard_normal((total, HEADS, SIZE)).astype("float32")
        qkv = np.concatenate([q, TABLE[0, new], TABLE[1, new]], axis=1)
        expected, windowed, at = [], [], 0
        for seq_id, count in batch:
            tokens = new[at : at + count].tolist()
            seen = self.held[seq_id] + tokens
            mask = self.visible(seq_id, count, trees)
            expected.append(dense(q[at : at + count], seen, mask))
            last = np.arange(len(seen) - count, len(seen))[:, None]
            # a tree that is no chain is accepted only where the window does not matter
            if trees is None or mask[:, len(seen) - count :].sum() == count * (count + 1) // 2:
                mask = mask & (np.arange(len(seen)) > last - self.config.layer_sliding_window_size)
            windowed.append(dense(q[at : at + count], seen, mask))
            self.append(seq_id, tokens, trees)
            at += count
        for layer in range(self.config.layer_begin, self.config.layer_end):
            o = np.full((total, HEADS, SIZE), np.nan, "float32")
            self.cache.attention_with_fused_qkv(layer, qkv, o, SCALE)
            kind = self.config.attn_kinds[layer]
            wanted = windowed if kind is AttnKind.MHA_SLIDING else expected
            np.testing.assert_allclose(o, np.concatenate(wanted), rtol=2e-4, atol=2e-5)

    def visible(self, seq_id: int, count: int, trees: dict[int, list[int]] | None) -> np.ndarray:
        """Which of the held and the new tokens each new token sees."""
        before = len(self.held[seq_id])
        if trees is None:
            return np.tri(count, before + count, before, dtype=bool)
        earlier = self.trees.get(seq_id, [])
        sees = ancestors([*earlier, *trees[seq_id]])[-count:]
        past = np.ones((count, before - len(earlier)), bool)
        return np.concatenate([past, sees], axis=1)

    def append(self, seq_id: int, tokens: list[int], trees: dict[int, list[int]] | None) -> None:
        held = self.held[seq_id] = self.held[seq_id] + tokens
        if trees is not None:
            self.trees[seq_id] = [*self.trees.get(seq_id, []), *trees[seq_id]]
        sequence = self.cache.sequences.find(seq_id)
        if self.config.sequence_sliding and 0 < sequence.window < len(held):
            prefix = sequence.length - sequence.last.length
            sink = max(sequence.sink, prefix)
            gone = len(held) - sequence.window
            self.held[seq_id] = held[:sink] + held[sink + gone :]

    def commit(self, leaves: dict[int, int]) -> None:
        self.cache.commit_accepted_token_tree_nodes(list(leaves), list(leaves.values()))
        for seq_id, leaf in leaves.items():
            parents = self.trees.pop(seq_id)
            path = []
            while leaf != -1:
                path.append(leaf)
                leaf = parents[leaf]
            first = len(self.held[seq_id]) - len(parents)
            nodes = self.held[seq_id][first:]
            self.held[seq_id] = self.held[seq_id][:first] + [nodes[n] for n in reversed(path)]
        self.verify()


def dense(q: np.ndarray, tokens: list[int], mask: np.ndarray) -> np.ndarray:
    """Return attention of queries to tokens, by the formula."""
    k, v = (
        np.repeat(TABLE[which, tokens], HEADS // KV_HEADS, axis=1).astype(float) for which in (0, 1)
    )
    scores = np.einsum("qhd,khd->hqk", q.astype(float), k) * SCALE
    weights = np.exp(np.where(mask[None], scores, -np.inf))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, v)
