"""Sequences: adding, removing, forking and shortening them on the block tree.

A sequence is a name for the end of a chain of blocks. Forking shares all full pages before the
fork position and copies the rows of at most one page, at once; nothing is copied later. Each
operation costs the pages and blocks it touches, whatever the size of the pool.
Counterpart: the sequence operations of TVM's paged cache (kv.md 3.4).

Examples
--------
>>> table = SequenceTable(BlockTree(num_pages=8, page_size=4))
>>> table.add(0)
>>> sequence = table.find(0)
>>> table.tree.allocate(sequence.last, 2); table.count(sequence, 7); table.append(sequence, 7)
>>> copies = []
>>> table.fork(0, 1, 6, lambda *copy: copies.append(copy))
>>> copies, table.slots(1)  # 2 rows of page 1 went to page 2
([(1, 2, 2)], [0, 1, 2, 3, 8, 9])
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import NoReturn

from relaxlab.errors import InternalError
from relaxlab.runtime.kv.block import Block, BlockTree
from relaxlab.runtime.kv.exact import is_exact
from relaxlab.runtime.kv.observer import (
    Event,
    PartialPageCopied,
    Popped,
    RemovalCause,
    SendMarked,
    SequenceAdded,
    SequenceForked,
    SequenceMoved,
    SequenceRemoved,
    SequenceRenamed,
    SequenceRetained,
    SinkMoved,
    TokensAppended,
    TokensCounted,
    TreeDropped,
    TreeGrown,
    WindowEnabled,
)
from relaxlab.runtime.kv.token_tree import is_chain

__all__ = ["CopyRows", "SendTarget", "Sequence", "SequenceTable"]

CopyRows = Callable[[int, int, int], None]
"""Copy the first rows of a page to another page, in every layer: (source, target, rows)."""


@dataclass(frozen=True, slots=True)
class SendTarget:
    """Where rows of a sequence go: token ``begin + i`` to ``slots[i]`` of ``receiver``."""

    begin: int
    slots: tuple[int, ...]
    receiver: int


class Sequence:
    """One sequence.

    Attributes
    ----------
    seq_id, last, length
        Its name, the block it ends in, and its tokens in all blocks.
    window, sink
        Most tokens to keep and how many of the first stay; window -1: no limit.
    last_block_sink
        How many sink tokens lie in the last block.
    tree, committed, is_chain
        Parents of the uncommitted tree; whether there is none; whether it is a chain.
    retained
        Whether it is kept for its contents only, so that its pages may be evicted.
    send, unsent
        Where rows go, and how many rows stored earlier wait to be sent.
    """

    __slots__ = (
        "committed",
        "is_chain",
        "last",
        "last_block_sink",
        "length",
        "retained",
        "send",
        "seq_id",
        "sink",
        "tree",
        "unsent",
        "window",
    )

    def __init__(self, seq_id: int, last: Block) -> None:
        self.seq_id = seq_id
        self.last = last
        self.length = 0
        self.window = -1
        self.sink = 0
        self.last_block_sink = 0
        self.tree: tuple[int, ...] = ()
        self.committed = True
        self.is_chain = True
        self.retained = False
        self.send: SendTarget | None = None
        self.unsent = 0

    def __repr__(self) -> str:
        return f"Sequence({self.seq_id}: {self.length} tokens, ends in block {self.last.index})"


class SequenceTable:
    """All sequences by id, on one block tree."""

    def __init__(self, tree: BlockTree) -> None:
        self.tree = tree
        self._by_id: dict[int, Sequence] = {}

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, seq_id: object) -> bool:
        return seq_id in self._by_id

    def find(self, seq_id: int, role: str = "sequence") -> Sequence:
        """Return a sequence.

        Raises
        ------
        InternalError
            If there is none of that id.
        """
        found = self._by_id.get(seq_id)
        if found is None:
            known = sorted(self._by_id)
            listed = ", ".join(map(str, known[:8])) + (", ..." if len(known) > 8 else "")
            raise InternalError(
                f'The {role} "{seq_id}" cannot be found in KV cache; sequences there: '
                f"{listed or 'none'}"
            )
        return found

    def slots(self, seq_id: int) -> list[int]:
        """Return where the tokens of a sequence lie, in order."""
        return [slot for block in self.find(seq_id).last.chain() for slot in block.slots()]

    def add(self, seq_id: int) -> None:
        """Begin an empty sequence; it takes no page."""
        self._expect_new(seq_id, "sequence")
        self._begin(seq_id, self.tree.create(start=0))
        self._tell(SequenceAdded(seq_id, self._by_id[seq_id].last.index))

    def remove(self, seq_id: int, cause: RemovalCause = "removed", reason: str = "") -> None:
        """Drop a sequence, and from its end on every block that nobody else uses."""
        sequence = self.find(seq_id)
        del self._by_id[seq_id]
        sequence.last.references -= 1
        self._tell(SequenceRemoved(seq_id, cause, reason))
        self.tree.free_chain(sequence.last)

    def count(self, sequence: Sequence, tokens: int) -> None:
        """Let the sequence count more tokens (their slots are reserved separately)."""
        sequence.length += tokens
        self._tell(TokensCounted(sequence.seq_id, tokens))

    def append(self, sequence: Sequence, tokens: int) -> None:
        """Let the last block hold more tokens; its pages must be there."""
        sequence.last.length += tokens
        self._tell(TokensAppended(sequence.seq_id, sequence.last.index, tokens))

    def set_tree(self, sequence: Sequence, parents: tuple[int, ...], is_chain: bool) -> None:
        """Give a sequence an uncommitted tree."""
        sequence.tree, sequence.is_chain, sequence.committed = parents, is_chain, False
        self._tell(TreeGrown(sequence.seq_id, parents, is_chain))

    def drop_tree(self, sequence: Sequence, accepted: tuple[int, ...] = ()) -> None:
        """Forget a sequence's tree."""
        sequence.tree, sequence.committed = (), True
        if not is_exact():
            sequence.is_chain = True  # TVM remembers the last tree until the next plain round
        self._tell(TreeDropped(sequence.seq_id, accepted))

    # ---- fork --------------------------------------------------------------------------------

    def check_fork(self, parent_id: int, child_id: int, position: int) -> int:
        """Refuse a fork that cannot be; return the position with -1 replaced."""
        parent = self.find(parent_id, "parent sequence")
        self._expect_new(child_id, "child sequence")
        if position < -1:
            raise InternalError(
                f"The forked position should be non-negative, or -1 for the end, got {position}"
            )
        if position > parent.length:
            raise InternalError(
                "The forked position should not exceed the total length of the parent sequence: "
                f'sequence "{parent_id}" has {parent.length} tokens, got position {position}'
            )
        if not parent.committed:
            raise InternalError(
                f'The token tree of the parent sequence "{parent_id}" has not been committed: '
                "call commit_accepted_token_tree_nodes first"
            )
        position = parent.length if position == -1 else position
        if parent.window != -1:
            prefix = parent.length - parent.last.length
            kept = prefix + parent.last_block_sink
            if position > kept:
                raise InternalError(
                    f'The parent sequence "{parent_id}" has a sliding window and can be forked '
                    f"only within its first {kept} tokens, got position {position}"
                )
        return position

    def fork(self, parent_id: int, child_id: int, position: int, copy_rows: CopyRows) -> None:
        """Begin ``child`` as the first ``position`` tokens of ``parent`` (-1: all of them).

        The partial page is copied before anything changes, so a copy that fails, or a pool that
        is full, leaves all as it was.
        """
        self._fork(parent_id, child_id, self.check_fork(parent_id, child_id, position), copy_rows)

    def _fork(self, parent_id: int, child_id: int, position: int, copy_rows: CopyRows) -> None:
        parent = self._by_id[parent_id]
        split_at_end = (
            position == parent.length
            and position % self.tree.page_size == 0
            and parent.last.length > 0
        )
        source, rest = self._find_position(parent, position, past_last=split_at_end)
        partial = rest % self.tree.page_size
        whole = rest // self.tree.page_size
        copied_from = -1
        if partial:
            assert source is not None  # only a full parent is walked past
            copied_from = source.pages[whole]
            self._copy_to_next_page(parent_id, position, copied_from, partial, copy_rows)
        if split_at_end:
            self._start_new_block(parent)
            source = parent.last
        assert source is not None
        child = self._begin(child_id, self.tree.create(start=position - partial))
        child.length = position
        self._tell(SequenceForked(parent_id, child_id, position, child.last.index))
        before = source.parent
        if whole:
            before = self.tree.split(source, whole, stale_sink=is_exact())
            if parent.window != -1 and source is parent.last:
                self._move_sink(parent, parent.last_block_sink - whole * self.tree.page_size)
        self.tree.link(child.last, before)
        if partial:
            self.tree.allocate(child.last, 1)
            child.last.length = partial
            self._tell(
                PartialPageCopied(
                    child.last.index, child.last.pages[0], source.index, copied_from, partial
                )
            )

    def _find_position(
        self, sequence: Sequence, position: int, *, past_last: bool
    ) -> tuple[Block | None, int]:
        """Return the block that holds a position, and the tokens of that block before it.

        A block that ends at the position is passed, the last block only if asked to.
        """
        for block in sequence.last.chain():
            if block is sequence.last and not past_last:
                return block, position
            if block.length > position:
                return block, position
            position -= block.length
        return None, position

    def _copy_to_next_page(
        self, seq_id: int, position: int, page: int, rows: int, copy_rows: CopyRows
    ) -> None:
        target = self.tree.pool.peek()
        if target is None:
            self.refuse_full(f'forking sequence "{seq_id}" at {position} needs 1 page', 1)
        copy_rows(page, target, rows)

    def _start_new_block(self, sequence: Sequence) -> None:
        """Let a sequence whose last block is full go on in a new one, so that it can be shared."""
        full = sequence.last
        block = self.tree.create(start=sequence.length)
        self.tree.link(block, full)
        self._move(sequence, block)
        if sequence.window != -1 and not is_exact():
            # the sink tokens of the full block are part of the prefix now
            self._move_sink(sequence, max(sequence.last_block_sink - full.length, 0))

    # ---- popn --------------------------------------------------------------------------------

    def popn(self, seq_id: int, count: int, copy_rows: CopyRows) -> None:
        """Forget the last tokens of a sequence.

        Whole blocks that only this sequence uses go; what is left to pop in a shared block is
        done by forking it there, under the hidden id ``-1 - seq_id``.
        """
        sequence = self.find(seq_id)
        if count < 0:
            raise InternalError(f"The length of popping {count} cannot be negative")
        if count > sequence.length:
            raise InternalError(
                f'The sequence "{seq_id}" only has length {sequence.length}, while the length of '
                f"pop is {count} which exceeds the whole sequence length"
            )
        if count == 0:
            return
        if not is_exact():
            copy = self._copy_of_pop(sequence, count)
            if copy is not None:
                # before anything changes, so that a copy that fails leaves all as it was
                copy_rows(*copy)
                copy_rows = _copied_already
            self._pop_tree(sequence, count)
        while sequence.last.references == 1:
            block = sequence.last
            if count <= block.length:
                self._cut(sequence, count)
                return
            if block.parent is None:
                raise InternalError(
                    f'The blocks of sequence "{seq_id}" hold fewer tokens than its length says, '
                    "since an earlier begin_forward failed: remove the sequence"
                )
            count -= block.length
            self._leave_block(sequence)
        if count:
            self._pop_shared(sequence, count, copy_rows)

    def _leave_block(self, sequence: Sequence) -> None:
        """Free the last block, which nobody else uses; end in its parent."""
        block, parent = sequence.last, sequence.last.parent
        assert parent is not None
        sequence.length -= block.length
        self._tell(Popped(sequence.seq_id, block.index, block.length, block.sink, block.offset))
        block.length = 0
        self._move(sequence, parent)
        self.tree.free(block)
        if sequence.window != -1 and not is_exact():
            prefix = sequence.length - parent.length
            self._move_sink(sequence, max(sequence.sink - prefix, 0))

    def _cut(self, sequence: Sequence, count: int) -> None:
        """Drop the last tokens of the last block and the pages they alone used."""
        block = sequence.last
        left = block.length - count
        if is_exact():
            keep = ceil(left / self.tree.page_size)  # TVM forgets what the window has skipped
        else:
            if left <= block.sink:
                # only sink tokens are left: there is no gap behind them any more
                block.sink = block.offset = 0
            keep = block.places_for(left) if left else 0
            if not left:
                block.sink = block.offset = 0
        block.length = left
        sequence.length -= count
        self._tell(Popped(sequence.seq_id, block.index, count, block.sink, block.offset))
        surplus = block.pages[keep:]
        surplus.reverse()
        self.tree.return_pages(block, surplus)

    def _pop_shared(self, sequence: Sequence, count: int, copy_rows: CopyRows) -> None:
        seq_id, hidden = sequence.seq_id, -1 - sequence.seq_id
        # TVM refuses here if there is a window, when a part is popped already
        fork = self.fork if is_exact() else self._fork
        fork(seq_id, hidden, sequence.length - count, copy_rows)
        self.remove(seq_id)
        shortened = self._by_id.pop(hidden)
        shortened.seq_id = seq_id
        self._by_id[seq_id] = shortened
        self._tell(SequenceRenamed(hidden, seq_id))
        if is_exact():
            return  # TVM loses the window and the target of transfers here
        if sequence.window != -1:
            self.set_window(shortened, sequence.window, sequence.sink)
        if sequence.send is not None:
            self.set_send(shortened, sequence.send, sequence.unsent)
        if sequence.retained:
            shortened.retained = True
            self._tell(SequenceRetained(seq_id))

    def _copy_of_pop(self, sequence: Sequence, count: int) -> tuple[int, int, int] | None:
        """Return which rows a pop into a shared block will copy: source and target page, rows.

        Refuses if no page is or becomes free for them.
        """
        block: Block | None = sequence.last
        target = self.tree.pool.peek()
        while block is not None and block.references == 1 and count > block.length:
            count -= block.length
            if block.pages:
                target = block.pages[-1]  # given back last, so taken next
            block = block.parent
        if block is None or block.references == 1 or not count:
            return None
        if -1 - sequence.seq_id in self._by_id:
            raise InternalError(
                f'popping from sequence "{sequence.seq_id}" needs the hidden id '
                f"{-1 - sequence.seq_id}, which is in use: give sequences ids >= 0"
            )
        while count > block.length and block.parent is not None:
            count -= block.length
            block = block.parent
        position = block.length - count
        rows = position % self.tree.page_size
        if not rows:
            return None
        if target is None:
            self.refuse_full(f'popping from sequence "{sequence.seq_id}" needs 1 page', 1)
        return block.pages[position // self.tree.page_size], target, rows

    def _pop_tree(self, sequence: Sequence, count: int) -> None:
        """Let an uncommitted tree lose its last nodes, which are the tokens that go."""
        if sequence.committed:
            return
        if count >= len(sequence.tree):
            self.drop_tree(sequence)
        else:
            parents = sequence.tree[:-count]
            self.set_tree(sequence, parents, is_chain(parents))

    # ---- windows and transfers -----------------------------------------------------------------

    def set_window(self, sequence: Sequence, window: int, sink: int) -> None:
        """Give a sequence a window; tokens in blocks before the last never slide."""
        prefix = sequence.length - sequence.last.length
        sequence.window, sequence.sink = window, sink
        sequence.last_block_sink = max(sink - prefix, 0)
        self._tell(WindowEnabled(sequence.seq_id, window, sink, sequence.last_block_sink))

    def set_send(self, sequence: Sequence, target: SendTarget, unsent: int) -> None:
        """Say where rows of a sequence go from now on."""
        sequence.send, sequence.unsent = target, unsent
        self._tell(SendMarked(sequence.seq_id, target.begin, target.receiver, target.slots))

    def refuse_full(self, need: str, pages: int) -> NoReturn:
        """Refuse for lack of pages: say what is needed, what is free and who holds the rest."""
        pool = self.tree.pool
        raise InternalError(
            f"The KV cache is full. No page can be allocated: {need}, "
            f"{pool.available} of {pool.num_pages} are free; "
            f"{pages - pool.available} more must be given back first. {self.holders()}"
        )

    def holders(self, most: int = 8) -> str:
        """Return in words which sequences hold pages, those with the most of their own first."""
        rows = []
        for sequence in self._by_id.values():
            own = shared = 0
            alone = True
            block: Block | None = sequence.last
            while block is not None:
                alone = alone and block.references == 1
                if alone:
                    own += len(block.pages)
                else:
                    shared += len(block.pages)
                block = block.parent
            rows.append((own, shared, sequence))
        if not rows:
            return "No sequence holds any"
        rows.sort(key=lambda row: (-row[0], row[2].seq_id))
        listed = [
            f"sequence {sequence.seq_id}: {own}"
            + (f" and {shared} shared" if shared else "")
            + (" (retained, may be evicted)" if sequence.retained else "")
            for own, shared, sequence in rows[:most]
        ]
        if len(rows) > most:
            listed.append(f"and {len(rows) - most} more sequences")
        return "Pages held: " + "; ".join(listed)

    def clear(self) -> None:
        """Forget everything."""
        self._by_id = {}
        self.tree.clear()

    def _begin(self, seq_id: int, block: Block) -> Sequence:
        block.references += 1
        sequence = self._by_id[seq_id] = Sequence(seq_id, block)
        return sequence

    def _move(self, sequence: Sequence, block: Block) -> None:
        sequence.last.references -= 1
        sequence.last = block
        block.references += 1
        self._tell(SequenceMoved(sequence.seq_id, block.index))

    def _move_sink(self, sequence: Sequence, last_block_sink: int) -> None:
        if last_block_sink != sequence.last_block_sink:
            sequence.last_block_sink = last_block_sink
            self._tell(SinkMoved(sequence.seq_id, last_block_sink))

    def _expect_new(self, seq_id: int, role: str) -> None:
        if seq_id in self._by_id:
            raise InternalError(f'The {role} "{seq_id}" is already in the KV cache')

    def _tell(self, event: Event) -> None:
        if self.tree.observer is not None:
            self.tree.observer(event)


def _copied_already(source: int, target: int, rows: int) -> None:
    """Stand in for a copy that was made beforehand."""
