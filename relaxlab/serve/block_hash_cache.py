"""The table of full blocks by hash: a node is one page, found by a hash of all tokens up to it.

The hash of a page covers the hash of the page before, so one look-up says that a whole prefix is
equal. That is only very likely: here the tokens of a hit are compared too, and a forced collision
changes nothing. Pages with equal hashes may stand side by side. Counterpart: vLLM's automatic
prefix caching and nano-vllm's block manager, where a "block" is one page. The order of eviction
is the policy's; ``lru`` is vLLM's: freed earliest first, the tail of a request before its head.

Examples
--------
>>> table = BlockHashTree(page_size=2)
>>> leaf = table.extend(table.root, [1, 2, 3, 4], holder=0)
>>> table.match([1, 2, 3, 4, 5, 6]).length, len(table.nodes)
(4, 2)
"""

from collections.abc import Callable, Iterator
from hashlib import sha256

from relaxlab.serve.events import Observer
from relaxlab.serve.eviction import EvictionPolicy
from relaxlab.serve.prefix_tree import Node, PrefixTree, unobserved

__all__ = ["BlockHashTree", "block_hash"]


def block_hash(before: bytes, page: tuple[int, ...]) -> bytes:
    """Return the hash of a page after the pages that hash to ``before``: SHA-256 over both."""
    return sha256(before + b"".join(token.to_bytes(8, "little") for token in page)).digest()


class BlockHashTree(PrefixTree):
    """Single pages by chained hash.

    Parameters
    ----------
    page_size, policy, emit
        As for `PrefixTree`.
    chain
        Hash of a page given the hash of those before it; any function gives right answers.
    seed
        What the first page is chained to: separates users that must not see each other's hits
        (vLLM's cache salt).
    """

    name = "hash"

    def __init__(
        self,
        page_size: int,
        policy: EvictionPolicy | None = None,
        emit: Observer = unobserved,
        *,
        chain: Callable[[bytes, tuple[int, ...]], bytes] = block_hash,
        seed: bytes = b"",
    ) -> None:
        super().__init__(page_size, policy, emit)
        self._chain = chain
        self._hashes: dict[int, bytes] = {0: seed}
        self._table: dict[bytes, list[Node]] = {}

    def hash_of(self, node: Node) -> bytes:
        """Return the chained hash of a node."""
        return self._hashes[node.number]

    def _child(self, node: Node, page: tuple[int, ...]) -> Node | None:
        for block in self._table.get(self._chain(self._hashes[node.number], page), ()):
            if block.parent is node and block.tokens == page:
                return block
        return None

    def _enter(self, node: Node) -> None:
        assert node.parent is not None
        key = self._chain(self._hashes[node.parent.number], node.tokens)
        self._hashes[node.number] = key
        self._table.setdefault(key, []).append(node)

    def _forget(self, node: Node) -> None:
        key = self._hashes.pop(node.number)
        bucket = self._table[key]
        bucket.remove(node)
        if not bucket:
            del self._table[key]

    def _runs(self, tokens: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        for at in range(0, len(tokens), self.page_size):
            yield tokens[at : at + self.page_size]
