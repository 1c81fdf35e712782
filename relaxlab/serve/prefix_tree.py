"""The tree of token prefixes that are in the cache: what both indexes have in common.

A node stands for whole pages of tokens that follow its parent's. A *holder* is a sequence of the
cache whose tokens are the path from the root to a leaf; every leaf has one, and what lies above is
held by any leaf below it. A *pin* marks a node, and all above it, as used by a running sequence.
Nodes without pins may be evicted, leaves first. The tree knows nothing of the cache itself: see
`prefix_cache`. Counterpart: the radix trees of MLC and SGLang, the block table of vLLM (kv.md 6).

Examples
--------
>>> from relaxlab.serve.radix_tree import RadixTree
>>> tree = RadixTree(page_size=2)
>>> leaf = tree.extend(tree.root, [1, 2, 3, 4], holder=7)
>>> tree.match([1, 2, 9, 9]).length, tree.explain([1, 2, 3, 9])
(2, NearMiss(matched=2, position=3, cached=4, wanted=9, node=1))
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from relaxlab.serve.events import (
    HolderMoved,
    NodeAdded,
    NodePinned,
    NodeRemoved,
    NodeSplit,
    NodeState,
    Observer,
)
from relaxlab.serve.eviction import LRU, EvictionPolicy, Usage, VictimQueue

__all__ = ["Match", "NearMiss", "Node", "PrefixTree", "unobserved"]


@dataclass(slots=True, eq=False)
class Node:
    """Whole pages of tokens after those of the parent.

    Attributes
    ----------
    number
        Names it in events; 0 is the root.
    tokens
        Its own tokens.
    start
        Tokens before them.
    parent, children
        Neighbours; children by number.
    holder
        Sequence of the cache that ends with this node; leaves only.
    pins
        Running sequences that use this node or one below it.
    created, last_used, hits
        For the eviction policy; times are ticks.
    """

    number: int
    tokens: tuple[int, ...]
    start: int
    parent: "Node | None"
    holder: int | None = None
    pins: int = 0
    created: int = 0
    last_used: int = 0
    hits: int = 0
    children: dict[int, "Node"] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """Tokens from the root to the end of this node."""
        return self.start + len(self.tokens)

    @property
    def prefix(self) -> tuple[int, ...]:
        """All tokens from the root to the end of this node."""
        parts, node = [self.tokens], self.parent
        while node is not None:
            parts.append(node.tokens)
            node = node.parent
        return tuple(token for part in reversed(parts) for token in part)

    def __repr__(self) -> str:
        return f"Node({self.number}, tokens {self.start} to {self.end}, {self.pins} pins)"


@dataclass(frozen=True, slots=True)
class Match:
    """The longest cached prefix.

    Attributes
    ----------
    node
        Last node that matched completely; the root if none did.
    partial, length
        A child of it of which a part matched, and the tokens matched in all.
    """

    node: Node
    partial: Node | None
    length: int


@dataclass(frozen=True, slots=True)
class NearMiss:
    """Where the prefix that came nearest first differs.

    Attributes
    ----------
    matched
        Tokens that were found, whole pages.
    position
        Index of the first token that differs.
    cached, wanted
        The token there, and the one asked for.
    node
        The node compared with.
    """

    matched: int
    position: int
    cached: int
    wanted: int
    node: int

    def __str__(self) -> str:
        return (
            f"token {self.position} differs: cached {self.cached}, wanted {self.wanted} "
            f"(node {self.node}; {self.matched} tokens matched in whole pages)"
        )


def unobserved(event: object) -> None:
    """Tell nobody."""


class PrefixTree(ABC):
    """Nodes, pins and the queue of victims; how a child is found is the subclass's business.

    Parameters
    ----------
    page_size
        Tokens in a page.
    policy
        Which unpinned leaf goes first.
    emit
        Gets an event for every change.

    Attributes
    ----------
    root
        The node of no tokens.
    victims
        Unpinned leaves, the next to evict first.
    evictable_pages
        Pages of all nodes without pins.
    """

    name = "none"

    def __init__(
        self, page_size: int, policy: EvictionPolicy | None = None, emit: Observer = unobserved
    ) -> None:
        if page_size < 1:
            raise ValueError(f"page_size: expected at least 1, got {page_size}")
        self.page_size = page_size
        self.emit = emit
        self.root = Node(0, (), 0, None)
        self.nodes: dict[int, Node] = {}
        self.victims = VictimQueue(LRU() if policy is None else policy)
        self.evictable_pages = 0
        self._numbers = 0

    @abstractmethod
    def _child(self, node: Node, page: tuple[int, ...]) -> Node | None:
        """Return the child whose first page is this one, compared token by token."""

    @abstractmethod
    def _enter(self, node: Node) -> None:
        """Make a node with its parent and tokens findable."""

    @abstractmethod
    def _forget(self, node: Node) -> None:
        """Undo `_enter`."""

    @abstractmethod
    def _runs(self, tokens: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Cut new tokens into those of one node each."""

    def match(self, tokens: Sequence[int]) -> Match:
        """Return the longest prefix of the tokens that is in the tree, in whole pages."""
        size, at, node = self.page_size, 0, self.root
        tokens = tuple(tokens)
        while at + size <= len(tokens):
            child = self._child(node, tokens[at : at + size])
            if child is None:
                break
            same = size
            while (
                same < len(child.tokens)
                and tokens[at + same : at + same + size] == child.tokens[same : same + size]
            ):
                same += size
            at += same
            if same < len(child.tokens):
                return Match(node, child, at)
            node = child
        return Match(node, None, at)

    def explain(self, tokens: Sequence[int]) -> NearMiss | None:
        """Compare with what is cached beside the longest match; None if there is nothing beside it.

        Costs a look at every child of the last node: for people, not for the hot path.
        """
        match = self.match(tokens)
        rest = tuple(tokens[match.node.end :])
        best: NearMiss | None = None
        for child in match.node.children.values():
            same = next(
                (i for i, (a, b) in enumerate(zip(child.tokens, rest, strict=False)) if a != b),
                None,
            )
            if same is not None and (best is None or match.node.end + same > best.position):
                at = match.node.end + same
                best = NearMiss(match.length, at, child.tokens[same], rest[same], child.number)
        return best

    def seal(self, match: Match) -> Node:
        """Return the node that ends where the match ends, splitting one if needed."""
        if match.partial is None:
            return match.node
        return self._split(match.partial, match.length - match.partial.start)

    def extend(self, node: Node, tokens: Sequence[int], holder: int, now: int = 0) -> Node:
        """Add tokens, whole pages, below a node; return the leaf, held by ``holder``."""
        tokens = tuple(tokens)
        if not tokens or len(tokens) % self.page_size:
            raise ValueError(
                f"expected whole pages of {self.page_size} tokens, got {len(tokens)} tokens"
            )
        for run in self._runs(tokens):
            self._numbers += 1
            child = Node(self._numbers, run, node.end, node, created=now, last_used=now)
            self._enter(child)
            node.children[child.number] = child
            self.nodes[child.number] = child
            self.evictable_pages += self.pages(child)
            self._refresh(node)
            self.emit(
                NodeAdded(
                    child.number, node.number, child.start // self.page_size, self.pages(child)
                )
            )
            node = child
        self.hold(node, holder)
        self._refresh(node)
        return node

    def remove(self, node: Node) -> None:
        """Remove a leaf without pins."""
        if node.children or node.pins or node.parent is None:
            raise ValueError(f"{node!r}: expected a leaf that nobody uses")
        self._forget(node)
        del node.parent.children[node.number]
        del self.nodes[node.number]
        self.victims.discard(node.number)
        self.evictable_pages -= self.pages(node)
        self.emit(NodeRemoved(node.number))
        self._refresh(node.parent)

    def pin(self, node: Node, change: int) -> None:
        """Count a running sequence in (+1) or out (-1) at a node and all above it."""
        if node.parent is None:
            return
        self.emit(NodePinned(node.number, change))
        at: Node | None = node
        while at is not None and at.parent is not None:
            before, at.pins = at.pins, at.pins + change
            if (before == 0) != (at.pins == 0):
                self.evictable_pages += self.pages(at) if at.pins == 0 else -self.pages(at)
                self._refresh(at)
            at = at.parent

    def touch(self, node: Node, now: int, *, hit: bool = False) -> None:
        """Stamp a node and all above it with a time of use."""
        at: Node | None = node
        while at is not None and at.parent is not None:
            at.last_used = now
            at.hits += hit
            self._refresh(at)
            at = at.parent

    def hold(self, node: Node, holder: int | None) -> None:
        """Let another sequence, or none, be the holder of a node."""
        if node.holder != holder:
            node.holder = holder
            self.emit(HolderMoved(node.number, holder))

    def holder(self, node: Node) -> int:
        """Return a sequence that has all tokens up to the end of a node."""
        while node.children:
            node = next(iter(node.children.values()))
        if node.holder is None:
            raise ValueError(f"{node!r}: a leaf without a holder")
        return node.holder

    def pages(self, node: Node) -> int:
        """Return the number of pages of a node."""
        return len(node.tokens) // self.page_size

    def snapshot(self) -> dict[int, NodeState]:
        """Return every node but the root, as `fold` tells it."""
        return {
            node.number: NodeState(
                0 if node.parent is None else node.parent.number,
                node.start // self.page_size,
                self.pages(node),
                node.holder,
                node.pins,
            )
            for node in self.nodes.values()
        }

    def check(self) -> None:
        """Raise AssertionError if an invariant does not hold."""
        reached = [self.root]
        for node in reached:
            reached.extend(node.children.values())
        assert {n.number for n in reached[1:]} == set(self.nodes)
        for node in reached[1:]:
            assert node.parent is not None
            assert len(node.tokens) % self.page_size == 0 < len(node.tokens)
            assert node.start == node.parent.end
            assert self._child(node.parent, node.tokens[: self.page_size]) is node
            assert (node.holder is None) == bool(node.children), f"{node!r}: {node.holder}"
            assert node.pins >= sum(child.pins for child in node.children.values()) >= 0
        unpinned = [n for n in reached[1:] if not n.pins]
        assert self.evictable_pages == sum(map(self.pages, unpinned))
        assert len(self.victims) == sum(not n.children for n in unpinned)
        holders = [n.holder for n in reached if n.holder is not None]
        assert len(set(holders)) == len(holders)

    def _split(self, node: Node, tokens: int) -> Node:
        """Cut a node in two; the upper part is new, the lower one keeps number and holder."""
        assert node.parent is not None
        parent = node.parent
        self._forget(node)
        self._numbers += 1
        upper = Node(
            self._numbers,
            node.tokens[:tokens],
            node.start,
            parent,
            pins=node.pins,
            created=node.created,
            last_used=node.last_used,
            hits=node.hits,
        )
        del parent.children[node.number]
        parent.children[upper.number] = upper
        node.tokens, node.start, node.parent = node.tokens[tokens:], upper.end, upper
        upper.children[node.number] = node
        self.nodes[upper.number] = upper
        self._enter(upper)
        self._enter(node)
        self.emit(NodeSplit(node.number, upper.number, self.pages(upper)))
        self._refresh(node)
        return upper

    def _refresh(self, node: Node) -> None:
        """Bring the queue of victims up to date about a node."""
        if node.parent is None or node.children or node.pins:
            self.victims.discard(node.number)
        else:
            self.victims.put(
                Usage(node.number, self.pages(node), node.created, node.last_used, node.hits)
            )
