"""Blocks: runs of pages that sequences share, as a tree from roots to the ends of sequences.

A sequence is the chain of blocks from a root to the block it ends in. Sharing a prefix is sharing
blocks: no page ever belongs to two blocks, and a block that others follow is full pages only and
is never written again. Counterpart: the blocks of TVM's paged cache (kv.md 3.3). vLLM calls a page
a block; here a block is a list of pages.

Examples
--------
>>> tree = BlockTree(num_pages=8, page_size=4)
>>> block = tree.create(start=0)
>>> tree.allocate(block, 2)
>>> block.length = 6
>>> list(block.pages), block.slot(5)
([0, 1], 5)
"""

from array import array
from collections.abc import Iterator

from relaxlab.runtime.kv.observer import (
    BlockCreated,
    BlockFreed,
    BlockLinked,
    Observer,
    PagesAllocated,
    PagesFreed,
    PagesShared,
    PlacesBorrowed,
    PlacesFilled,
)
from relaxlab.runtime.kv.page_pool import PagePool

__all__ = ["Block", "BlockTree"]

NO_PAGE = -1
"""A place in a block's page list that has no page (yet)."""


class Block:
    """Pages in order, and how many tokens they hold.

    Attributes
    ----------
    index
        Its number.
    pages
        Page numbers; all but the last page are full (the gap behind a sink aside).
    length
        Tokens.
    start
        Position, in the sequence, of the first token.
    sink
        Leading tokens that never slide away; 0 until the first slide.
    offset
        Where the first token after the sink lies, in rows from the block's beginning.
    parent
        The block before; None for a root.
    references
        How many sequences end here and how many blocks follow.
    """

    __slots__ = (
        "index",
        "length",
        "offset",
        "page_size",
        "pages",
        "parent",
        "references",
        "sink",
        "start",
    )

    def __init__(self, index: int, start: int, page_size: int) -> None:
        self.index = index
        self.pages = array("i")
        self.length = 0
        self.start = start
        self.sink = 0
        self.offset = 0
        self.parent: Block | None = None
        self.references = 0
        self.page_size = page_size

    def slot(self, token: int) -> int:
        """Return where a token of this block lies: ``page * page_size + row``."""
        x = token if token < self.sink else token - self.sink + self.offset
        return self.pages[x // self.page_size] * self.page_size + x % self.page_size

    def slots(self) -> list[int]:
        """Return the slots of all tokens."""
        return [self.slot(token) for token in range(self.length)]

    def last_page_length(self) -> int:
        """Return how many rows of the last page are in use; 0 for an empty block."""
        if not self.length:
            return 0
        return (self.length - self.sink + self.offset - 1) % self.page_size + 1

    def places_for(self, length: int) -> int:
        """Return how many pages the block needs for so many tokens, given its sink and offset."""
        rows = length - self.sink + self.offset if length > self.sink else length
        return -(-rows // self.page_size)

    def chain(self) -> list["Block"]:
        """Return the blocks from the root to this one."""
        blocks = [self]
        while (before := blocks[-1].parent) is not None:
            blocks.append(before)
        blocks.reverse()
        return blocks

    def __repr__(self) -> str:
        return (
            f"Block({self.index}: {self.length} tokens from {self.start}, "
            f"pages {list(self.pages)}, {self.references} references)"
        )


class BlockTree:
    """All blocks, the pool their pages come from, and who is told about changes.

    Parameters
    ----------
    num_pages, page_size
        Size of the pool, and tokens of a page.

    Attributes
    ----------
    observer
        Told about every change; None for nobody.
    free_numbers
        Numbers of blocks that are gone; the last one is used next.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.pool = PagePool(num_pages)
        self.page_size = page_size
        self.observer: Observer | None = None
        self._blocks: list[Block | None] = []
        self.free_numbers: list[int] = []

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks that exist, by number."""
        return (block for block in self._blocks if block is not None)

    def get(self, index: int) -> Block | None:
        """Return a block by number; None if there is none."""
        return self._blocks[index] if 0 <= index < len(self._blocks) else None

    def create(self, start: int) -> Block:
        """Return a new, empty root block."""
        if self.free_numbers:
            index = self.free_numbers.pop()
        else:
            index = len(self._blocks)
            self._blocks.append(None)
        block = Block(index, start, self.page_size)
        self._blocks[index] = block
        if self.observer is not None:
            self.observer(BlockCreated(index, start))
        return block

    def link(self, block: Block, parent: Block | None) -> None:
        """Let a block follow another one, or none."""
        if block.parent is not None:
            block.parent.references -= 1
        block.parent = parent
        if parent is not None:
            parent.references += 1
        if self.observer is not None:
            self.observer(BlockLinked(block.index, -1 if parent is None else parent.index))

    def free(self, block: Block) -> None:
        """Give back the pages, first to last, and then the block."""
        self.return_pages(block, block.pages[:])
        if block.parent is not None:
            block.parent.references -= 1
        self._blocks[block.index] = None
        self.free_numbers.append(block.index)
        if self.observer is not None:
            self.observer(BlockFreed(block.index))

    def free_chain(self, block: Block | None) -> None:
        """Free a block that nobody refers to, then its parent if the same holds, and so on."""
        while block is not None and not block.references:
            parent = block.parent
            self.free(block)
            block = parent

    def allocate(self, block: Block, count: int) -> None:
        """Take pages from the pool to the end of a block.

        If the pool runs dry the block keeps what it got, and the error is raised.
        """
        had = len(block.pages)
        try:
            for _ in range(count):
                block.pages.append(self.pool.take(block.index))
        finally:
            if self.observer is not None and len(block.pages) > had:
                self.observer(PagesAllocated(block.index, tuple(block.pages[had:])))

    def borrow(self, block: Block, count: int) -> None:
        """Add places without pages to the end of a block."""
        block.pages.extend([NO_PAGE] * count)
        if self.observer is not None and count:
            self.observer(PlacesBorrowed(block.index, count))

    def fill_borrowed(self, block: Block) -> None:
        """Take a page for each place without one."""
        filled = []
        try:
            for place, page in enumerate(block.pages):
                if page == NO_PAGE:
                    block.pages[place] = self.pool.take(block.index)
                    filled.append(block.pages[place])
        finally:
            if self.observer is not None and filled:
                self.observer(PlacesFilled(block.index, tuple(filled)))

    def return_pages(self, block: Block, pages: "array[int]") -> None:
        """Take pages out of a block and push them on the free stack in the given order.

        They must be the block's first or last ones.
        """
        if not pages:
            return
        if pages[0] == block.pages[0]:
            del block.pages[: len(pages)]
        else:
            del block.pages[len(block.pages) - len(pages) :]
        for page in pages:
            if page != NO_PAGE:  # left by a begin_forward that failed within exact()
                self.pool.give_back(page)
        if self.observer is not None:
            self.observer(PagesFreed(block.index, tuple(pages)))

    def split(self, source: Block, pages: int, *, stale_sink: bool = False) -> Block:
        """Move the first pages of a block to a new block before it; return the new block.

        If the block has slid, the pages are a part of its sink, and what is left of the sink gets
        shorter; ``stale_sink`` leaves it as it was, as TVM does.
        """
        moved = pages * self.page_size
        shared = self.create(source.start)
        shared.pages = source.pages[:pages]
        shared.length = moved
        for page in shared.pages:
            self.pool.hand_over(page, shared.index)
        del source.pages[:pages]
        source.start += moved
        source.length -= moved
        if source.sink and not stale_sink:
            source.sink -= moved
            source.offset -= moved
        if self.observer is not None:
            self.observer(
                PagesShared(
                    source.index,
                    shared.index,
                    tuple(shared.pages),
                    moved,
                    source.sink,
                    source.offset,
                )
            )
        self.link(shared, source.parent)
        self.link(source, shared)
        return shared

    def clear(self) -> None:
        """Forget all blocks and free all pages, in the order of the beginning."""
        self.pool.clear()
        self._blocks = []
        self.free_numbers = []
