"""Which keys a query row sees, as whole arrays: intervals for windows, a matrix for trees.

Rows come in tiles. A tile has a span of keys outside of which no row sees anything, and, within
it, a stretch where some rows see less than others: only there something must be masked.
Counterpart: the mask conditions inside TVM's kernels.

Examples
--------
>>> Causal().span(0, 2, 2, 5)  # 2 rows, 5 keys
(0, 5)
>>> first, hidden = Causal().hidden(0, 2, 2, 5)
>>> first, hidden.astype(int).tolist()  # from key 4 on: row 0 does not see it, row 1 does
(4, [[1], [0]])
>>> first, hidden = LayerWindow(3).hidden(0, 2, 2, 5)
>>> first, hidden.astype(int).tolist()
(3, [[0], [1]])
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Causal", "Everything", "LayerWindow", "TreeNodes", "Visibility"]

Hidden = tuple[int, NDArray[np.bool_]]
"""A key, and for the keys from it on, which row does not see which."""


class Visibility(Protocol):
    """Says what rows see. Rows and keys are counted within a chunk."""

    def span(self, first: int, last: int, rows: int, keys: int) -> tuple[int, int]:
        """Return an interval that holds every key seen by rows ``first`` to ``last - 1``."""

    def hidden(self, first: int, last: int, rows: int, keys: int) -> Hidden | None:
        """Return what these rows do not see within their span; None if they see all of it."""


@dataclass(frozen=True, slots=True)
class Everything:
    """Every row sees every key."""

    def span(self, first: int, last: int, rows: int, keys: int) -> tuple[int, int]:
        """Return all keys."""
        return 0, keys

    def hidden(self, first: int, last: int, rows: int, keys: int) -> Hidden | None:
        """Return None."""
        return None


@dataclass(frozen=True, slots=True)
class Causal:
    """The last row sees every key, the one before it all but the last, and so on."""

    def span(self, first: int, last: int, rows: int, keys: int) -> tuple[int, int]:
        """Return what the last of the rows sees."""
        return 0, max(min(keys - rows + last, keys), 0)

    def hidden(self, first: int, last: int, rows: int, keys: int) -> Hidden | None:
        """Return a triangle behind what the first row sees."""
        begin = max(keys - rows + first + 1, 0)
        end = self.span(first, last, rows, keys)[1]
        if begin >= end:
            return None
        ends = keys - rows + 1 + np.arange(first, last)
        return begin, np.arange(begin, end) >= ends[:, None]


@dataclass(frozen=True, slots=True)
class LayerWindow:
    """Row ``r`` sees the last ``window - r - 1`` keys: those before it within a layer's window."""

    window: int

    def span(self, first: int, last: int, rows: int, keys: int) -> tuple[int, int]:
        """Return what the first of the rows sees."""
        return max(keys - max(self.window - first - 1, 0), 0), keys

    def hidden(self, first: int, last: int, rows: int, keys: int) -> Hidden | None:
        """Return a staircase at the beginning of what the first row sees."""
        begin = self.span(first, last, rows, keys)[0]
        end = self.span(last - 1, last, rows, keys)[0]
        if begin >= end:
            return None
        starts = keys - np.maximum(self.window - np.arange(first, last) - 1, 0)
        return begin, np.arange(begin, end) < starts[:, None]


@dataclass(frozen=True, slots=True)
class TreeNodes:
    """The last keys are nodes of a tree: a row sees its ancestors, itself, and all older keys.

    ``order`` ``[nodes, 2]`` holds, for each node, its visit number and the end of its subtree.
    """

    order: NDArray[Any]

    def span(self, first: int, last: int, rows: int, keys: int) -> tuple[int, int]:
        """Return all keys."""
        return 0, keys

    def hidden(self, first: int, last: int, rows: int, keys: int) -> Hidden | None:
        """Return the nodes that are not ancestors."""
        nodes = len(self.order)
        if not nodes:
            return None
        visits = self.order[nodes - rows + first : nodes - rows + last, 0, None]
        return keys - nodes, (self.order[:, 0] > visits) | (visits >= self.order[:, 1])
