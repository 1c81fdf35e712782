"""Pages copied together, and their keys rotated on the way.

Compiled kernels read pages where they are. When keys must be rotated at each use (the inline
mode), or the pages are no contiguous array, the pages of a call are copied first, and the kernel
reads the copy under new page numbers. Counterpart: the rotation inside TVM's kernels.

Examples
--------
>>> from relaxlab.runtime.kv.attention import KernelSpec
>>> gather = PageGatherer(KernelSpec(num_qo_heads=1, num_kv_heads=1, qk_head_dim=4))
>>> pages = np.arange(3.0, dtype="float32").reshape(3, 1, 1, 1, 1) * np.ones((3, 2, 1, 2, 4), "f")
>>> index = lambda *x: np.array(x, "int32")
>>> copy, values = gather(pages, index(0, 2), index(2, 0), index(1), index(0), None)
>>> copy[:, 0, 0, 0, 0].tolist(), values.tolist()
([2.0, 0.0], [0, 1])
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxlab.runtime.kv.attention import KernelSpec
from relaxlab.runtime.kv.attention.page_table import PageTable
from relaxlab.runtime.kv.attention.plans import RecentPlans
from relaxlab.runtime.kv.attention.turning import Turn, Turns

__all__ = ["PageGatherer"]

Array = NDArray[Any]


class PageGatherer:
    """Copies the pages of kernel calls."""

    def __init__(self, spec: KernelSpec) -> None:
        self.turns = Turns(spec)
        self._places = RecentPlans()

    def __call__(
        self,
        pages: Array,
        indptr: Array,
        values: Array,
        info: Array,
        offsets: Array,
        turn: Turn | None,
    ) -> tuple[Array, Array]:
        """Return the pages of all chunks and their new numbers; arrays as kernels get them."""
        count, size = int(indptr[-1]), pages.shape[3]
        copy = pages[values[:count]]
        if turn is not None and count:
            positions, (page, row) = self._positions(indptr, values, info, offsets, size)
            # what lies in unused rows may be anything, also what cannot be multiplied
            copy[page, :, :, row] = 0
            cos, sin = turn.angles(positions)
            copy[:, 0] = turn.turn(copy[:, 0], cos[:, None], sin[:, None])
        return copy, np.arange(count, dtype=np.int32)

    def _positions(
        self, indptr: Array, values: Array, info: Array, offsets: Array, size: int
    ) -> tuple[Array, tuple[Array, Array]]:
        """Return the position of each row of the copy, and which rows hold no key."""

        def make() -> tuple[Array, tuple[Array, Array]]:
            table: PageTable = PageTable.of(indptr, values, info, size)
            flat = np.full(int(indptr[-1]) * size, -1)
            for first, offset, chunk in zip(indptr, offsets, table.chunks, strict=False):
                flat[int(first) * size + chunk.places] = int(offset) + np.arange(chunk.count)
            positions = flat.reshape(-1, size)
            page, row = np.nonzero(positions < 0)
            return np.maximum(positions, 0), (page, row)

        found: tuple[Array, tuple[Array, Array]] = self._places.get(
            make, (indptr, values, info, offsets), (size,)
        )
        return found
