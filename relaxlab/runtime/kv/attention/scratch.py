"""Memory that a kernel uses again and again: fresh pages cost more than the work on them.

An array of a few hundred kilobytes comes from the system untouched, and touching it for the first
time takes longer than filling it. Counterpart: the workspaces of attention backends.

Examples
--------
>>> import numpy as np
>>> scratch = Scratch()
>>> a = scratch.take((2, 3), np.float32)
>>> a.shape, str(a.dtype)
((2, 3), 'float32')
>>> scratch.give(a)
>>> scratch.take((6,), np.float32).base is a.base
True
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scratch"]


class Scratch:
    """Buffers that are lent to one call at a time; safe with threads, since lists are."""

    def __init__(self) -> None:
        self._free: list[NDArray[np.uint8]] = []

    def take(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an array with undefined contents."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        try:
            memory = self._free.pop()
        except IndexError:
            memory = np.empty(size, np.uint8)
        if len(memory) < size:
            memory = np.empty(size, np.uint8)
        return np.ndarray(shape, dtype, memory)

    def give(self, lent: NDArray[Any]) -> None:
        """Take back what :meth:`take` returned."""
        memory = lent.base
        if isinstance(memory, np.ndarray):
            self._free.append(memory)
