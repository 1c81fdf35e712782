"""The pages of a cache over time: who has which page, why, and what happened just now.

Shows the pool as a grid, the sequences with their page tables, the free stack in its true order and
every event in words; two recordings stand side by side on one clock, which then counts calls.
Everything it draws is also in its text twin, ``print(view)``. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.runtime.kv.observer import BlockCreated, PagesAllocated, SequenceAdded
>>> recorder = PoolRecorder(num_pages=4, page_size=2)
>>> with recorder.call("add_sequence(0)"):
...     recorder(BlockCreated(0, 0)); recorder(SequenceAdded(0, 0))
>>> view = PagePool(recorder)
>>> view
PagePool(cache, event 3 of 3)
"""

import base64
import json
import os
from pathlib import Path
from typing import Any, ClassVar, Self

import traitlets

from relaxlab.trace.event_stream import encode, schema_of
from relaxlab.trace.perfetto import pool_trace
from relaxlab.trace.pool_events import CLASSES, WORDS
from relaxlab.trace.pool_recorder import PoolRecorder
from relaxlab.trace.pool_text import render_pool
from relaxlab.trace.pool_timeline import PoolTimeline
from relaxlab.widgets.bundle import bundle, stylesheet
from relaxlab.widgets.view import STATIC, View

__all__ = ["PagePool", "packed", "told"]


class PagePool(View):
    """A view of the recording of a cache, or of two beside each other.

    Parameters
    ----------
    recorders
        One or two recordings. With two, the clock counts calls, so that call ``n`` of one is shown
        with call ``n`` of the other.

    Attributes
    ----------
    position : int
        How many events (with two recordings: calls) have happened; changing it moves the view.

    Raises
    ------
    TypeError
        If something else than one or two recorders is given.
    """

    _esm = bundle(STATIC / "page_pool.js")
    _css = stylesheet(STATIC / "view.css", STATIC / "page_pool.css")
    _exported: ClassVar[tuple[str, ...]] = ("pool", "position")
    _frame_height: ClassVar[int] = 900

    pool = traitlets.Dict().tag(sync=True)
    position = traitlets.Int().tag(sync=True)

    def __init__(self, *recorders: PoolRecorder) -> None:
        if not 1 <= len(recorders) <= 2 or not all(
            isinstance(one, PoolRecorder) for one in recorders
        ):
            kinds = ", ".join(type(one).__name__ for one in recorders) or "nothing"
            raise TypeError(f"expected one or two PoolRecorder, got {kinds}")
        self.timelines = [PoolTimeline.of(one) for one in recorders]
        runs = [
            packed(one) | {"losses": told(timeline)}
            for one, timeline in zip(recorders, self.timelines, strict=True)
        ]
        super().__init__(pool={"runs": runs}, position=self.end_of())

    def end_of(self) -> int:
        """Return the last position."""
        if len(self.timelines) == 1:
            return len(self.timelines[0])
        return max(len(timeline.calls) for timeline in self.timelines)

    @traitlets.validate("position")
    def _recorded(self, proposal: Any) -> int:
        position: int = proposal["value"]
        end = self.end_of()
        if not 0 <= position <= end:
            raise traitlets.TraitError(f"no position {position}: the recording has 0 to {end}")
        return position

    # ---- moving from Python, as the buttons do -------------------------------------------------

    def step(self, times: int = 1) -> Self:
        """Go one event (or call) forward, or more; not beyond the end."""
        return self.goto(min(self.end_of(), self.position + times))

    def back(self, times: int = 1) -> Self:
        """Go one event (or call) back, or more; not before the start."""
        return self.goto(max(0, self.position - times))

    def next_call(self) -> Self:
        """Go to the beginning of the next call, or to the end."""
        if len(self.timelines) > 1:
            return self.step()
        later = [at for at in self.timelines[0].calls if at > self.position]
        return self.goto(later[0] if later else self.end_of())

    def last_call(self) -> Self:
        """Go back to the beginning of a call, or to the start."""
        if len(self.timelines) > 1:
            return self.back()
        earlier = [at for at in self.timelines[0].calls if at < self.position]
        return self.goto(earlier[-1] if earlier else 0)

    def goto(self, position: int) -> Self:
        """Go to a position; one that is not recorded is a ``TraitError``."""
        self.position = position
        return self

    def to_perfetto(self, path: str | os.PathLike[str], run: int = 0) -> Path:
        """Write a recording as a Chrome trace, a microsecond an event; return where it is."""
        target = Path(path)
        target.write_text(json.dumps(pool_trace(self.timelines[run])), encoding="utf-8")
        return target

    # ---- words ---------------------------------------------------------------------------------

    def event_of(self, run: int) -> int:
        """Return how many events of a recording have happened at the common position."""
        timeline = self.timelines[run]
        if len(self.timelines) == 1:
            return self.position
        calls = timeline.calls
        return calls[self.position] if self.position < len(calls) else len(timeline)

    @property
    def heading(self) -> str:
        """What an exported page is called."""
        return "Pages of " + " and ".join(timeline.name for timeline in self.timelines)

    def __str__(self) -> str:
        """Return what the view shows, as text."""
        return "\n\n".join(
            render_pool(timeline, self.event_of(run)) for run, timeline in enumerate(self.timelines)
        )

    def __repr__(self) -> str:
        """Return names and position."""
        unit = "event" if len(self.timelines) == 1 else "call"
        names = ", ".join(timeline.name for timeline in self.timelines)
        return f"PagePool({names}, {unit} {self.position} of {self.end_of()})"


def told(timeline: PoolTimeline) -> list[list[Any]]:
    """Return what an engine gave up as plain data for the page: event and text."""
    return [[loss.event, loss.text] for loss in timeline.losses]


def packed(recorder: PoolRecorder) -> dict[str, Any]:
    """Return a recording as plain data for the page."""
    stream, texts = encode(recorder.events, CLASSES)
    return {
        "name": recorder.name,
        "num_pages": recorder.num_pages,
        "page_size": recorder.page_size,
        "schema": schema_of(CLASSES),
        "words": WORDS,
        "texts": texts,
        "tokens": recorder.tokens,
        "stream": base64.b64encode(stream).decode(),
    }
