"""Cached prefixes on a cache that shares pages only by fork.

A finished sequence is not removed: cut to whole pages it becomes the *holder* of a path in the
tree. A new sequence whose prompt begins like a path is forked from a holder at the page boundary
where they part, which takes no page and copies nothing. To evict a leaf is to pop its tokens off
its holder, or to remove the holder when nothing else needs it. A running sequence pins what it was
forked from: its pages could not come back anyway, so evicting them would lose a prefix for nothing.
Counterpart: MLC's prefix cache (whole sequences in a radix tree over TVM's cache), with pages as
the unit and the pins of SGLang.

Examples
--------
>>> from relaxlab.serve.radix_tree import RadixTree
>>> class Sequences:
...     def add_sequence(self, sequence): print("add", sequence)
...     def remove_sequence(self, sequence, **why): print("remove", sequence)
...     def retain_sequence(self, sequence): print("retain", sequence)
...     def fork_sequence(self, parent, child, position): print("fork", parent, child, position)
...     def popn(self, sequence, tokens): print("popn", sequence, tokens)
>>> cache = PrefixCache(Sequences(), RadixTree(page_size=2))
>>> cache.open(0, [1, 2, 3, 4, 5])
add 0
0
>>> cache.keep(0, [1, 2, 3, 4, 5])
popn 0 1
retain 0
>>> cache.open(1, [1, 2, 3, 4])  # all is cached, but the last token must run to give logits
fork 0 1 2
2
"""

from collections.abc import Sequence
from typing import Protocol

from relaxlab.runtime.kv.observer import RemovalCause
from relaxlab.serve.events import Evicted, Missed, PrefixHit
from relaxlab.serve.prefix_tree import Match, Node, PrefixTree

__all__ = ["PrefixCache", "Sequences"]


class Sequences(Protocol):
    """The part of a paged cache that prefix caching needs; refused calls change nothing."""

    def add_sequence(self, sequence: int) -> None:
        """Begin an empty sequence."""
        ...

    def remove_sequence(
        self, sequence: int, *, cause: RemovalCause = "removed", reason: str = ""
    ) -> None:
        """Drop a sequence and give back what nobody else uses."""
        ...

    def retain_sequence(self, sequence: int) -> None:
        """Note that a sequence is kept for its contents only; never fails."""
        ...

    def fork_sequence(self, parent: int, child: int, position: int) -> None:
        """Begin a sequence with the first ``position`` tokens of another."""
        ...

    def popn(self, sequence: int, tokens: int) -> None:
        """Forget the last tokens of a sequence."""
        ...


class PrefixCache:
    """Opens and closes sequences, and remembers what they computed.

    Parameters
    ----------
    sequences
        The cache.
    tree
        The index; None remembers nothing.
    """

    def __init__(self, sequences: Sequences, tree: PrefixTree | None) -> None:
        self.tree = tree
        self._sequences = sequences
        self._pinned: dict[int, Node] = {}
        self._leftover: list[int] = []
        self._now = self._numbers = 0

    def new_sequence(self) -> int:
        """Return a number that no sequence had."""
        self._numbers += 1
        return self._numbers - 1

    @property
    def evictable_pages(self) -> int:
        """Pages that eviction can give back, at least."""
        return 0 if self.tree is None else self.tree.evictable_pages

    @property
    def leftover(self) -> tuple[int, ...]:
        """Sequences whose removal failed; `sweep` tries again."""
        return tuple(self._leftover)

    def prospect(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Return how many tokens `open` would find, and the pages evictable after it.

        Changes nothing.
        """
        if self.tree is None:
            return 0, 0
        match = self.tree.match(tokens[:-1])
        evictable, node = self.tree.evictable_pages, match.partial or match.node
        at: Node | None = node
        while at is not None and at.parent is not None:
            if not at.pins:
                matched = min(at.end, match.length) - at.start
                evictable -= matched // self.tree.page_size
            at = at.parent
        return match.length, evictable

    def open(self, sequence: int, tokens: Sequence[int]) -> int:
        """Begin a sequence and return how many of the tokens it already has.

        Always fewer than there are: the last token must run to give logits.

        Raises
        ------
        RuntimeError
            The cache refused; nothing has changed.
        """
        if self.tree is None:
            self._sequences.add_sequence(sequence)
            return 0
        self._now += 1
        match = self.tree.match(tokens[:-1])
        if not match.length:
            self._sequences.add_sequence(sequence)
            self._tell_miss(sequence, tokens)
            return 0
        holder = self.tree.holder(match.node if match.partial is None else match.partial)
        self._sequences.fork_sequence(holder, sequence, match.length)
        node = self.tree.seal(match)
        self.tree.pin(node, 1)
        self._pinned[sequence] = node
        self.tree.touch(node, self._now, hit=True)
        self.tree.emit(PrefixHit(sequence, match.length, node.number))
        if match.length + self.tree.page_size < len(tokens):
            self._tell_miss(sequence, tokens)
        return match.length

    def share(self, sequence: int, tokens: Sequence[int]) -> bool:
        """Make the beginning of a running sequence findable; False if the cache refuses.

        Parameters
        ----------
        sequence
            It goes on; a fork of it becomes the holder.
        tokens
            Its first tokens, at most those computed; whole pages of them are shared.
        """
        if self.tree is None:
            return False
        whole = len(tokens) // self.tree.page_size * self.tree.page_size
        match = self.tree.match(tokens[:whole])
        if match.length == whole or match.length > self._shared(sequence):
            return False
        holder = self.new_sequence()
        try:
            self._sequences.fork_sequence(sequence, holder, whole)
        except RuntimeError:
            return False
        self._now += 1
        leaf = self._insert(match, tokens[:whole], holder)
        self.tree.pin(leaf, 1)
        self._unpin(sequence)
        self._pinned[sequence] = leaf
        return True

    def adopt(self, child: int, parent: int) -> None:
        """Pin for a fork of a running sequence what the sequence itself has pinned."""
        node = self._pinned.get(parent)
        if self.tree is not None and node is not None:
            self.tree.pin(node, 1)
            self._pinned[child] = node

    def keep(
        self,
        sequence: int,
        tokens: Sequence[int],
        *,
        cause: RemovalCause = "removed",
        reason: str = "",
    ) -> None:
        """Close a sequence and remember it; ``tokens`` are exactly those that it has.

        Never fails: what cannot be kept is removed, and what cannot be removed is left for `sweep`.
        """
        tree = self.tree
        whole = 0 if tree is None else len(tokens) // tree.page_size * tree.page_size
        if tree is None or not whole:
            self.drop(sequence, cause=cause, reason=reason)
            return
        self._now += 1
        match = tree.match(tokens[:whole])
        if match.length == whole or match.length > self._shared(sequence):
            # Nothing new; or somebody else has put in the same pages meanwhile, and these are
            # copies. Every page of the tree is there once: what is pinned is then truly in use.
            tree.touch(match.node if match.partial is None else match.partial, self._now)
            self.drop(sequence, cause=cause, reason=reason)
            return
        if whole < len(tokens):
            try:
                self._sequences.popn(sequence, len(tokens) - whole)
            except RuntimeError:
                self.drop(sequence, cause=cause, reason=reason)
                return
        self._insert(match, tokens[:whole], sequence)
        self._unpin(sequence)

    def drop(self, sequence: int, *, cause: RemovalCause = "removed", reason: str = "") -> None:
        """Close a sequence without remembering it. Never fails, see `keep`."""
        self._remove(sequence, cause, reason)
        self._unpin(sequence)

    def evict(self) -> bool:
        """Forget one leaf; False if everything is in use.

        Raises
        ------
        RuntimeError
            The cache refused; nothing has changed.
        """
        tree = self.tree
        victim = None if tree is None else tree.victims.peek()
        if tree is None or victim is None:
            return False
        node = tree.nodes[victim.node]
        parent, holder = node.parent, node.holder
        assert parent is not None
        assert holder is not None
        policy = tree.victims.policy
        reason = policy.reason(victim, self._now)
        alone = parent.parent is not None and len(parent.children) == 1
        if alone:  # the parent becomes a leaf and needs a holder
            self._sequences.popn(holder, len(node.tokens))
        else:
            self._sequences.remove_sequence(holder, cause="evicted", reason=reason)
        tree.emit(Evicted(node.number, victim.pages, policy.name, reason))
        tree.remove(node)
        if alone:
            tree.hold(parent, holder)
        return True

    def clear(self) -> None:
        """Forget everything that no running sequence uses."""
        while self.evict():
            pass

    def sweep(self) -> None:
        """Try again to remove what could not be removed."""
        waiting, self._leftover = self._leftover, []
        for sequence in waiting:
            self._remove(sequence)

    def _insert(self, match: Match, tokens: Sequence[int], holder: int) -> Node:
        """Add what follows a match; a sequence that held the match alone is not needed any more."""
        assert self.tree is not None
        end = self.tree.seal(match)
        if end.holder is not None:
            self._remove(end.holder)
            self.tree.hold(end, None)
        leaf = self.tree.extend(end, tokens[match.length :], holder, self._now)
        self._sequences.retain_sequence(holder)
        self.tree.touch(leaf, self._now)
        return leaf

    def _remove(self, sequence: int, cause: RemovalCause = "removed", reason: str = "") -> None:
        try:
            self._sequences.remove_sequence(sequence, cause=cause, reason=reason)
        except RuntimeError:
            self._leftover.append(sequence)

    def _shared(self, sequence: int) -> int:
        """Return how many tokens of a sequence lie in pages of the tree."""
        node = self._pinned.get(sequence)
        return 0 if node is None else node.end

    def _unpin(self, sequence: int) -> None:
        node = self._pinned.pop(sequence, None)
        if node is not None and self.tree is not None:
            self.tree.pin(node, -1)

    def _tell_miss(self, sequence: int, tokens: Sequence[int]) -> None:
        assert self.tree is not None
        miss = self.tree.explain(tokens[:-1])
        self.tree.emit(Missed(sequence, "nothing like it is cached" if miss is None else str(miss)))
