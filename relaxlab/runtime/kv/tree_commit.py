"""Committing token trees: the accepted path of each is moved together, the rest is popped.

Counterpart: ``CommitAcceptedTokenTreeNodes`` of TVM's paged cache (kv.md 3.8), whose defects are
behind ``exact()``.

Examples
--------
A tree of 7 nodes in slots 5 to 11 whose accepted path is 0, 2, 6 needs two moves, slot 7 to 6 and
slot 11 to 7, and then a pop of 4.

>>> path_moves([5, 6, 7, 8, 9, 10, 11], [0, 2, 6])
[(7, 6), (11, 7)]
"""

from collections.abc import Sequence

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.runtime.kv import token_tree
from relaxlab.runtime.kv.exact import is_exact
from relaxlab.runtime.kv.observer import TokensCompacted
from relaxlab.runtime.kv.paged_state import PagedState
from relaxlab.runtime.kv.sequence import Sequence as CachedSequence
from relaxlab.runtime.tensor import tensor as new_tensor

__all__ = ["TreeCommits", "path_moves"]


def path_moves(slots: Sequence[int], path: Sequence[int]) -> list[tuple[int, int]]:
    """Return which slot goes to which, so that the nodes of a path lie one after the other."""
    return [(slots[node], slots[place]) for place, node in enumerate(path) if node != place]


class TreeCommits(PagedState):
    """A paged cache whose trees can be committed."""

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
            slots = [block.slot(token) for token in range(block.length - len(tree), block.length)]
            moves.append(path_moves(slots, token_tree.path_to(tree, leaf)))
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
                moves.append(path_moves(slots[at:], path))
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
