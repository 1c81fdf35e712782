"""Where the keys of a chunk are: page tables turned into arrays that NumPy can index with.

A chunk is a list of pages; ``length_info`` says how many rows of the last page are used and, where
windows slide, how many places after the sink are gone. Counterpart: the address arithmetic inside
TVM's paged kernels.

Examples
--------
>>> table = PageTable.of(
...     np.array([0, 2], "int32"), np.array([7, 3], "int32"), np.array([[2], [3], [1]], "int32"), 4
... )
>>> chunk = table.chunks[0]
>>> chunk.pages.tolist(), chunk.places.tolist()  # place 0 is the sink, 1 and 2 are gone
([7, 3], [0, 3, 4, 5])
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ChunkPages", "PageTable"]

Ints = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ChunkPages:
    """The keys of one chunk.

    Attributes
    ----------
    pages
        Page ids, in order.
    places
        For each key, its row in these pages laid end to end.
    """

    pages: Ints
    places: Ints

    @property
    def count(self) -> int:
        """Number of keys."""
        return len(self.places)


@dataclass(frozen=True, slots=True)
class PageTable:
    """The chunks of one kernel call."""

    chunks: tuple[ChunkPages, ...]

    @classmethod
    def of(cls, page_indptr: Ints, page_values: Ints, length_info: Ints, page_size: int) -> Any:
        """Read the arrays that a kernel gets."""
        chunks = []
        starts = page_indptr.tolist()
        info = length_info if length_info.ndim == 2 else length_info[None]
        for number, column in enumerate(info.T.tolist()):
            pages = np.array(page_values[starts[number] : starts[number + 1]], np.intp)
            last, offset, sink = (*column, 0, 0)[:3]
            places = np.arange(max((len(pages) - 1) * page_size + last, 0) if len(pages) else 0)
            if offset != sink:
                places = np.concatenate([places[:sink], places[offset:]])
            chunks.append(ChunkPages(pages, places))
        return cls(tuple(chunks))
