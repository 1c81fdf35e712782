"""What a recorded engine gave up, and who paid: evictions and preemptions, each in a few sentences.

An eviction forgets pages that a later request might have found; a preemption sends a running
request back to wait. Each loss says which pages, why, for whom they were needed, and what it cost
whom, as far as the recording goes. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.trace.pool_recorder import PoolRecorder
>>> from relaxlab.trace.pool_timeline import PoolTimeline
>>> losses_of(PoolTimeline.of(PoolRecorder(num_pages=2, page_size=4)))
[]
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from relaxlab.runtime.kv.observer import (
    PagesAllocated,
    PagesFreed,
    PlacesFilled,
    SequenceRemoved,
    TokensAppended,
)
from relaxlab.runtime.kv.snapshot import CacheState
from relaxlab.serve.events import (
    Admitted,
    Evicted,
    Forked,
    Preempted,
    Resumed,
    Scheduled,
)
from relaxlab.serve.request import EntryId
from relaxlab.trace.pool_events import Called, PoolEvent

__all__ = ["Loss", "Recording", "losses_of"]

_MOST: Final = 200
_FOLLOWED: Final = 40
"""Evictions whose tokens are looked for in later requests: each looks through the recording."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Something was given up.

    Attributes
    ----------
    event
        Number of the event that says so.
    text
        Which pages, why, and who paid.
    """

    event: int
    text: str


class Recording(Protocol):
    """What is asked of a recording: a :class:`relaxlab.trace.PoolTimeline`."""

    @property
    def events(self) -> tuple[PoolEvent, ...]:
        """Everything that happened."""

    def state(self, position: int) -> CacheState:
        """Return the cache at a position."""

    def names(self, position: int) -> dict[int, list[str]]:
        """Return the texts of the tokens in each block."""


def losses_of(timeline: Recording) -> list[Loss]:
    """Return the losses of a recording in order, the first 200."""
    losses: list[Loss] = []
    followed = 0
    for at, event in enumerate(timeline.events):
        if len(losses) == _MOST:
            break
        match event:
            case Evicted():
                followed += 1
                losses.append(Loss(at, _eviction(timeline, at, event, followed <= _FOLLOWED)))
            case Preempted():
                losses.append(Loss(at, _preemption(timeline, at, event)))
            case _:
                pass
    return losses


def _eviction(timeline: Recording, at: int, event: Evicted, follow: bool) -> str:
    first, pages, holder = _freed_before(timeline, at)
    named = _pages(pages) if pages else f"{event.pages} pages of node {event.node}"
    owner = _entry_of(timeline, first, holder)
    whose = f", kept from request {_name(owner)}," if owner is not None else ""
    parts = [f"{named}{whose} {'was' if len(pages) == 1 else 'were'} evicted. Why: {event.reason}."]
    taker = _taker(timeline, at, set(pages))
    if taker is not None:
        parts.append(f"Taken by request {_name(taker)}.")
    if follow and holder is not None:
        parts.append(f"Who paid: {_payers(timeline, at, first, holder)}.")
    return " ".join(parts)


def _preemption(timeline: Recording, at: int, event: Preempted) -> str:
    name = _name(event.entry)
    waited = 0
    ending = f"it had computed {event.computed} tokens, and does not go on in this recording"
    for later in timeline.events[at + 1 :]:
        match later:
            case Scheduled():
                waited += 1
            case Admitted(entry, _, kept) | Resumed(entry, _, kept) if entry == event.entry:
                again = max(0, event.computed - kept)
                ending = (
                    f"it waits {waited} round{'' if waited == 1 else 's'}, and computes {again} of "
                    f"{event.computed} tokens again"
                )
                break
            case _:
                pass
    return f"Request {name} was preempted ({event.mode}). Why: {event.reason}. Who paid: {ending}."


def _freed_before(timeline: Recording, at: int) -> tuple[int, list[int], int | None]:
    """Return the call that freed the pages of an evicted node, those pages, and whose they were."""
    pages: list[int] = []
    holder = None
    for index in range(at - 1, -1, -1):
        match timeline.events[index]:
            case PagesFreed(_, freed):
                pages = [*freed, *pages]
            case SequenceRemoved(seq_id, "evicted", _):
                holder = seq_id
            case Called():
                return index, pages if holder is not None else [], holder
            case Evicted() | Scheduled():
                break
            case _:
                pass
    return at, [], None


def _taker(timeline: Recording, at: int, pages: set[int]) -> EntryId | None:
    """Return the request whose tokens one of the pages holds next."""
    block = None
    for index, event in enumerate(timeline.events[at + 1 :], at + 1):
        match event:
            case PagesAllocated(found, taken) | PlacesFilled(found, taken) if pages & set(taken):
                block = found
            case TokensAppended(seq_id, found, _) if found == block:
                return _entry_of(timeline, index, seq_id)
            case _:
                pass
    return None


def _payers(timeline: Recording, at: int, first: int, holder: int) -> str:
    """Return which later requests computed tokens again that the evicted sequence held."""
    lost = _words_of(timeline, first, holder)
    payers = []
    for index, entry, sequence, cached in _admissions(timeline, at + 1):
        came = _words_of(timeline, _round_after(timeline, index), sequence)
        same = next(
            (n for n, pair in enumerate(zip(lost, came, strict=False)) if pair[0] != pair[1]),
            min(len(lost), len(came)),
        )
        if same > cached:
            payers.append(f"request {_name(entry)} computed {same - cached} of these tokens again")
    return "; ".join(payers) or "nobody: no later request of this recording began with these tokens"


def _admissions(timeline: Recording, first: int) -> Iterator[tuple[int, EntryId, int, int]]:
    for index, event in enumerate(timeline.events[first:], first):
        match event:
            case Admitted(entry, sequence, kept) | Resumed(entry, sequence, kept):
                yield index, entry, sequence, kept
            case _:
                pass


def _round_after(timeline: Recording, index: int) -> int:
    """Return the position at which the round after an admission is over."""
    rounds = 0
    for later in range(index, len(timeline.events)):
        if isinstance(timeline.events[later], Scheduled):
            rounds += 1
            if rounds == 2:
                return later
    return len(timeline.events)


def _words_of(timeline: Recording, position: int, sequence: int) -> list[str]:
    """Return the texts of a sequence's tokens at a position; none where it is not there."""
    state, names = timeline.state(position), timeline.names(position)
    return [name for block in _chain(state, sequence) for name in names[block]]


def _chain(state: CacheState, sequence: int) -> list[int]:
    blocks = {block.index: block for block in state.blocks}
    found = next((one for one in state.sequences if one.seq_id == sequence), None)
    chain: list[int] = []
    at = -1 if found is None else found.last_block
    while at != -1:
        chain.insert(0, at)
        at = blocks[at].parent
    return chain


def _entry_of(timeline: Recording, position: int, sequence: int | None) -> EntryId | None:
    """Return the request that was given a sequence last, before a position."""
    for event in reversed(timeline.events[:position]):
        match event:
            case Admitted(entry, found, _) | Resumed(entry, found, _) if found == sequence:
                return entry
            case Forked(entry, _, found, _) if found == sequence:
                return entry
            case _:
                pass
    return None


def _name(entry: EntryId) -> str:
    return f"{entry[0]}.{entry[1]}"


def _pages(pages: list[int]) -> str:
    return f"Page{'' if len(pages) == 1 else 's'} {', '.join(map(str, pages))}"
