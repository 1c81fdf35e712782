"""Which keys a query row sees, as whole arrays: intervals for windows, a matrix for trees.

Counterpart: the mask conditions inside TVM's kernels.

Examples
--------
>>> Causal().matrix(0, 2, 2, 3).astype(int).tolist()  # 2 rows, 3 keys
[[1, 1, 0], [1, 1, 1]]
>>> LayerWindow(2).matrix(0, 2, 2, 3).astype(int).tolist()  # cached keys only
[[0, 0, 1], [0, 0, 0]]
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Causal", "Everything", "LayerWindow", "TreeNodes", "Visibility"]

Bools = NDArray[np.bool_]


class Visibility(Protocol):
    """Says what rows see. Rows and keys are counted within a chunk."""

    def span(self, first: int, last: int, rows: int, keys: int) -> tuple[int, int]:
        """Return an interval that holds every key seen by rows ``first`` to ``last - 1``."""

    def matrix(self, first: int, last: int, rows: int, keys: int) -> Bools | None:
        """Return who sees what, ``[last - first, keys]``; None if every row sees every key."""


@dataclass(frozen=True, slots=True)
class Everything:
    """Every row sees every key."""

    def span(self, first: int, last: int, rows: int, keys: int) -> tuple[int, int]:
        """Return all keys."""
        return 0, keys

    def matrix(self, first: int, last: int, rows: int, keys: int) -> Bools | None:
        """Return None."""
        return None


@dataclass(frozen=True, slots=True)
class Causal:
    """The last row sees every key, the one before it all but the last, and so on."""

    def span(self, first: int, last: int, rows: int, keys: int) -> tuple[int, int]:
        """Return what the last of the rows sees."""
        return 0, max(min(keys - rows + last, keys), 0)

    def matrix(self, first: int, last: int, rows: int, keys: int) -> Bools | None:
        """Return the lower triangle, shifted."""
        ends = keys - rows + 1 + np.arange(first, last)
        return np.arange(keys) < ends[:, None]


@dataclass(frozen=True, slots=True)
class LayerWindow:
    """Row ``r`` sees the last ``window - r - 1`` keys: those before it within a layer's window."""

    window: int

    def span(self, first: int, last: int, rows: int, keys: int) -> tuple[int, int]:
        """Return what the first of the rows sees."""
        return max(keys - max(self.window - first - 1, 0), 0), keys

    def matrix(self, first: int, last: int, rows: int, keys: int) -> Bools | None:
        """Return a staircase that ends at the last key."""
        starts = keys - np.maximum(self.window - np.arange(first, last) - 1, 0)
        return np.arange(keys) >= starts[:, None]


@dataclass(frozen=True, slots=True)
class TreeNodes:
    """The last keys are nodes of a tree: a row sees its ancestors, itself, and all older keys.

    ``order`` ``[nodes, 2]`` holds, for each node, its visit number and the end of its subtree.
    """

    order: NDArray[Any]

    def span(self, first: int, last: int, rows: int, keys: int) -> tuple[int, int]:
        """Return all keys."""
        return 0, keys

    def matrix(self, first: int, last: int, rows: int, keys: int) -> Bools | None:
        """Return the matrix of ancestors, with older keys before it."""
        nodes = len(self.order)
        if not nodes:
            return None
        seen = np.ones((last - first, keys), np.bool_)
        visits = self.order[nodes - rows + first : nodes - rows + last, 0, None]
        seen[:, keys - nodes :] = (self.order[:, 0] <= visits) & (visits < self.order[:, 1])
        return seen
