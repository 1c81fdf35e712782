"""Rotation inside attention kernels, as the inline mode wants it.

Queries and keys are turned when they are used, by base and scale that come as run-time arguments,
over the whole head. The layers of a round turn by the same angles, so the last few tables of sines
and cosines are kept; rotated rows are rounded to the cache's element type. Counterpart: the
rotation inside TVM's kernels.

Examples
--------
>>> import numpy as np
>>> from relaxlab.runtime.kv.attention.spec import KernelSpec
>>> turns = Turns(KernelSpec(num_qo_heads=1, num_kv_heads=1, qk_head_dim=2))
>>> turns.by(np.dtype("float32"), 0, 1.0, 1e4) is None
True
>>> turn = turns.by(np.dtype("float32"), 1, 1.0, 1e4)
>>> turn.at(np.ones((1, 1, 2), "float32"), np.array([0])).tolist()
[[[1.0, 1.0]]]
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.runtime.kv.attention.plans import RecentPlans
from relaxlab.runtime.kv.attention.spec import KernelSpec
from relaxlab.runtime.kv.exact import is_exact
from relaxlab.runtime.kv.rope import Rope, turn

__all__ = ["Turn", "Turns"]

Array = NDArray[Any]
Floats = NDArray[np.float32]

_TABLES: Final = 16


class Turn:
    """The rotation of one kernel call."""

    def __init__(
        self, rope: Rope, tables: RecentPlans, dtype: Any, scale: float, theta: float
    ) -> None:
        self._rope, self._tables, self._dtype = rope, tables, dtype
        self._scale, self._theta = scale, theta

    def angles(self, positions: Array) -> tuple[Floats, Floats]:
        """Return cosines and sines ``[*positions, features]``."""

        def make() -> tuple[Floats, Floats]:
            return self._rope.angles(positions, theta=self._theta, scale=self._scale)

        rest = (positions.shape, self._theta, self._scale, is_exact())
        found: tuple[Floats, Floats] = self._tables.get(make, (positions,), rest)
        return found

    def turn(self, rows: Array, cos: Floats, sin: Floats) -> Array:
        """Return the rows rotated, and rounded to the element type of the cache."""
        out = turn(rows, cos, sin, interleaved=self._rope.interleaved(inline=True))
        return out if self._dtype == np.float32 else out.astype(self._dtype)

    def at(self, rows: Array, positions: Array) -> Array:
        """Return rows ``[tokens, heads, dim]`` rotated at ``positions``."""
        cos, sin = self.angles(positions)
        return self.turn(rows, cos[:, None], sin[:, None])


class Turns:
    """The rotations of one kernel."""

    def __init__(self, spec: KernelSpec) -> None:
        self._rope = spec.inline_rope
        self._tables = RecentPlans(_TABLES)

    def by(self, dtype: Any, rotary_mode: int, scale: float, theta: float) -> Turn | None:
        """Return what a kernel call asks for; None unless the mode is inline."""
        if not rotary_mode or self._rope is None:
            return None
        return Turn(self._rope, self._tables, dtype, scale, theta)
