"""The common round, made cheap: the same batch as before, one more token for each sequence.

Generation is this round, thousands of times. Nothing about the batch has to be decided again, so
beginning it is counting: every sequence and every last block is one token longer, and now and then
a block takes a page. The index arrays are written down when something first asks for them, from
blocks that cannot have changed meanwhile: whatever changes the cache asks first.
There is no TVM counterpart; what the round is, and its arrays, are the same as otherwise.

Examples
--------
``begin_forward([0, 1], [1, 1])`` after a finished round ``[0, 1], [1, 1]`` takes this way; after a
fork in between, with a window, a tree or an observer, it does not.
"""

from relaxlab.runtime.kv.block import Block, BlockTree
from relaxlab.runtime.kv.cache_config import CacheConfig
from relaxlab.runtime.kv.forward_round import ForwardRound
from relaxlab.runtime.kv.sequence import Sequence as CachedSequence

__all__ = ["SteadyDecode"]


class SteadyDecode:
    """A decode round that can be begun again.

    Parameters
    ----------
    batch
        The round, whose tokens are reserved.
    tree
        Where pages come from.
    """

    __slots__ = ("_batch", "_pairs", "_room", "_tree", "append_lengths", "exact", "seq_ids")

    def __init__(self, batch: ForwardRound, tree: BlockTree) -> None:
        self.seq_ids = tuple(entry.sequence.seq_id for entry in batch.entries)
        self.append_lengths = (1,) * len(self.seq_ids)
        self.exact = batch.exact
        self._batch = batch
        self._tree = tree
        self._pairs: list[tuple[CachedSequence, Block]] = [
            (entry.sequence, entry.sequence.last) for entry in batch.entries
        ]
        self._room = self._least_room()

    @staticmethod
    def after(batch: ForwardRound, tree: BlockTree, config: CacheConfig) -> "SteadyDecode | None":
        """Return how to go on after a round; None if the next one must be decided anew."""
        if (
            config.sequence_sliding
            or config.enable_kv_transfer
            or batch.has_tree
            or not batch.append_before
            or batch.shares_much  # the more tokens follow, the less it is: decide again
            or not batch.entries
            or any(entry.tokens != 1 for entry in batch.entries)
        ):
            return None
        return SteadyDecode(batch, tree)

    def again(self) -> bool:
        """Begin the round once more.

        False, and nothing done, if the one before was not finished or the pool lacks pages.
        """
        if not self._batch.finished:
            return False
        if not self._room and not self._take_pages():
            return False
        self._room -= 1
        for sequence, block in self._pairs:
            sequence.length += 1
            block.length += 1
        self._batch.begin_again()
        return True

    def _take_pages(self) -> bool:
        size = self._tree.page_size
        full = [block for _, block in self._pairs if len(block.pages) * size == block.length]
        if len(full) > self._tree.pool.available:
            return False
        for block in full:
            block.pages.append(self._tree.pool.take(block.index))
        self._room = self._least_room()
        return True

    def _least_room(self) -> int:
        """Tokens until the first block needs a page."""
        size = self._tree.page_size
        return min(len(block.pages) * size - block.length for _, block in self._pairs)
