"""The radix tree: a node holds as many pages as have no branch among them.

A child is found by a hash of its first page and then compared token by token, so that two pages
with one hash are still two pages. Counterpart: SGLang's radix cache with whole pages as keys;
MLC's tree of token pages.

Examples
--------
>>> tree = RadixTree(page_size=2, page_hash=lambda page: 0)  # everything collides
>>> for holder, tokens in enumerate([[1, 2, 3, 4], [1, 2, 5, 6], [7, 8]]):
...     match = tree.match(tokens)
...     _ = tree.extend(tree.seal(match), tokens[match.length:], holder)
>>> tree.match([1, 2, 5, 6, 9, 9]).length
4
"""

from collections.abc import Callable, Iterator

from relaxlab.serve.events import Observer
from relaxlab.serve.eviction import EvictionPolicy
from relaxlab.serve.prefix_tree import Node, PrefixTree, unobserved

__all__ = ["RadixTree"]


class RadixTree(PrefixTree):
    """Runs of pages.

    Parameters
    ----------
    page_size, policy, emit
        As for `PrefixTree`.
    page_hash
        Hash of a page of tokens; any function gives right answers.
    """

    name = "radix"

    def __init__(
        self,
        page_size: int,
        policy: EvictionPolicy | None = None,
        emit: Observer = unobserved,
        *,
        page_hash: Callable[[tuple[int, ...]], int] = hash,
    ) -> None:
        super().__init__(page_size, policy, emit)
        self._page_hash = page_hash
        # (number of the parent, hash of the first page) to the children with that hash
        self._index: dict[tuple[int, int], list[Node]] = {}

    def _key(self, parent: Node, page: tuple[int, ...]) -> tuple[int, int]:
        return (parent.number, self._page_hash(page))

    def _child(self, node: Node, page: tuple[int, ...]) -> Node | None:
        for child in self._index.get(self._key(node, page), ()):
            if child.tokens[: self.page_size] == page:
                return child
        return None

    def _enter(self, node: Node) -> None:
        assert node.parent is not None
        key = self._key(node.parent, node.tokens[: self.page_size])
        self._index.setdefault(key, []).append(node)

    def _forget(self, node: Node) -> None:
        assert node.parent is not None
        key = self._key(node.parent, node.tokens[: self.page_size])
        bucket = self._index[key]
        bucket.remove(node)
        if not bucket:
            del self._index[key]

    def _runs(self, tokens: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        yield tokens
