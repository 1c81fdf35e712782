"""The state of a paged cache as plain values, taken from the cache or folded from its events.

``cache.snapshot()`` looks at the real object; ``fold(events, start)`` never sees it. That both are
equal after every operation is what makes a recording trustworthy, and it is a property test.
There is no TVM counterpart.

Examples
--------
>>> from relaxlab.runtime.kv.observer import BlockCreated, PagesAllocated, SequenceAdded
>>> begin = CacheState(num_pages=4, page_size=2)
>>> state = fold([BlockCreated(0, 0), SequenceAdded(7, 0), PagesAllocated(0, (0, 1))], begin)
>>> state.available, state.blocks[0].pages, state.sequences[0].seq_id
(2, (0, 1), 7)
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

from relaxlab.runtime.kv import observer as ev
from relaxlab.runtime.kv.block import NO_PAGE

if TYPE_CHECKING:  # the cache offers its snapshot as a method
    from relaxlab.runtime.kv.paged_state import PagedState

__all__ = [
    "BlockState",
    "CacheState",
    "RoundState",
    "SequenceState",
    "StateFold",
    "fold",
    "snapshot",
]


@dataclass(frozen=True, slots=True)
class BlockState:
    """One block; ``parent`` is -1 for a root, a page -1 is a place without one."""

    index: int
    start: int
    pages: tuple[int, ...] = ()
    length: int = 0
    sink: int = 0
    offset: int = 0
    parent: int = -1
    references: int = 0


@dataclass(frozen=True, slots=True)
class SequenceState:
    """One sequence; window -1 means none, an empty tree that nothing waits for a commit.

    ``send`` is where its rows go: first position, receiver, slots.
    """

    seq_id: int
    last_block: int
    length: int = 0
    window: int = -1
    sink: int = 0
    last_block_sink: int = 0
    tree: tuple[int, ...] = ()
    retained: bool = False
    send: tuple[int, int, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class RoundState:
    """The round begun last; ``stored`` are the layers whose rows are in their pages."""

    seq_ids: tuple[int, ...]
    append_lengths: tuple[int, ...]
    tree: bool
    stored: tuple[int, ...] = ()
    finished: bool = False


@dataclass(frozen=True, slots=True)
class CacheState:
    """Everything that a paged cache knows, except the rows themselves.

    Attributes
    ----------
    num_pages, page_size
        The pool.
    fresh, freed
        The free stack: pages from ``fresh`` on were never taken and lie at the bottom; of
        ``freed`` the last one is taken next.
    blocks, free_blocks
        Blocks by number, and the numbers that are free, the next one last.
    sequences
        In the order of their beginning.
    round
        None before the first one.
    imported
        Groups that a running import has got; None if none is running.
    """

    num_pages: int
    page_size: int
    fresh: int = 0
    freed: tuple[int, ...] = ()
    blocks: tuple[BlockState, ...] = ()
    free_blocks: tuple[int, ...] = ()
    sequences: tuple[SequenceState, ...] = ()
    round: RoundState | None = None
    imported: tuple[int, ...] | None = None

    @property
    def available(self) -> int:
        """How many pages are free."""
        return self.num_pages - self.fresh + len(self.freed)


def snapshot(cache: "PagedState") -> CacheState:
    """Return the state of a cache as it is now."""
    pool, batch, groups = cache.blocks.pool, cache.current_round, cache.groups_imported
    return CacheState(
        num_pages=pool.num_pages,
        page_size=cache.config.page_size,
        fresh=pool.fresh,
        freed=tuple(pool.freed),
        blocks=tuple(
            BlockState(
                block.index,
                block.start,
                tuple(block.pages),
                block.length,
                block.sink,
                block.offset,
                -1 if block.parent is None else block.parent.index,
                block.references,
            )
            for block in cache.blocks
        ),
        free_blocks=tuple(cache.blocks.free_numbers),
        sequences=tuple(
            SequenceState(
                sequence.seq_id,
                sequence.last.index,
                sequence.length,
                sequence.window,
                sequence.sink,
                sequence.last_block_sink,
                sequence.tree,
                sequence.retained,
                None
                if sequence.send is None
                else (sequence.send.begin, sequence.send.receiver, sequence.send.slots),
            )
            for sequence in cache.sequences
        ),
        round=None
        if batch is None
        else RoundState(
            tuple(entry.sequence.seq_id for entry in batch.entries),
            tuple(entry.tokens for entry in batch.entries),
            batch.has_tree,
            tuple(sorted(batch.stored)),
            batch.finished,
        ),
        imported=None if groups is None else tuple(sorted(groups)),
    )


def fold(events: Iterable[ev.Event], start: CacheState) -> CacheState:
    """Return the state after events, from the state before them."""
    folded = StateFold(start)
    for event in events:
        folded.apply(event)
    return folded.state()


@dataclass(slots=True)
class _Block:
    index: int
    start: int
    pages: list[int] = field(default_factory=list)
    length: int = 0
    sink: int = 0
    offset: int = 0
    parent: int = -1


class StateFold:
    """A state that events are applied to, one by one."""

    def __init__(self, start: CacheState) -> None:
        self._reset(start)

    def _reset(self, start: CacheState) -> None:
        self._start = start
        self._fresh = start.fresh
        self._freed = list(start.freed)
        self._blocks = {
            b.index: _Block(b.index, b.start, list(b.pages), b.length, b.sink, b.offset, b.parent)
            for b in start.blocks
        }
        self._free_blocks = list(start.free_blocks)
        self._sequences = {s.seq_id: s for s in start.sequences}
        self._round = start.round
        self._imported = start.imported

    def state(self) -> CacheState:
        """Return the state after all events so far; reference counts are counted anew."""
        references = dict.fromkeys(self._blocks, 0)
        for block in self._blocks.values():
            if block.parent != -1:
                references[block.parent] += 1
        for sequence in self._sequences.values():
            references[sequence.last_block] += 1
        return CacheState(
            num_pages=self._start.num_pages,
            page_size=self._start.page_size,
            fresh=self._fresh,
            freed=tuple(self._freed),
            blocks=tuple(
                BlockState(
                    b.index,
                    b.start,
                    tuple(b.pages),
                    b.length,
                    b.sink,
                    b.offset,
                    b.parent,
                    references[b.index],
                )
                for _, b in sorted(self._blocks.items())
            ),
            free_blocks=tuple(self._free_blocks),
            sequences=tuple(self._sequences.values()),
            round=self._round,
            imported=self._imported,
        )

    def apply(self, event: ev.Event) -> None:
        """Change the state as an event says.

        Raises
        ------
        ValueError
            If the event cannot follow those before it.
        """
        match event:
            case ev.CacheCleared():
                self._reset(CacheState(self._start.num_pages, self._start.page_size))
            case ev.BlockCreated(block, start):
                if self._free_blocks:
                    _expect(self._free_blocks.pop() == block, event)
                _expect(block not in self._blocks, event)
                self._blocks[block] = _Block(block, start)
            case ev.BlockLinked(block, parent):
                self._blocks[block].parent = parent
            case ev.BlockFreed(block):
                _expect(not self._blocks.pop(block).pages, event)
                self._free_blocks.append(block)
            case ev.PagesAllocated(block, pages):
                self._take(pages, event)
                self._blocks[block].pages.extend(pages)
            case ev.PagesFreed(block, pages):
                for page in pages:
                    self._blocks[block].pages.remove(page)
                self._freed.extend(page for page in pages if page != NO_PAGE)
            case ev.PlacesBorrowed(block, count):
                self._blocks[block].pages.extend([NO_PAGE] * count)
            case ev.PlacesFilled(block, pages):
                self._take(pages, event)
                places = self._blocks[block].pages
                for page in pages:
                    places[places.index(NO_PAGE)] = page
            case ev.PagesShared(source, block, pages, length, sink, offset):
                before, after = self._blocks[block], self._blocks[source]
                _expect(tuple(after.pages[: len(pages)]) == pages, event)
                before.pages, before.length = list(pages), length
                del after.pages[: len(pages)]
                after.start += length
                after.length -= length
                after.sink, after.offset = sink, offset
            case ev.PartialPageCopied(block, page, _, _, rows):
                _expect(self._blocks[block].pages == [page], event)
                self._blocks[block].length = rows
            case (
                ev.SequenceAdded()
                | ev.SequenceForked()
                | ev.SequenceMoved()
                | ev.SequenceRenamed()
                | ev.SequenceRemoved()
                | ev.SequenceRetained()
                | ev.SequenceRevived()
                | ev.WindowEnabled()
                | ev.SinkMoved()
                | ev.TreeGrown()
                | ev.TreeDropped()
                | ev.TokensCounted()
                | ev.SendMarked()
            ):
                self._apply_to_sequence(event)
            case ev.TokensAppended(_, block, count):
                self._blocks[block].length += count
            case ev.Slid():
                self._slide(event)
            case ev.Popped(seq_id, block, tokens, sink, offset):
                found = self._blocks[block]
                found.length -= tokens
                found.sink, found.offset = sink, offset
                self._lengthen(seq_id, -tokens)
            case ev.RoundStarted(seq_ids, lengths, tree):
                self._round = RoundState(seq_ids, lengths, tree)
            case ev.RowsStored(layer, _):
                _expect(self._round is not None, event)
                assert self._round is not None
                stored = tuple(sorted({*self._round.stored, layer}))
                self._round = replace(self._round, stored=stored)
            case ev.RoundFinished():
                _expect(self._round is not None, event)
                assert self._round is not None
                self._round = replace(self._round, finished=True)
            case ev.ImportPrepared():
                self._imported = ()
            case ev.GroupImported(_, group):
                _expect(self._imported is not None, event)
                self._imported = tuple(sorted({*(self._imported or ()), group}))
            case ev.ImportFinished():
                self._imported = None
            case (
                ev.TokensCompacted()
                | ev.KernelRan()
                | ev.PagesSent()
                | ev.TokensSent()
                | ev.SequenceExported()
                | ev.SequenceImported()
                | ev.GroupExported()
                | ev.Misused()
            ):
                pass
            case _:
                assert_never(event)

    def _apply_to_sequence(
        self,
        event: ev.SequenceAdded
        | ev.SequenceForked
        | ev.SequenceMoved
        | ev.SequenceRenamed
        | ev.SequenceRemoved
        | ev.SequenceRetained
        | ev.SequenceRevived
        | ev.WindowEnabled
        | ev.SinkMoved
        | ev.TreeGrown
        | ev.TreeDropped
        | ev.TokensCounted
        | ev.SendMarked,
    ) -> None:
        table = self._sequences
        match event:
            case ev.SequenceAdded(seq_id, block):
                _expect(seq_id not in table, event)
                table[seq_id] = SequenceState(seq_id, block)
            case ev.SequenceForked(_, child, position, block):
                _expect(child not in table, event)
                table[child] = SequenceState(child, block, position)
            case ev.SequenceMoved(seq_id, block):
                table[seq_id] = replace(table[seq_id], last_block=block)
            case ev.SequenceRenamed(old, new):
                table[new] = replace(table.pop(old), seq_id=new)
            case ev.SequenceRemoved(seq_id, _, _):
                del table[seq_id]
            case ev.SequenceRetained(seq_id):
                table[seq_id] = replace(table[seq_id], retained=True)
            case ev.SequenceRevived(seq_id):
                table[seq_id] = replace(table[seq_id], retained=False)
            case ev.WindowEnabled(seq_id, window, sink, last_block_sink):
                table[seq_id] = replace(
                    table[seq_id], window=window, sink=sink, last_block_sink=last_block_sink
                )
            case ev.SinkMoved(seq_id, last_block_sink):
                table[seq_id] = replace(table[seq_id], last_block_sink=last_block_sink)
            case ev.TreeGrown(seq_id, parents, _):
                table[seq_id] = replace(table[seq_id], tree=parents)
            case ev.TreeDropped(seq_id, _):
                table[seq_id] = replace(table[seq_id], tree=())
            case ev.TokensCounted(seq_id, count):
                self._lengthen(seq_id, count)
            case ev.SendMarked(seq_id, begin, receiver, slots):
                table[seq_id] = replace(table[seq_id], send=(begin, receiver, slots))
            case _:
                assert_never(event)

    def _slide(self, event: ev.Slid) -> None:
        block, first = self._blocks[event.block], event.first_place
        end = first + len(event.places)
        _expect(tuple(block.pages[first:end]) == event.places, event)
        del block.pages[first:end]
        self._freed.extend(page for page in event.places if page != NO_PAGE)
        block.length -= event.tokens
        block.sink, block.offset = event.sink, event.offset
        self._lengthen(event.seq_id, -event.tokens)

    def _lengthen(self, seq_id: int, tokens: int) -> None:
        found = self._sequences[seq_id]
        self._sequences[seq_id] = replace(found, length=found.length + tokens)

    def _take(self, pages: tuple[int, ...], event: ev.Event) -> None:
        for page in pages:
            if self._freed:
                _expect(self._freed.pop() == page, event)
            else:
                _expect(self._fresh == page and page < self._start.num_pages, event)
                self._fresh += 1


def _expect(holds: bool, event: ev.Event) -> None:
    if not holds:
        raise ValueError(f"the event does not follow from those before it: {event}")
