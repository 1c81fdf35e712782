"""What a paged cache tells whoever watches it: one event for every change of its state.

Folding the events (``snapshot.fold``) gives exactly what ``cache.snapshot()`` returns, after
every operation, also after one that was refused: an animation made from events cannot lie.

======================  =====================================================================
event                   what it does to the folded state
======================  =====================================================================
CacheCleared            everything as at creation
BlockCreated            a new empty block takes the number of the block freed last, or the next
BlockLinked             set ``parent`` of a block
BlockFreed              drop a block without pages; its number is the next one taken
PagesAllocated          pages go from the top of the free stack to the end of a block
PagesFreed              pages leave a block and go onto the stack, in the order given
PlacesBorrowed          a block gets places without pages (-1) for a window in a full pool
PlacesFilled            the -1 places of a block, front to back, get pages from the stack
PagesShared             the first pages of a block move to a new block before it
PartialPageCopied       rows of another block's page are copied: the block has that many tokens
SequenceAdded           a sequence begins, ending in a block
SequenceForked          a sequence begins as the start of another one, ending in a block
SequenceMoved           a sequence now ends in another block
SequenceRenamed         a sequence gets another id
SequenceRemoved         drop a sequence (finished, evicted, preempted: ``cause``)
SequenceRetained        nobody computes this sequence any more; its pages may be evicted
SequenceRevived         somebody does again
WindowEnabled           set window and sink of a sequence
SinkMoved               set how many sink tokens lie in a sequence's last block
RoundStarted            set the round
TokensCounted           a sequence's length grows
TokensAppended          a block's length grows: slots are reserved
Slid                    tokens and pages behind the sink leave a block and its sequence
Popped                  the last tokens of a block leave it and its sequence
TreeGrown               set a sequence's uncommitted tree
TreeDropped             the tree is committed or forgotten
TokensCompacted         nothing (rows move within the pages)
RowsStored              a layer of the round holds its rows
KernelRan               nothing (the tape of kernel calls)
RoundFinished           the round is over
SendMarked              set where a sequence's rows are sent; None: nowhere
PagesSent, TokensSent   nothing (data leaves)
SequenceExported,       nothing (data leaves)
GroupExported
ImportPrepared          an import begins: no group is here yet
GroupImported           one more group is here
ImportFinished          the import is over
SequenceImported        nothing (data came)
Misused                 nothing (a warning was given)
======================  =====================================================================

Page numbers are the same in every layer. A slot is ``page * page_size + row``.

Examples
--------
>>> events: list[Event] = []
>>> observer: Observer = events.append
>>> observer(PagesAllocated(block=0, pages=(0, 1)))
>>> events[0].pages
(0, 1)
"""

from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = [
    "BlockCreated",
    "BlockFreed",
    "BlockLinked",
    "CacheCleared",
    "Event",
    "GroupExported",
    "GroupImported",
    "ImportFinished",
    "ImportPrepared",
    "KernelRan",
    "Misused",
    "Observer",
    "PagesAllocated",
    "PagesFreed",
    "PagesSent",
    "PagesShared",
    "PartialPageCopied",
    "PlacesBorrowed",
    "PlacesFilled",
    "Popped",
    "RemovalCause",
    "RoundFinished",
    "RoundStarted",
    "RowsStored",
    "SendMarked",
    "SequenceAdded",
    "SequenceExported",
    "SequenceForked",
    "SequenceImported",
    "SequenceMoved",
    "SequenceRemoved",
    "SequenceRenamed",
    "SequenceRetained",
    "SequenceRevived",
    "SinkMoved",
    "Slid",
    "TokensAppended",
    "TokensCompacted",
    "TokensCounted",
    "TokensSent",
    "TreeDropped",
    "TreeGrown",
    "WindowEnabled",
]

RemovalCause = Literal["removed", "evicted", "preempted"]


@dataclass(frozen=True, slots=True)
class CacheCleared:
    """All sequences are forgotten."""


# ---- blocks and pages ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlockCreated:
    """An empty block without pages; ``start`` is the position of its first token."""

    block: int
    start: int


@dataclass(frozen=True, slots=True)
class BlockLinked:
    """A block follows ``parent`` (-1: none) from now on."""

    block: int
    parent: int


@dataclass(frozen=True, slots=True)
class BlockFreed:
    """A block is gone."""

    block: int


@dataclass(frozen=True, slots=True)
class PagesAllocated:
    """A block got pages, in this order."""

    block: int
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PagesFreed:
    """A block gave pages back; the last one is taken next."""

    block: int
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlacesBorrowed:
    """A block got ``count`` places at its end without pages: the pool is empty."""

    block: int
    count: int


@dataclass(frozen=True, slots=True)
class PlacesFilled:
    """The places without pages got these."""

    block: int
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PagesShared:
    """The first ``pages`` of ``source`` moved to ``block``, which now precedes it.

    ``block`` holds ``length`` tokens; ``sink`` and ``offset`` are what ``source`` has left.
    """

    source: int
    block: int
    pages: tuple[int, ...]
    length: int
    sink: int
    offset: int


@dataclass(frozen=True, slots=True)
class PartialPageCopied:
    """The first ``rows`` rows of ``source_page`` (of ``source``) now fill ``page`` of a block."""

    block: int
    page: int
    source: int
    source_page: int
    rows: int


# ---- sequences -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SequenceAdded:
    """A new, empty sequence."""

    seq_id: int
    block: int


@dataclass(frozen=True, slots=True)
class SequenceForked:
    """``child`` begins with the first ``position`` tokens of ``parent``."""

    parent: int
    child: int
    position: int
    block: int


@dataclass(frozen=True, slots=True)
class SequenceMoved:
    """A sequence ends in another block."""

    seq_id: int
    block: int


@dataclass(frozen=True, slots=True)
class SequenceRenamed:
    """A sequence (hidden while ``popn`` was at work) has its final name."""

    old: int
    new: int


@dataclass(frozen=True, slots=True)
class SequenceRemoved:
    """A sequence is gone; ``reason`` says in words why it was chosen, if it was."""

    seq_id: int
    cause: RemovalCause
    reason: str


@dataclass(frozen=True, slots=True)
class SequenceRetained:
    """A sequence is kept for its contents only."""

    seq_id: int


@dataclass(frozen=True, slots=True)
class SequenceRevived:
    """A retained sequence is in use again."""

    seq_id: int


@dataclass(frozen=True, slots=True)
class WindowEnabled:
    """A sequence keeps ``sink`` first tokens and ``window`` in all."""

    seq_id: int
    window: int
    sink: int
    last_block_sink: int


@dataclass(frozen=True, slots=True)
class SinkMoved:
    """``last_block_sink`` sink tokens lie in the last block now."""

    seq_id: int
    last_block_sink: int


# ---- rounds ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RoundStarted:
    """A batch is fixed; ``tree`` says whether parents were given."""

    seq_ids: tuple[int, ...]
    append_lengths: tuple[int, ...]
    tree: bool


@dataclass(frozen=True, slots=True)
class TokensCounted:
    """A sequence counts ``count`` more tokens."""

    seq_id: int
    count: int


@dataclass(frozen=True, slots=True)
class TokensAppended:
    """``count`` slots at the end of a block are reserved for a sequence."""

    seq_id: int
    block: int
    count: int


@dataclass(frozen=True, slots=True)
class Slid:
    """``tokens`` tokens behind the sink left; with them ``places`` places from ``first_place`` on.

    The pages among these places (-1 is none) go onto the free stack, front to back.
    """

    seq_id: int
    block: int
    tokens: int
    first_place: int
    places: tuple[int, ...]
    sink: int
    offset: int


@dataclass(frozen=True, slots=True)
class Popped:
    """The last ``tokens`` tokens left; ``sink`` and ``offset`` are what the block has now."""

    seq_id: int
    block: int
    tokens: int
    sink: int
    offset: int


@dataclass(frozen=True, slots=True)
class TreeGrown:
    """A sequence's uncommitted tree, one parent per node."""

    seq_id: int
    parents: tuple[int, ...]
    is_chain: bool


@dataclass(frozen=True, slots=True)
class TreeDropped:
    """The tree is gone; ``accepted`` are the nodes that were kept, root first."""

    seq_id: int
    accepted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokensCompacted:
    """Rows moved from slot to slot, in this order, in every layer."""

    moves: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class RowsStored:
    """A layer (global number) stored the round's rows in these slots; -1 was not stored."""

    layer: int
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KernelRan:
    """A kernel ran; ``part`` is ``"self"``, ``"cross"`` or ``""``, ``depth`` -1 if it has none."""

    kernel: str
    layer: int
    part: Literal["self", "cross", ""] = ""
    depth: int = -1
    causal: bool = False


@dataclass(frozen=True, slots=True)
class RoundFinished:
    """The round is over."""


# ---- data that comes and goes ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendMarked:
    """Rows from position ``begin`` on go to slots of ``receiver``; receiver -1: to nobody."""

    seq_id: int
    begin: int
    receiver: int
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PagesSent:
    """Rows stored earlier were sent from ``local`` slots to ``remote`` ones, for one layer."""

    layer: int
    local: tuple[int, ...]
    remote: tuple[int, ...]
    receivers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokensSent:
    """The round's rows were sent to ``remote`` slots (-1: not this one), for one layer."""

    layer: int
    remote: tuple[int, ...]
    receivers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SequenceExported:
    """All rows of a sequence were copied out."""

    seq_id: int
    length: int


@dataclass(frozen=True, slots=True)
class SequenceImported:
    """All rows of a sequence were copied in."""

    seq_id: int
    length: int


@dataclass(frozen=True, slots=True)
class GroupExported:
    """The pages of one group (a layer) of a sequence were copied out."""

    seq_id: int
    group: int


@dataclass(frozen=True, slots=True)
class ImportPrepared:
    """A sequence is being imported; most calls wait until it is finished."""

    seq_id: int
    groups: int


@dataclass(frozen=True, slots=True)
class GroupImported:
    """The pages of one group were copied in."""

    seq_id: int
    group: int


@dataclass(frozen=True, slots=True)
class ImportFinished:
    """The imported sequence is ready."""

    seq_id: int


@dataclass(frozen=True, slots=True)
class Misused:
    """A call was accepted with a warning."""

    message: str


Event = (
    CacheCleared
    | BlockCreated
    | BlockLinked
    | BlockFreed
    | PagesAllocated
    | PagesFreed
    | PlacesBorrowed
    | PlacesFilled
    | PagesShared
    | PartialPageCopied
    | SequenceAdded
    | SequenceForked
    | SequenceMoved
    | SequenceRenamed
    | SequenceRemoved
    | SequenceRetained
    | SequenceRevived
    | WindowEnabled
    | SinkMoved
    | RoundStarted
    | TokensCounted
    | TokensAppended
    | Slid
    | Popped
    | TreeGrown
    | TreeDropped
    | TokensCompacted
    | RowsStored
    | KernelRan
    | RoundFinished
    | SendMarked
    | PagesSent
    | TokensSent
    | SequenceExported
    | SequenceImported
    | GroupExported
    | ImportPrepared
    | GroupImported
    | ImportFinished
    | Misused
)


class Observer(Protocol):
    """Whoever is told; it must not change the cache."""

    def __call__(self, event: Event, /) -> None:
        """Take note of one event."""
