"""What a recurrent state tells whoever watches it, and its bookkeeping rebuilt from that.

Every change is an event; folding them gives exactly what ``RNNState.snapshot()`` returns, so an
animation made from events cannot lie. Reads are told too; they change nothing.

================  =============================================================================
event             what it does to the folded state
================  =============================================================================
StateCleared      everything as at creation
SlotTaken         the top of the free stack becomes the slot of a new sequence
SlotFreed         a sequence is gone; its slot goes on top of the stack
StateForked       the top of the free stack becomes the slot of the child, with these counters
RoundStarted      set the round; nothing is written yet
StateRead         nothing
StateWritten      these sequences have the next value of one state
StateCarried      the same, and the next value is the current one
OldestLost        set how far a sequence can go back
Advanced          set a sequence's counters; its next values are the current ones now
RoundFinished     no round
RolledBack        set a sequence's counters; what it wrote in this round no longer counts
LeftRound         a sequence that is gone takes no part in the round
Misused           nothing (a warning was given)
================  =============================================================================

Examples
--------
>>> state = fold([SlotTaken(7, 0)], RNNSnapshot.initial(2))
>>> state.free_slots, dict(state.sequences)
((1,), {7: RNNSequence(slot=0, history_slot=0, available=0, length=0)})
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol, assert_never

__all__ = [
    "Advanced",
    "LeftRound",
    "Misused",
    "OldestLost",
    "RNNEvent",
    "RNNObserver",
    "RNNRound",
    "RNNSequence",
    "RNNSnapshot",
    "RolledBack",
    "RoundFinished",
    "RoundStarted",
    "SlotFreed",
    "SlotTaken",
    "StateCarried",
    "StateCleared",
    "StateForked",
    "StateRead",
    "StateWritten",
    "fold",
]

Cell = tuple[int, int]
"""A state of a layer: (layer, state)."""


# ---- the bookkeeping -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RNNSequence:
    """Where a sequence is.

    Attributes
    ----------
    slot
        Its row of the storage.
    history_slot
        Ring position of its current values.
    available
        How many one-token rounds can be taken back.
    length
        Tokens seen.
    """

    slot: int
    history_slot: int = 0
    available: int = 0
    length: int = 0


@dataclass(frozen=True, slots=True)
class RNNRound:
    """An open round.

    Attributes
    ----------
    seq_ids, append_lengths
        The batch, as it was begun.
    written
        For each sequence that still takes part, which (layer, state) has a next value.
    """

    seq_ids: tuple[int, ...]
    append_lengths: tuple[int, ...]
    written: Mapping[int, frozenset[Cell]]


@dataclass(frozen=True, slots=True)
class RNNSnapshot:
    """All bookkeeping of a recurrent state; the top of the free stack is its last entry."""

    free_slots: tuple[int, ...]
    sequences: Mapping[int, RNNSequence]
    round: RNNRound | None

    @classmethod
    def initial(cls, reserved_num_seqs: int) -> "RNNSnapshot":
        """Return the state at creation."""
        return cls(tuple(range(reserved_num_seqs))[::-1], MappingProxyType({}), None)


# ---- events ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StateCleared:
    """All sequences are forgotten; ``slots`` are free, and values stay where they are."""

    slots: int


@dataclass(frozen=True, slots=True)
class SlotTaken:
    """A new sequence; the initial values were written to ring position 0 of its slot."""

    seq_id: int
    slot: int


@dataclass(frozen=True, slots=True)
class SlotFreed:
    """A sequence is gone."""

    seq_id: int
    slot: int


@dataclass(frozen=True, slots=True)
class StateForked:
    """The whole ring of ``source_slot`` was copied to ``slot``; the child is ``back`` rounds back.

    ``history_slot``, ``available`` and ``length`` are the child's.
    """

    parent: int
    child: int
    source_slot: int
    slot: int
    back: int
    history_slot: int
    available: int
    length: int


@dataclass(frozen=True, slots=True)
class RoundStarted:
    """A batch is fixed."""

    seq_ids: tuple[int, ...]
    append_lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StateRead:
    """The current values of one state of these sequences were gathered."""

    layer: int
    state: int
    seq_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StateWritten:
    """The next values of one state of these sequences were written."""

    layer: int
    state: int
    seq_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StateCarried:
    """Nobody wrote a state of these sequences in the round, so its value was carried over."""

    layer: int
    state: int
    seq_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OldestLost:
    """The ring of a sequence was full, so its next values took the place of its oldest ones."""

    seq_id: int
    available: int


@dataclass(frozen=True, slots=True)
class Advanced:
    """The ring of a sequence moved on."""

    seq_id: int
    history_slot: int
    available: int
    length: int


@dataclass(frozen=True, slots=True)
class RoundFinished:
    """The round is over."""


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A sequence went back ``count`` rounds."""

    seq_id: int
    count: int
    history_slot: int
    available: int
    length: int


@dataclass(frozen=True, slots=True)
class LeftRound:
    """A sequence was removed while it took part in a round."""

    seq_id: int


@dataclass(frozen=True, slots=True)
class Misused:
    """A call was accepted with a warning."""

    message: str


RNNEvent = (
    StateCleared
    | SlotTaken
    | SlotFreed
    | StateForked
    | RoundStarted
    | StateRead
    | StateWritten
    | StateCarried
    | OldestLost
    | Advanced
    | RoundFinished
    | RolledBack
    | LeftRound
    | Misused
)


class RNNObserver(Protocol):
    """Whoever is told; it must not change the state."""

    def __call__(self, event: RNNEvent, /) -> object:
        """Take note of one event."""


# ---- folding ---------------------------------------------------------------------------------


def fold(events: Iterable[RNNEvent], state: RNNSnapshot) -> RNNSnapshot:
    """Return the bookkeeping after some events that followed ``state``."""
    for event in events:
        state = _after(state, event)
    return state


def _after(state: RNNSnapshot, event: RNNEvent) -> RNNSnapshot:
    match event:
        case StateCleared():
            return RNNSnapshot.initial(event.slots)
        case SlotTaken():
            return _with_new(state, event.seq_id, RNNSequence(event.slot))
        case StateForked():
            child = RNNSequence(event.slot, event.history_slot, event.available, event.length)
            return _with_new(state, event.child, child)
        case SlotFreed():
            rest = {k: v for k, v in state.sequences.items() if k != event.seq_id}
            return replace(
                state,
                free_slots=(*state.free_slots, event.slot),
                sequences=MappingProxyType(rest),
            )
        case RoundStarted():
            written = dict.fromkeys(event.seq_ids, frozenset[Cell]())
            started = RNNRound(event.seq_ids, event.append_lengths, MappingProxyType(written))
            return replace(state, round=started)
        case StateWritten() | StateCarried():
            return _with_written(state, event)
        case OldestLost():
            shorter = replace(state.sequences[event.seq_id], available=event.available)
            sequences = MappingProxyType({**state.sequences, event.seq_id: shorter})
            return replace(state, sequences=sequences)
        case Advanced() | RolledBack():
            return _with_counters(state, event)
        case RoundFinished():
            return replace(state, round=None)
        case LeftRound():
            assert state.round is not None
            left = {k: v for k, v in state.round.written.items() if k != event.seq_id}
            return replace(state, round=replace(state.round, written=MappingProxyType(left)))
        case StateRead() | Misused():
            return state
        case _:
            assert_never(event)


def _with_new(state: RNNSnapshot, seq_id: int, sequence: RNNSequence) -> RNNSnapshot:
    assert state.free_slots[-1] == sequence.slot, "slots are a stack"
    sequences = MappingProxyType({**state.sequences, seq_id: sequence})
    return replace(state, free_slots=state.free_slots[:-1], sequences=sequences)


def _with_written(state: RNNSnapshot, event: StateWritten | StateCarried) -> RNNSnapshot:
    if state.round is None:
        return state
    written = dict(state.round.written)
    for seq_id in event.seq_ids:
        if seq_id in written:
            written[seq_id] |= {(event.layer, event.state)}
    return replace(state, round=replace(state.round, written=MappingProxyType(written)))


def _with_counters(state: RNNSnapshot, event: Advanced | RolledBack) -> RNNSnapshot:
    old = state.sequences[event.seq_id]
    new = RNNSequence(old.slot, event.history_slot, event.available, event.length)
    sequences = MappingProxyType({**state.sequences, event.seq_id: new})
    in_round = state.round is not None and event.seq_id in state.round.written
    if state.round is None or not in_round or isinstance(event, Advanced):
        return replace(state, sequences=sequences)
    written = {**state.round.written, event.seq_id: frozenset[Cell]()}
    reopened = replace(state.round, written=MappingProxyType(written))
    return replace(state, sequences=sequences, round=reopened)
