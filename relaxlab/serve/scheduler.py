"""Who runs in the next round: three decisions, on one screen.

*Order*: the smaller ``(priority, arrival)``, the earlier; nobody overtakes in the waiting queue.
*Admission*: a waiting entry starts when its whole prompt fits beside one more page for every
running entry, and not while somebody is computing what it begins with: that is a hit soon.
*Preemption*: when a running entry cannot get its next page, cached prefixes are evicted, then the
running entry with the largest rank gives its pages back. So the first entry always gets on, and
nothing starves. One budget of tokens per round goes to entries in decode first, then to prompts in
chunks. Counterparts: vLLM V1's scheduler (budget, order, victim), MLC's admission reserve, the
in-batch prefix check of SGLang (kv.md 6).

The scheduler decides; the `Pool` does. Examples: see `relaxlab.serve.engine`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from relaxlab.serve.request import Entry
from relaxlab.serve.speculation import Draft

__all__ = ["Limits", "Plan", "Pool", "Scheduler", "Share"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much at once.

    Attributes
    ----------
    running
        Most entries that hold a sequence.
    tokens
        Most tokens of one round; never more than the model's chunk.
    reserve
        Free pages that admission leaves for each running entry.
    preemption
        What happens to the keys and values of a preempted entry: ``"recompute"`` forgets them,
        ``"swap"`` copies them to the host and back.
    draft_tokens, draft_width
        Guessed tokens per entry and round, and how many continuations they spread over; 0 tokens
        turn speculation off.
    retries
        Failed operations after which an entry is given up.
    """

    running: int = 64
    tokens: int = 512
    reserve: int = 1
    preemption: Literal["recompute", "swap"] = "recompute"
    draft_tokens: int = 0
    draft_width: int = 2
    retries: int = 8

    def __post_init__(self) -> None:
        """Refuse limits under which nothing can run."""
        for name, least in (
            ("running", 1),
            ("tokens", 1),
            ("reserve", 0),
            ("draft_tokens", 0),
            ("draft_width", 1),
            ("retries", 0),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: expected at least {least}, got {getattr(self, name)}")
        if self.draft_tokens > 255:
            raise ValueError(f"draft_tokens: expected at most 255, got {self.draft_tokens}")
        if self.preemption not in ("recompute", "swap"):
            raise ValueError(f"preemption: expected 'recompute' or 'swap', got {self.preemption!r}")


@dataclass(slots=True)
class Share:
    """What one entry gets in a round: its next ``count`` tokens, or its last one and a draft."""

    entry: Entry
    count: int
    draft: Draft | None = None

    @property
    def tokens(self) -> int:
        """Tokens that the round appends."""
        return self.count if self.draft is None else len(self.draft)


@dataclass(slots=True)
class Plan:
    """The next round: entries in decode, and chunks of prompts."""

    decodes: list[Share] = field(default_factory=list)
    chunks: list[Share] = field(default_factory=list)


class Pool(Protocol):
    """What the scheduler asks for, and tells."""

    @property
    def page_size(self) -> int:
        """Tokens in a page."""
        ...

    def available_pages(self) -> int:
        """Return the number of free pages."""
        ...

    def evict(self) -> bool:
        """Forget one cached prefix; False if there is none."""
        ...

    def preempt(self, entry: Entry, reason: str) -> None:
        """Take the pages of a running entry."""
        ...

    def admission_pages(self, entry: Entry) -> tuple[int, int]:
        """Return how many pages a waiting entry needs, and how many eviction could free for it."""
        ...

    def comes_soon(self, entry: Entry) -> bool:
        """Say whether a running entry is just computing what this one begins with."""
        ...

    def admit(self, entry: Entry, kept: int) -> bool:
        """Give a waiting entry a sequence if its pages and ``kept`` more are free, or become so."""
        ...

    def guess(self, entry: Entry) -> Draft:
        """Draft what follows an entry's tokens."""
        ...


class Scheduler:
    """The two queues, and the plan of the next round.

    Attributes
    ----------
    waiting
        By rank.
    running
        In the order of admission.
    """

    def __init__(self, limits: Limits, pool: Pool) -> None:
        self.limits = limits
        self.waiting: list[Entry] = []
        self.running: list[Entry] = []
        self._pool = pool
        self._reserved = 0  # pages that the plan in the making will take
        self._preempted = False

    def wait(self, entry: Entry) -> None:
        """Put an entry into the waiting queue."""
        self.waiting.append(entry)
        self.waiting.sort(key=lambda e: e.rank)

    def plan(self, budget: int) -> Plan:
        """Choose the next round of at most ``budget`` tokens; makes room for it in the pool."""
        plan = Plan()
        self._reserved = 0
        self._preempted = False
        ordered = sorted(self.running, key=lambda e: (e.remaining > 1, e.rank))
        for entry in ordered:
            if budget and entry in self.running and entry.arriving is None:
                budget -= self._continue(plan, entry, budget)
        # who just gave its pages back would only take them again
        while budget and not self._preempted and (first := self._admit_first(plan)) is not None:
            if first.arriving is None:
                budget -= self._continue(plan, first, budget)
        for share in plan.decodes:  # what is left over goes to guesses
            budget -= self._speculate(share, budget)
        return plan

    def _continue(self, plan: Plan, entry: Entry, budget: int) -> int:
        """Give a running entry its share, if there is room; return its tokens."""
        count = min(entry.remaining, budget)
        pages = self._new_pages(entry, count)
        while self._pool.available_pages() < self._reserved + pages:
            if self._pool.evict():
                continue
            victim = self._victim()
            if victim is None or (victim is entry and len(self.running) == 1):
                return 0  # alone, and still no room: what failed to be freed comes back later
            self._preempt(plan, victim, f"entry {_name(entry)} needs {pages} more pages")
            if victim is entry:
                return 0
        self._reserved += pages
        share = Share(entry, count)
        (plan.decodes if entry.remaining == 1 else plan.chunks).append(share)
        return count

    def _victim(self) -> Entry | None:
        """Return whom to preempt; pages that somebody else is writing to stay where they are."""
        movable = (entry for entry in self.running if entry.arriving is None)
        return max(movable, key=lambda e: e.rank, default=None)

    def _preempt(self, plan: Plan, victim: Entry, why: str) -> None:
        self._preempted = True
        for shares in (plan.decodes, plan.chunks):
            for share in [s for s in shares if s.entry is victim]:
                self._reserved -= self._new_pages(victim, share.count)
                shares.remove(share)
        rule = f"{why}; {_name(victim)} has the largest rank {victim.rank[:2]}"
        self._pool.preempt(victim, rule)

    def _admit_first(self, plan: Plan) -> Entry | None:
        """Admit the first waiting entry, if it may start; None ends admission for this round."""
        if len(self.running) >= self.limits.running:
            return None
        entry = next((e for e in self.waiting if e.leader is None), None)
        if entry is None or self._pool.comes_soon(entry):
            return None
        while True:
            pages, evictable = self._pool.admission_pages(entry)
            kept = sum(self._new_pages(e, e.remaining) for e in self.running)
            kept += self.limits.reserve * len(self.running)
            if not self.running or pages + kept <= self._pool.available_pages() + evictable:
                return entry if self._pool.admit(entry, kept) else None
            victim = self._victim()
            if victim is None or victim.request.priority <= entry.request.priority:
                return None
            self._preempt(plan, victim, f"entry {_name(entry)} is more urgent")

    def _speculate(self, share: Share, budget: int) -> int:
        """Add guesses to a decode where tokens and pages are left; return how many."""
        entry = share.entry
        if not self.limits.draft_tokens or budget <= 0:
            return 0
        tree = self._pool.guess(entry)
        free = self._pool.available_pages() - self._reserved
        while len(tree) > 1 and (
            len(tree) - 1 > budget
            or self._new_pages(entry, len(tree)) - self._new_pages(entry, 1) > free
        ):
            tree = tree.trimmed(len(tree) - 1)
        if len(tree) == 1:
            return 0
        self._reserved += self._new_pages(entry, len(tree)) - self._new_pages(entry, 1)
        share.draft = tree
        return len(tree) - 1

    def _new_pages(self, entry: Entry, count: int) -> int:
        return pages_for(entry.computed + count, self._pool.page_size) - pages_for(
            entry.computed, self._pool.page_size
        )


def pages_for(tokens: int, page_size: int) -> int:
    """Return the pages that so many tokens need; blocks of a sequence begin on whole pages."""
    return -(-tokens // page_size)


def _name(entry: Entry) -> str:
    return f"{entry.request.number}.{entry.index}"


def describe(entries: Iterable[Entry]) -> str:
    """Return the entries in one line, for messages."""
    return ", ".join(_name(entry) for entry in entries) or "nobody"
