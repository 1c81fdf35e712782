"""The pages of a cache: which are free, in which order they are taken, and which block has each.

Free pages are a stack. It begins as ``n-1, ..., 1, 0`` with 0 on top, so the pages that were never
taken always lie at its bottom in one run; storing only the first of that run makes a pool of any
size free to create, and taking, giving back and clearing cost what is touched and no more.
Counterpart: the free list of TVM's paged cache (kv.md 3.3).

Examples
--------
>>> pool = PagePool(4)
>>> [pool.take(owner=7) for _ in range(3)]
[0, 1, 2]
>>> pool.give_back(0)
>>> pool.peek(), pool.available, pool.owner(1), pool.owner(0)
(0, 2, 7, None)
"""

from relaxlab.errors import InternalError

__all__ = ["PagePool"]


class PagePool:
    """Free pages and the owners of the others.

    Parameters
    ----------
    num_pages
        Pages in all, numbered from 0.

    Attributes
    ----------
    fresh : int
        The first page that was never taken; all after it are free.
    freed : list of int
        Pages that were given back; the last one is taken next.
    """

    __slots__ = ("_owners", "freed", "fresh", "num_pages")

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self.fresh = 0
        self.freed: list[int] = []
        self._owners: dict[int, int] = {}

    @property
    def available(self) -> int:
        """How many pages are free."""
        return self.num_pages - self.fresh + len(self.freed)

    def take(self, owner: int) -> int:
        """Return the page on top of the stack, which now belongs to block ``owner``.

        Raises
        ------
        InternalError
            If no page is free.
        """
        if self.freed:
            page = self.freed.pop()
        elif self.fresh < self.num_pages:
            page = self.fresh
            self.fresh = page + 1
        else:
            raise InternalError(
                "The KV cache is full. No page can be allocated: "
                f"all {self.num_pages} pages are taken"
            )
        self._owners[page] = owner
        return page

    def peek(self) -> int | None:
        """Return the page that would be taken next; None if none is free."""
        if self.freed:
            return self.freed[-1]
        return self.fresh if self.fresh < self.num_pages else None

    def give_back(self, page: int) -> None:
        """Put a page on top of the stack."""
        del self._owners[page]
        self.freed.append(page)

    def hand_over(self, page: int, owner: int) -> None:
        """Let a taken page belong to another block."""
        if page not in self._owners:
            raise InternalError(f"page {page} is free: it has no owner to take it from")
        self._owners[page] = owner

    def owner(self, page: int) -> int | None:
        """Return the number of the block that has a page; None if it is free."""
        return self._owners.get(page)

    def owned(self) -> dict[int, int]:
        """Return a copy of the map from taken pages to blocks."""
        return dict(self._owners)

    def clear(self) -> None:
        """Free all pages, in the order of the beginning."""
        self.fresh = 0
        self.freed = []
        self._owners = {}

    def __repr__(self) -> str:
        return f"PagePool({self.available} of {self.num_pages} pages free)"
