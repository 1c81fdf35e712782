"""Steps of the machine and events of a cache on one clock.

A program that is given a cache changes it while it runs: each call of, say,
``vm.builtin.kv_state_begin_forward`` is one step of the machine and several events of the cache.
A clock notes how many events had happened when each step began, so a view of the steps and a view
of the pages can lead each other. There is no TVM counterpart.

Examples
--------
>>> clock = PoolClock(PoolRecorder(num_pages=4, page_size=2))
>>> for step, events in ((0, 0), (2, 3), (5, 4)):
...     clock.note(step, events)
>>> [clock.events_before(step) for step in range(6)]
[0, 0, 3, 3, 3, 4]
>>> clock.step_of(2, near=9), clock.step_of(3, near=9), clock.step_of(3, near=0)
(1, 4, 2)
"""

from bisect import bisect_right

from relaxlab.trace.pool_recorder import PoolRecorder

__all__ = ["PoolClock"]


class PoolClock:
    """How many events of a recorder had happened before each step.

    Parameters
    ----------
    recorder
        Of the cache.

    Attributes
    ----------
    end : int
        The last step that was noted.

    Notes
    -----
    Only steps before which the number changed are kept: most steps touch no cache. What happened
    before the run belongs to its first position, what happened after it to its last one.
    """

    def __init__(self, recorder: PoolRecorder) -> None:
        recorder.limit = None  # numbers of events must stay what they are
        self.recorder = recorder
        self._steps: list[int] = []
        self._counts: list[int] = []
        self.end = 0

    def note(self, step: int, count: int | None = None) -> None:
        """Note that a step is about to run, by default with what is recorded up to now."""
        events = len(self.recorder.events) if count is None else count
        self.end = step
        if not self._counts or self._counts[-1] != events:
            self._steps.append(step)
            self._counts.append(events)

    def since(self, first: int) -> "PoolClock":
        """Return a clock of the steps that a recording still has."""
        clock = PoolClock(self.recorder)
        clock.note(first, self.events_before(first))
        for step, count in zip(self._steps, self._counts, strict=True):
            if step > first:
                clock.note(step, count)
        clock.end = max(first, self.end)
        return clock

    def events_before(self, step: int) -> int:
        """Return how many events had happened when a step began."""
        at = bisect_right(self._steps, step) - 1
        return self._counts[max(at, 0)] if self._counts else 0

    def step_of(self, event: int, near: int) -> int:
        """Return the step, as near to another one as possible, during which an event was next.

        A position between two events of one step is inside that step.
        """
        steps, counts = self._steps, self._counts
        at = bisect_right(counts, event) - 1
        if at < 0:
            return steps[0] if steps else near
        last = self.end if at + 1 == len(counts) else steps[at + 1] - 1
        # between two events of a step the machine stands before it: it is not over
        return last if event > counts[at] else min(max(steps[at], near), last)

    def agree(self, step: int, event: int) -> bool:
        """Whether a step and a number of events are the same moment."""
        return self.step_of(event, near=step) == step

    def to_data(self) -> list[list[int]]:
        """Return the steps, the numbers of events before them, and the last step, for a page."""
        return [[*self._steps], [*self._counts], [self.end]]
