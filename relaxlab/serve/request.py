"""What is asked for, and how far each answer is.

A :class:`Request` never changes. Each of its ``n`` answers is an :class:`Entry`, the thing that the
scheduler moves around: prompt and output in one list of tokens, of which the first `computed` are
in the cache. A preempted entry keeps its tokens and computes them again, so "prefill", "decode" and
"recompute" are one rule: run the tokens that are not computed, then choose the next one.
Counterpart: MLC's request states.

Examples
--------
>>> entry = Entry(Request(0, prompt=(5, 6, 7), max_tokens=4), index=0)
>>> entry.remaining, entry.status.value
(3, 'waiting')
"""

from dataclasses import dataclass, field
from enum import Enum

from relaxlab.serve.sampler import Sampling

__all__ = ["Entry", "EntryId", "Output", "Request", "Status"]

EntryId = tuple[int, int]
"""Number of the request, and of the answer within it."""


class Status(Enum):
    """Where an entry is."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and what is wanted of it.

    Attributes
    ----------
    number
        Names the request; smaller ones arrived earlier.
    prompt
        Tokens, at least one.
    max_tokens
        Longest output.
    sampling
        How tokens are chosen. Answer ``i`` uses the seed ``sampling.seed + i``.
    stop
        Strings that end the output and are not part of it.
    stop_tokens
        Tokens that end the output and are part of it.
    n
        Number of answers; they share the prompt's pages.
    priority
        The smaller, the earlier; among equals the one that arrived first.
    """

    number: int
    prompt: tuple[int, ...]
    max_tokens: int = 16
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    stop_tokens: frozenset[int] = frozenset()
    n: int = 1
    priority: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be answered."""
        if not self.prompt:
            raise ValueError(f"request {self.number}: the prompt is empty; give at least one token")
        if self.max_tokens < 1:
            raise ValueError(
                f"request {self.number}: max_tokens: expected at least 1, got {self.max_tokens}"
            )
        if self.n < 1:
            raise ValueError(f"request {self.number}: n: expected at least 1, got {self.n}")


@dataclass(frozen=True, slots=True)
class Output:
    """What one step produced for one entry.

    Attributes
    ----------
    entry
        Request and answer.
    tokens
        New tokens, more than one after a successful speculation.
    text
        Text that is now certain; lags behind the tokens where a character or a stop string may
        still be completed.
    finished
        None, or why the output ended: ``"stop"``, ``"length"``, ``"cancelled"``, ``"failed"``.
    """

    entry: EntryId
    tokens: tuple[int, ...]
    text: str
    finished: str | None = None


@dataclass(slots=True, eq=False)
class Entry:
    """One answer in the making; only the engine changes it.

    Attributes
    ----------
    request, index
        What it answers.
    tokens
        Prompt and output.
    computed
        How many of them are in the cache.
    sequence
        Its sequence in the cache while it runs.
    status
        Where it is.
    leader
        The entry of the same request whose prompt is computed first; None once that is done.
    retries
        Failed operations so far.
    saved
        Keys and values on the host while it is swapped out, of the first ``saved_tokens`` tokens.
    told
        Output tokens that were handed out.
    arriving
        Ticket of the transfer that brings its prompt's keys and values; see `remote`.
    """

    request: Request
    index: int
    tokens: list[int] = field(default_factory=list)
    computed: int = 0
    sequence: int | None = None
    status: Status = Status.WAITING
    leader: "Entry | None" = None
    retries: int = 0
    saved: object | None = None
    saved_tokens: int = 0
    told: int = 0
    arriving: int | None = None

    def __post_init__(self) -> None:
        """Begin with the prompt."""
        self.tokens = list(self.request.prompt)

    @property
    def id(self) -> EntryId:
        """Request and answer."""
        return (self.request.number, self.index)

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sort key: the smallest runs first and is preempted last."""
        return (self.request.priority, self.request.number, self.index)

    @property
    def output(self) -> list[int]:
        """Tokens after the prompt."""
        return self.tokens[len(self.request.prompt) :]

    @property
    def remaining(self) -> int:
        """Tokens to run before the next one can be chosen."""
        return len(self.tokens) - self.computed

    def __repr__(self) -> str:
        return (
            f"Entry({self.request.number}.{self.index}, {self.status.value}, "
            f"{self.computed}/{len(self.tokens)} tokens)"
        )
