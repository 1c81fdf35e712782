"""Collect what a machine tells, within a bound.

A recorder is an observer: give it to a machine and run. It keeps the last steps up to a limit;
what is older is folded into one state, so the oldest step that is kept still has its full frames
and registers, and the recorder says how much was dropped. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.runtime.vm.observer import FramePushed, InstructionStarted, Jumped
>>> recorder = Recorder(limit=100)
>>> recorder(FramePushed(0, 0, "f", 0, (), None))
>>> for step in range(1001):
...     recorder(InstructionStarted(step, 0, "f", 0))
...     recorder(Jumped(step, 0, 0, 0))
>>> recorder
Recorder(101 steps, the first 900 dropped)
>>> len(recorder.timeline.state(950).frames)
1
"""

import contextlib
import io
from collections.abc import Iterator
from typing import TextIO

from relaxlab.runtime.vm.observer import Event, InstructionStarted, RunStarted
from relaxlab.trace.timeline import Timeline

__all__ = ["Recorder"]


class Recorder:
    """An observer that keeps the events of the last steps of the last run.

    Parameters
    ----------
    limit
        How many of the last steps to keep at least; up to twice as many may be there. None keeps
        everything.

    Attributes
    ----------
    timeline : Timeline
        The states of the steps that are kept; it grows while the machine runs, and is another
        object after steps were dropped.

    Raises
    ------
    ValueError
        If ``limit`` is less than 1.
    """

    def __init__(self, limit: int | None = 100_000) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"a recorder keeps at least one step, got limit={limit}")
        self.limit = limit
        self.timeline = Timeline()

    def __call__(self, event: Event) -> None:
        """Take note of an event; a new call from the host begins a new timeline."""
        if isinstance(event, RunStarted) and event.depth == 0:
            self.timeline = Timeline()
        # dropping rebuilds the indexes of what is kept, so as much as is kept goes at once
        if (
            self.limit is not None
            and isinstance(event, InstructionStarted)
            and len(self.timeline) >= 2 * self.limit
        ):
            self.timeline = self.timeline.since(self.timeline.end - self.limit)
        self.timeline.append(event)

    @property
    def dropped(self) -> int:
        """How many steps were dropped."""
        return self.timeline.first_step

    @contextlib.contextmanager
    def listening(self, forward: TextIO | None = None) -> Iterator[None]:
        """Note what the program prints to standard output, and pass it on to ``forward``."""
        with contextlib.redirect_stdout(_Console(self, forward)):
            yield

    def __repr__(self) -> str:
        dropped = f", the first {self.dropped} dropped" if self.dropped else ""
        return f"Recorder({len(self.timeline)} steps{dropped})"


class _Console(io.TextIOBase):
    """A text stream that writes into a recorder."""

    def __init__(self, recorder: Recorder, forward: TextIO | None) -> None:
        super().__init__()
        self._recorder = recorder
        self._forward = forward

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        self._recorder.timeline.print(text)
        if self._forward is not None:
            self._forward.write(text)
        return len(text)
