"""What the engine tells whoever watches it, and the state that these events add up to.

Key property: folding the events since the engine was made gives exactly `Engine.snapshot()`, after
every step. So a picture drawn from the events cannot lie. Events hold numbers and names, never
arrays. There is no TVM counterpart.

Examples
--------
>>> state = fold([Submitted((0, 0), prompt=3, priority=0), Admitted((0, 0), sequence=0, cached=0)])
>>> state.running, state.entries[0, 0].computed
(((0, 0),), 0)
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, assert_never

from relaxlab.serve.request import EntryId

__all__ = [
    "Admitted",
    "Advanced",
    "Cancelled",
    "Drafted",
    "Emitted",
    "EngineState",
    "EntryState",
    "Event",
    "Evicted",
    "Failed",
    "Finished",
    "Forked",
    "HolderMoved",
    "Missed",
    "NodeAdded",
    "NodePinned",
    "NodeRemoved",
    "NodeSplit",
    "NodeState",
    "Observer",
    "Preempted",
    "PrefixHit",
    "Resumed",
    "Retried",
    "Scheduled",
    "Submitted",
    "count",
    "fold",
]


@dataclass(frozen=True, slots=True)
class Submitted:
    """An entry joined the waiting queue."""

    entry: EntryId
    prompt: int
    priority: int


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """The first ``tokens`` tokens were found in the prefix cache, at ``node``."""

    sequence: int
    tokens: int
    node: int


@dataclass(frozen=True, slots=True)
class Missed:
    """Nothing, or no more, was found; ``report`` says where the nearest prefix differs, if any."""

    sequence: int
    report: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """A waiting entry got a sequence whose first ``cached`` tokens need no computing."""

    entry: EntryId
    sequence: int
    cached: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """A swapped-out entry got a sequence; ``restored`` tokens came back from the host."""

    entry: EntryId
    sequence: int
    restored: int


@dataclass(frozen=True, slots=True)
class Forked:
    """An entry of the same request took over the computed prompt of another."""

    entry: EntryId
    source: EntryId
    sequence: int
    computed: int


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A round is about to run these entries, so many tokens each."""

    kind: Literal["tokens", "tree"]
    batch: tuple[tuple[EntryId, int], ...]


@dataclass(frozen=True, slots=True)
class Advanced:
    """So many tokens of an entry are now in the cache."""

    entry: EntryId
    computed: int


@dataclass(frozen=True, slots=True)
class Drafted:
    """Of a tree of so many guessed tokens the accepted ones lay on one path."""

    entry: EntryId
    proposed: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Emitted:
    """An entry chose tokens."""

    entry: EntryId
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Preempted:
    """A running entry gave its pages back and waits again."""

    entry: EntryId
    mode: Literal["recompute", "swap"]
    computed: int
    reason: str


@dataclass(frozen=True, slots=True)
class Retried:
    """An operation failed; the entry gave its pages back and waits again."""

    entry: EntryId
    operation: str
    error: str


@dataclass(frozen=True, slots=True)
class Finished:
    """An entry is done."""

    entry: EntryId
    reason: Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """An entry was cancelled."""

    entry: EntryId


@dataclass(frozen=True, slots=True)
class Failed:
    """An entry was given up."""

    entry: EntryId
    error: str


@dataclass(frozen=True, slots=True)
class NodeAdded:
    """The prefix cache has a new node under ``parent``, in pages; 0 is the root."""

    node: int
    parent: int
    start: int
    pages: int


@dataclass(frozen=True, slots=True)
class NodeSplit:
    """The first ``pages`` pages of ``node`` became a node of their own, ``upper``."""

    node: int
    upper: int
    pages: int


@dataclass(frozen=True, slots=True)
class NodePinned:
    """A running sequence began (+1) or ceased (-1) to use a node and its ancestors."""

    node: int
    change: int


@dataclass(frozen=True, slots=True)
class HolderMoved:
    """Another sequence, or none, holds a node."""

    node: int
    holder: int | None


@dataclass(frozen=True, slots=True)
class Evicted:
    """A node is about to be forgotten, for this reason."""

    node: int
    pages: int
    policy: str
    reason: str


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """A node without children left the prefix cache."""

    node: int


Event = (
    Submitted
    | PrefixHit
    | Missed
    | Admitted
    | Resumed
    | Forked
    | Scheduled
    | Advanced
    | Drafted
    | Emitted
    | Preempted
    | Retried
    | Finished
    | Cancelled
    | Failed
    | NodeAdded
    | NodeSplit
    | NodePinned
    | HolderMoved
    | Evicted
    | NodeRemoved
)
Observer = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class EntryState:
    """An entry as the events tell it."""

    status: str
    sequence: int | None
    computed: int
    tokens: int
    output: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node of the prefix cache, in pages; parent 0 is the root, which is not told itself."""

    parent: int
    start: int
    pages: int
    holder: int | None
    pins: int


@dataclass(frozen=True, slots=True)
class EngineState:
    """Everything that a picture of the engine shows.

    Attributes
    ----------
    entries
        All entries ever submitted.
    running
        In the order of admission.
    nodes
        The prefix cache.
    hits, hit_tokens, evictions, preemptions, proposed, accepted
        Counters.
    """

    entries: dict[EntryId, EntryState] = field(default_factory=dict)
    running: tuple[EntryId, ...] = ()
    nodes: dict[int, NodeState] = field(default_factory=dict)
    hits: int = 0
    hit_tokens: int = 0
    evictions: int = 0
    preemptions: int = 0
    proposed: int = 0
    accepted: int = 0


def fold(events: Iterable[Event], start: EngineState | None = None) -> EngineState:
    """Return the state after the events, from an empty engine or from ``start``."""
    state = EngineState() if start is None else start
    fresh = replace(state, entries=dict(state.entries), nodes=dict(state.nodes))
    for event in events:
        fresh = count(_apply(fresh, event), event)
    return fresh


def count(state: EngineState, event: Event) -> EngineState:
    """Return the state with its counters brought up to date by one event."""
    match event:
        case PrefixHit(_, tokens):
            return replace(state, hits=state.hits + 1, hit_tokens=state.hit_tokens + tokens)
        case Drafted(_, proposed, accepted):
            return replace(
                state, proposed=state.proposed + proposed, accepted=state.accepted + accepted
            )
        case Evicted():
            return replace(state, evictions=state.evictions + 1)
        case Preempted():
            return replace(state, preemptions=state.preemptions + 1)
        case _:
            return state


def _apply(state: EngineState, event: Event) -> EngineState:
    """Apply one event; the dictionaries are ours and change in place."""
    entries, nodes = state.entries, state.nodes
    match event:
        case Submitted(entry, prompt):
            entries[entry] = EntryState("waiting", None, 0, prompt)
        case Admitted(entry, sequence, computed) | Resumed(entry, sequence, computed):
            entries[entry] = replace(
                entries[entry], status="running", sequence=sequence, computed=computed
            )
            return replace(state, running=(*state.running, entry))
        case Forked(entry, _, sequence, computed):
            entries[entry] = replace(
                entries[entry], status="running", sequence=sequence, computed=computed
            )
            return replace(state, running=(*state.running, entry))
        case Advanced(entry, computed):
            entries[entry] = replace(entries[entry], computed=computed)
        case Emitted(entry, tokens):
            old = entries[entry]
            entries[entry] = replace(
                old, tokens=old.tokens + len(tokens), output=old.output + tokens
            )
        case Preempted(entry) | Retried(entry):
            return _leave(state, entry, "waiting")
        case Finished(entry):
            return _leave(state, entry, "finished")
        case Cancelled(entry):
            return _leave(state, entry, "cancelled")
        case Failed(entry):
            return _leave(state, entry, "failed")
        case Scheduled() | Missed() | PrefixHit() | Drafted() | Evicted():
            pass
        case NodeAdded(node, parent, first, pages):
            nodes[node] = NodeState(parent, first, pages, None, 0)
        case NodeSplit(node, upper, pages):
            old_node = nodes[node]
            # every pin below is a pin above
            nodes[upper] = replace(old_node, pages=pages, holder=None)
            nodes[node] = replace(
                old_node,
                parent=upper,
                start=old_node.start + pages,
                pages=old_node.pages - pages,
            )
        case NodePinned(node, change):
            while node:
                nodes[node] = replace(nodes[node], pins=nodes[node].pins + change)
                node = nodes[node].parent
        case HolderMoved(node, holder):
            nodes[node] = replace(nodes[node], holder=holder)
        case NodeRemoved(node):
            del nodes[node]
        case _:
            assert_never(event)
    return state


def _leave(state: EngineState, entry: EntryId, status: str) -> EngineState:
    state.entries[entry] = replace(state.entries[entry], status=status, sequence=None, computed=0)
    return replace(state, running=tuple(e for e in state.running if e != entry))
