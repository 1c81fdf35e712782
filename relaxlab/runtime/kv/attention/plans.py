"""Plans: what a kernel derives from a round's index arrays, kept for the layers of the round.

The index arrays of a round are the same for every layer, but a kernel that is a plain callable
gets them anew each time, as views of buffers that the next round overwrites. So a plan is found
again by the *contents* of the arrays, which are a few hundred bytes; a stale plan is impossible.
Counterpart: the plan functions of the FlashInfer backend.

Examples
--------
>>> import numpy as np
>>> plans = RecentPlans()
>>> a = np.array([1, 2], "int32")
>>> plans.get(lambda: [a.sum()], (a,)) is plans.get(lambda: [0], (a.copy(),))
True
"""

from collections.abc import Callable
from typing import Any, Final

from numpy.typing import NDArray

__all__ = ["RecentPlans"]

#: A round has up to two depths, each with and without the window of a layer.
_KEPT: Final = 4


class RecentPlans:
    """The last few plans of one kernel; ``kept`` says how many."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._plans: dict[Any, Any] = {}
        self._kept = kept

    def get(
        self, make: Callable[[], Any], arrays: tuple[NDArray[Any], ...], rest: tuple[Any, ...] = ()
    ) -> Any:
        """Return the plan for these arrays and other values; make it if it is not there.

        Arrays that could be read with several shapes must come with one that tells them apart.
        """
        key = (*[a.tobytes() for a in arrays], *rest)
        plan = self._plans.get(key)
        if plan is None:
            plan = make()
            # a copy of the keys, and no complaint: another thread may be doing the same
            for old in list(self._plans)[: len(self._plans) - self._kept + 1]:
                self._plans.pop(old, None)
            self._plans[key] = plan
        return plan
