"""Which cached prefix is forgotten first, and why.

A policy is a sort key over what is known about a node; the smallest key goes first. The queue
keeps candidates in a heap whose outdated entries are skipped, so that finding a victim costs a
logarithm of the number of cached prefixes and never a walk over them. Counterpart: the policies of
SGLang's radix cache (lru, lfu, fifo); MLC evicts one recycled sequence.

Examples
--------
>>> policy = POLICIES.get("lru")
>>> policy.key(Usage(node=4, pages=2, created=1, last_used=7, hits=3))
(7,)
>>> policy.reason(Usage(node=4, pages=2, created=1, last_used=7, hits=3), now=9)
'lru: not used for 2 ticks (last at tick 7), the longest of all'
"""

import heapq
from dataclasses import dataclass
from typing import Final, Protocol

from relaxlab.registry import Registry

__all__ = ["EvictionPolicy", "FIFO", "LFU", "LRU", "POLICIES", "Usage", "VictimQueue"]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a policy may know of a cached prefix; times are ticks of the prefix cache's clock."""

    node: int
    pages: int
    created: int
    last_used: int
    hits: int


class EvictionPolicy(Protocol):
    """An order over cached prefixes."""

    @property
    def name(self) -> str:
        """Short name, the one in `POLICIES`."""
        ...

    def key(self, usage: Usage) -> tuple[int, ...]:
        """Return the sort key: the smallest is evicted first."""
        ...

    def reason(self, usage: Usage, now: int) -> str:
        """Say in one line why this one goes first."""
        ...


@dataclass(frozen=True, slots=True)
class LRU:
    """Least recently used."""

    name: str = "lru"

    def key(self, usage: Usage) -> tuple[int, ...]:
        """Sort by the last use."""
        return (usage.last_used,)

    def reason(self, usage: Usage, now: int) -> str:
        """Tell how long it lay unused."""
        return (
            f"lru: not used for {now - usage.last_used} ticks (last at tick {usage.last_used}), "
            f"the longest of all"
        )


@dataclass(frozen=True, slots=True)
class LFU:
    """Least frequently used, the least recent of those."""

    name: str = "lfu"

    def key(self, usage: Usage) -> tuple[int, ...]:
        """Sort by hits, then by the last use."""
        return (usage.hits, usage.last_used)

    def reason(self, usage: Usage, now: int) -> str:
        """Tell how often it was hit."""
        return f"lfu: {usage.hits} hits, the fewest of all (last at tick {usage.last_used})"


@dataclass(frozen=True, slots=True)
class FIFO:
    """First in, first out."""

    name: str = "fifo"

    def key(self, usage: Usage) -> tuple[int, ...]:
        """Sort by age."""
        return (usage.created,)

    def reason(self, usage: Usage, now: int) -> str:
        """Tell how old it is."""
        return (
            f"fifo: cached for {now - usage.created} ticks (since tick {usage.created}), "
            f"the longest of all"
        )


POLICIES: Final[Registry[EvictionPolicy]] = Registry("eviction policy")
for _policy in (LRU(), LFU(), FIFO()):
    POLICIES.register(_policy.name, _policy)


class VictimQueue:
    """Candidates for eviction, the next victim first.

    Parameters
    ----------
    policy
        The order.
    """

    def __init__(self, policy: EvictionPolicy) -> None:
        self.policy = policy
        self._current: dict[int, tuple[tuple[int, ...], Usage]] = {}
        self._heap: list[tuple[tuple[int, ...], int]] = []

    def __len__(self) -> int:
        return len(self._current)

    def put(self, usage: Usage) -> None:
        """Add a candidate, or replace what was known about it."""
        key = self.policy.key(usage)
        known = self._current.get(usage.node)
        self._current[usage.node] = (key, usage)
        if known is None or known[0] != key:
            heapq.heappush(self._heap, (key, usage.node))
            if len(self._heap) > 2 * len(self._current) + 16:  # mostly outdated entries
                self._heap = [(k, node) for node, (k, _) in self._current.items()]
                heapq.heapify(self._heap)

    def discard(self, node: int) -> None:
        """Forget a candidate, known or not."""
        self._current.pop(node, None)

    def peek(self) -> Usage | None:
        """Return the next victim and leave it in the queue; None if there is no candidate."""
        while self._heap:
            key, node = self._heap[0]
            known = self._current.get(node)
            if known is not None and known[0] == key:
                return known[1]
            heapq.heappop(self._heap)
        return None
