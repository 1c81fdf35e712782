"""The pages of a recorded cache at every moment.

The state at a position is a fold of the events before it; a state is kept now and then, so that
looking anywhere costs a bounded number of folds. Names of tokens follow the rows that hold them,
through forks, copies and slides. Counterpart: :class:`relaxlab.trace.Timeline` for the machine.

Examples
--------
>>> from relaxlab.runtime.kv.observer import BlockCreated, PagesAllocated, SequenceAdded
>>> from relaxlab.trace.pool_recorder import PoolRecorder
>>> recorder = PoolRecorder(num_pages=4, page_size=2)
>>> for event in (BlockCreated(0, 0), SequenceAdded(0, 0), PagesAllocated(0, (0,))):
...     recorder(event)
>>> timeline = PoolTimeline.of(recorder)
>>> [timeline.state(position).available for position in range(4)]
[4, 4, 4, 3]
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, Self

from relaxlab.runtime.kv.block import NO_PAGE
from relaxlab.runtime.kv.observer import (
    BlockCreated,
    BlockFreed,
    CacheCleared,
    Event,
    PagesFreed,
    PagesShared,
    PartialPageCopied,
    Popped,
    Slid,
    TokensAppended,
    TokensCompacted,
)
from relaxlab.runtime.kv.snapshot import BlockState, CacheState, StateFold
from relaxlab.serve.events import EngineState
from relaxlab.serve.events import fold as fold_engine
from relaxlab.trace.pool_events import (
    Called,
    EarlierDropped,
    PoolEvent,
    TokensNamed,
    is_cache_event,
    is_engine_event,
)
from relaxlab.trace.pool_losses import Loss, losses_of
from relaxlab.trace.pool_start import PoolStart

if TYPE_CHECKING:
    from relaxlab.trace.pool_recorder import PoolRecorder

__all__ = ["PoolTimeline", "page_of", "slot_of"]

_KEPT_EVERY: Final = 1024
_KEPT: Final = 256
_UNNAMED: Final = -1


class PoolTimeline:
    """Every state of a recording; position ``n`` is the moment before event ``n``.

    Parameters
    ----------
    events
        In order, from an empty cache on.
    num_pages, page_size
        Of the cache.
    name
        What the recording is called.
    tokens
        Texts that the events name tokens by.

    Attributes
    ----------
    calls : list of int
        Positions at which a call begins.
    """

    def __init__(
        self,
        events: Iterable[PoolEvent],
        num_pages: int,
        page_size: int,
        *,
        name: str = "cache",
        tokens: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.events = tuple(events)
        self.tokens = tuple(tokens)
        self.num_pages = num_pages
        self.page_size = page_size
        self.calls = [at for at, one in enumerate(self.events) if isinstance(one, Called)]
        # a state of a large pool is large: only so many are kept
        self._gap = max(_KEPT_EVERY, -(-len(self.events) // _KEPT))
        self._kept: list[CacheState] = []
        fold = StateFold(CacheState(num_pages, page_size))
        for at, event in enumerate(self.events):
            if at % self._gap == 0:
                self._kept.append(fold.state())
            fold = _after(fold, event)
        if not self._kept or len(self.events) % self._gap == 0:
            self._kept.append(fold.state())

    @classmethod
    def of(cls, recorder: "PoolRecorder") -> Self:
        """Return the timeline of what a recorder has up to now."""
        return cls(
            recorder.events,
            recorder.num_pages,
            recorder.page_size,
            name=recorder.name,
            tokens=recorder.tokens,
        )

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.events)

    def state(self, position: int) -> CacheState:
        """Return the state at a position; one outside the recording is an ``IndexError``."""
        self._require(position)
        kept = position // self._gap
        fold = StateFold(self._kept[kept])
        for event in self.events[kept * self._gap : position]:
            fold = _after(fold, event)
        return fold.state()

    def engine(self, position: int) -> EngineState | None:
        """Return the state of the engine at a position; None if no engine told anything."""
        self._require(position)
        start = None if self.start is None else self.start.engine
        told = any(is_engine_event(event) for event in self.events)
        if not told and start is None:
            return None
        before = start if position else None
        return fold_engine((e for e in self.events[:position] if is_engine_event(e)), before)

    def call(self, position: int) -> Called | None:
        """Return the call that an event before a position belongs to; None before the first."""
        self._require(position)
        earlier = [at for at in self.calls if at < position]
        found = self.events[earlier[-1]] if earlier else None
        return found if isinstance(found, Called) else None

    def names(self, position: int) -> dict[int, list[str]]:
        """Return the texts of the tokens in each block; "?" for a token that nobody named."""
        texts = [*self.tokens, "?"]
        names, _ = self._names(position)
        return {block: [texts[one] for one in found] for block, found in names.items()}

    def _names(self, position: int) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """Return the tokens of each block, and those of each sequence that are still to come."""
        self._require(position)
        names: dict[int, list[int]] = {}
        coming: dict[int, list[int]] = {}
        fold = StateFold(CacheState(self.num_pages, self.page_size))
        for event in self.events[:position]:
            if isinstance(event, TokensNamed):
                coming.setdefault(event.seq_id, []).extend(event.tokens)
            elif isinstance(event, Called) and event.refusal:
                coming.clear()  # what was named did not come
            elif isinstance(event, EarlierDropped):
                start = PoolStart.of(event)
                names = {block: list(found) for block, found in start.names.items()}
                coming = {sequence: list(found) for sequence, found in start.coming.items()}
            elif is_cache_event(event):
                _rename(names, coming, fold, event)
            fold = _after(fold, event)
        return names, coming

    @cached_property
    def start(self) -> PoolStart | None:
        """Where the recording begins, if earlier events were dropped."""
        first = self.events[0] if self.events else None
        return PoolStart.of(first) if isinstance(first, EarlierDropped) else None

    @property
    def dropped(self) -> int:
        """How many events before the recording were dropped."""
        first = self.events[0] if self.events else None
        return first.count if isinstance(first, EarlierDropped) else 0

    def since(self, position: int) -> tuple[PoolEvent, ...]:
        """Return the events from a position on, behind one that stands for all before."""
        if self.start is not None and position == 0:
            return self.events
        names, coming = self._names(position)
        moment = PoolStart(
            self.state(position), self.engine(position), names, coming, self.copies(position)
        )
        # the event that stands for what was dropped earlier is none of the recording's own
        count = self.dropped + position - (self.start is not None)
        return (moment.as_event(count), *self.events[position:])

    @cached_property
    def losses(self) -> tuple[Loss, ...]:
        """Evictions and preemptions: which pages, why, and who paid."""
        return tuple(losses_of(self))

    def copies(self, position: int) -> dict[int, tuple[int, int]]:
        """Return, for each page that began as a copy, the page it was copied from and its rows."""
        self._require(position)
        copies: dict[int, tuple[int, int]] = {}
        for event in self.events[:position]:
            match event:
                case CacheCleared():
                    copies.clear()
                case EarlierDropped():
                    copies = dict(PoolStart.of(event).copies)
                case PartialPageCopied(_, page, _, source_page, rows):
                    copies[page] = source_page, rows
                case PagesFreed(_, pages) | Slid(_, _, _, _, pages, _, _):
                    for page in pages:
                        copies.pop(page, None)
                case _:
                    pass
        return copies

    def _require(self, position: int) -> None:
        if not 0 <= position <= len(self.events):
            raise IndexError(
                f"position {position} is outside the recording: expected 0 to {len(self.events)}"
            )

    def __repr__(self) -> str:
        dropped = f", the first {self.dropped} dropped" if self.dropped else ""
        calls = f"{len(self.calls)} calls{dropped}"
        return f"PoolTimeline({self.name}, {len(self.events)} events, {calls})"


def _after(fold: StateFold, event: PoolEvent) -> StateFold:
    """Return a fold with one more event."""
    if isinstance(event, EarlierDropped):
        return StateFold(PoolStart.of(event).cache)
    if is_cache_event(event):
        fold.apply(event)
    return fold


def slot_of(block: BlockState, token: int, page_size: int) -> tuple[int, int]:
    """Return page and row of a block's token; the page is -1 where it has none (yet)."""
    row = token if token < block.sink else token - block.sink + block.offset
    place = row // page_size
    return block.pages[place] if place < len(block.pages) else NO_PAGE, row % page_size


def page_of(block: BlockState, page: int, page_size: int) -> list[tuple[int, int]]:
    """Return (row, token) of what a block holds in one of its pages."""
    slots = (slot_of(block, token, page_size) for token in range(block.length))
    return [(row, token) for token, (found, row) in enumerate(slots) if found == page]


def _rename(
    names: dict[int, list[int]],
    coming: dict[int, list[int]],
    fold: StateFold,
    event: Event,
) -> None:
    """Let the names follow an event that is about to be folded."""
    match event:
        case CacheCleared():
            names.clear()
            coming.clear()
        case BlockCreated(block, _):
            names[block] = []
        case BlockFreed(block):
            names.pop(block, None)
        case TokensAppended(seq_id, block, count):
            waiting = coming.get(seq_id, [])
            given = waiting[:count]
            del waiting[:count]
            names[block] += given + [_UNNAMED] * (count - len(given))
        case PagesShared(source, block, _, length, _, _):
            names[block] = names[source][:length]
            del names[source][:length]
        case PartialPageCopied(block, _, source, source_page, rows):
            found = _block(fold.state(), source)
            held = page_of(found, source_page, fold.state().page_size)[:rows]
            names[block] = [names[source][token] for _, token in held]
        case Popped(_, block, tokens, _, _):
            del names[block][len(names[block]) - tokens :]
        case Slid(_, block, tokens, _, _, sink, _):
            del names[block][sink : sink + tokens]
        case TokensCompacted(moves):
            state = fold.state()
            places = {
                page * state.page_size + row: (one.index, token)
                for one in state.blocks
                for token in range(one.length)
                for page, row in [slot_of(one, token, state.page_size)]
            }
            for source, target in moves:
                if source in places and target in places:
                    (block, token), (other, place) = places[source], places[target]
                    names[other][place] = names[block][token]
        case _:
            pass


def _block(state: CacheState, index: int) -> BlockState:
    return next(block for block in state.blocks if block.index == index)
