"""Reserving slots for new tokens, and letting old tokens slide out of a window.

A sequence with a window keeps its first tokens (the sink) and the newest ones. When it grows past
the window the tokens behind the sink leave, and a page whose last token left is given back; so a
window makes room for itself, even in a full pool. Then positions stand still: they count within
what is kept. Counterpart: kv.md 3.5 (reserve) and 3.9.

A layer of kind ``MHA_SLIDING`` has a window of another sort: nothing is given back, the layer
only looks at fewer pages; that is the arithmetic of :func:`layer_offset`.

Examples
--------
Window 5, tokens 0 to 6 in pages of 4: tokens 2 to 6 are seen, from row 2 of the first of 2 pages.

>>> layer_offset(7, window=5, page_size=4), layer_pages(7, window=5, page_size=4)
(2, 2)
"""

from dataclasses import dataclass

from relaxlab.errors import InternalError
from relaxlab.runtime.kv.block import NO_PAGE, Block
from relaxlab.runtime.kv.observer import Slid
from relaxlab.runtime.kv.sequence import Sequence, SequenceTable

__all__ = ["Reservation", "check_window", "layer_offset", "layer_pages", "plan", "reserve"]


@dataclass(frozen=True, slots=True)
class Reservation:
    """What reserving slots would do to the pool.

    Attributes
    ----------
    taken
        Pages taken before anything slides.
    released
        Pages that sliding gives back.
    refilled
        Pages taken afterwards for places that had to do without.
    missing
        Pages that the pool lacks; 0 if it can be done.
    """

    taken: int
    released: int
    refilled: int
    missing: int

    @property
    def net(self) -> int:
        """How many pages the pool loses."""
        return self.taken + self.refilled - self.released


def plan(sequence: Sequence, tokens: int, available: int, *, sliding: bool) -> Reservation:
    """Return what :func:`reserve` would do with ``available`` free pages; nothing changes.

    ``sequence.length`` must not count the new tokens yet.
    """
    block = sequence.last
    have = len(block.pages)
    target = _target(block, tokens)
    needed = max(target - have, 0)
    taken = min(needed, available)
    borrowed = needed - taken
    if not sliding or sequence.window == -1:
        return Reservation(taken, 0, 0, borrowed)
    first, count = _leaving(sequence, sequence.length + tokens)[:2]
    real = have + taken
    released = max(min(first + count, real) - first, 0)
    refilled = borrowed - (count - released)
    left = available - taken + released
    return Reservation(taken, released, min(refilled, left), max(refilled - left, 0))


def reserve(table: SequenceTable, sequence: Sequence, tokens: int, *, sliding: bool) -> None:
    """Reserve slots for tokens that the sequence counts already; then slide.

    Raises
    ------
    InternalError
        If the pool is empty.
    """
    block, tree = sequence.last, table.tree
    if tokens <= 0:
        raise InternalError(f"Append with length {tokens} is not allowed, expected at least 1")
    if block.references != 1:
        raise InternalError(
            f'The last block of sequence "{sequence.seq_id}" is shared and cannot be written to'
        )
    needed = max(_target(block, tokens) - len(block.pages), 0)
    borrowed = 0
    if sliding and sequence.window != -1:
        borrowed = max(needed - tree.pool.available, 0)
    if needed > borrowed:
        tree.allocate(block, needed - borrowed)
    if borrowed:
        tree.borrow(block, borrowed)
    table.append(sequence, tokens)
    if sliding and sequence.window != -1:
        _slide(table, sequence)
    if borrowed:
        tree.fill_borrowed(block)


def _target(block: Block, tokens: int) -> int:
    """Pages the block needs once it has ``tokens`` more."""
    return -(-(block.length - block.sink + block.offset + tokens) // block.page_size)


def _leaving(sequence: Sequence, length: int) -> tuple[int, int, int, int, int]:
    """Return what leaves when a sequence has ``length`` tokens.

    First place and number of places, tokens, and the sink and offset after it.
    """
    block = sequence.last
    sink, offset = block.sink, block.offset
    tokens = length - sequence.window
    if tokens <= 0:
        return 0, 0, 0, sink, offset
    if not sink and sequence.last_block_sink:
        sink = offset = sequence.last_block_sink
    first = -(-sink // block.page_size)
    page, row = divmod(offset + tokens, block.page_size)
    count = max(page - first, 0)
    return first, count, tokens, sink, (page - count) * block.page_size + row


def _slide(table: SequenceTable, sequence: Sequence) -> None:
    first, count, tokens, sink, offset = _leaving(sequence, sequence.length)
    if not tokens:
        return
    block, tree = sequence.last, table.tree
    places = tuple(block.pages[first : first + count])
    del block.pages[first : first + count]
    for page in places:
        if page != NO_PAGE:
            tree.pool.give_back(page)
    block.sink, block.offset = sink, offset
    block.length -= tokens
    sequence.length -= tokens
    if tree.observer is not None:
        tree.observer(Slid(sequence.seq_id, block.index, tokens, first, places, sink, offset))


def check_window(sequence: Sequence, window: int, sink: int) -> None:
    """Refuse a window that a sequence cannot have.

    Raises
    ------
    InternalError
        If sizes are wrong, it has a window already, or tokens in shared blocks, which can never
        slide, leave no room in it.
    """
    if sink < 0:
        raise InternalError(f"The attention sink size should be non-negative, got {sink}")
    if window <= 0:
        raise InternalError(f"The sliding window size should be positive, got {window}")
    if sink >= window:
        raise InternalError(
            f"The attention sink size should be less than the sliding window size, got {sink} "
            f"and {window}"
        )
    if sequence.window != -1:
        raise InternalError(
            f"A sliding window of {sequence.window} is already enabled for sequence "
            f'"{sequence.seq_id}"'
        )
    prefix = sequence.length - sequence.last.length
    if prefix >= window:
        raise InternalError(
            f'The first {prefix} tokens of sequence "{sequence.seq_id}" lie in blocks that other '
            f"sequences may share and can never slide: expected a window of more, got {window}"
        )


def layer_offset(length: int, *, window: int, page_size: int) -> int:
    """Return in which row of the first page seen the window of a layer begins."""
    return 0 if length <= window else (length - window) % page_size


def layer_pages(length: int, *, window: int, page_size: int) -> int:
    """Return how many of the last pages a layer with a window sees."""
    if not length:
        return 0
    offset = layer_offset(length, window=window, page_size=page_size)
    return -(-(offset + min(length, window)) // page_size)
