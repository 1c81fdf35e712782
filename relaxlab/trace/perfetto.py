"""Recordings as Chrome traces, which https://ui.perfetto.dev opens.

There a recording can be looked at beside others, searched and measured. Its clock is not time: a
step of the machine, or an event of a cache, is one microsecond long. Counterpart of the profile's
own export: :meth:`relaxlab.runtime.vm.profile_report.ProfileReport.to_perfetto`.

Examples
--------
>>> from relaxlab.trace.timeline import Timeline
>>> steps_trace(Timeline(), lambda pc: "")["traceEvents"]
[]
"""

from collections.abc import Callable
from typing import Any

from relaxlab.runtime.kv.observer import (
    CacheCleared,
    PagesAllocated,
    PagesFreed,
    PlacesFilled,
    Slid,
)
from relaxlab.trace.pool_events import Called, explain_pool_event, is_engine_event
from relaxlab.trace.pool_timeline import PoolTimeline
from relaxlab.trace.timeline import Timeline

__all__ = ["pool_trace", "steps_trace"]


def steps_trace(timeline: Timeline, text_of: Callable[[int], str]) -> dict[str, Any]:
    """Return the steps of a run: a slice for each frame, and one for each instruction in it.

    Parameters
    ----------
    timeline
        Of the run.
    text_of
        Says what an instruction is.
    """
    events: list[dict[str, Any]] = []
    frames: list[tuple[str, int]] = []  # function and first step of those that are open
    for step, top, _ in timeline.walk():
        assert top is not None
        stack = [frame.function for frame in reversed([*top.stack()])]
        while len(frames) > len(stack):
            events.append(_frame(*frames.pop(), step))
        frames += [(name, step) for name in stack[len(frames) :]]
        slice_ = _slice(text_of(top.pc), "instruction", step, 1)
        events.append(slice_ | {"args": {"pc": top.pc, "step": step}})
    while frames:
        events.append(_frame(*frames.pop(), timeline.end))
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def pool_trace(timeline: PoolTimeline) -> dict[str, Any]:
    """Return a recording of a cache: a slice for each call, pages in use, what an engine did."""
    events: list[dict[str, Any]] = [_used(0, 0)]
    used = timeline.num_pages - timeline.state(0).available
    ends = [*timeline.calls[1:], len(timeline)]
    for first, last in zip(timeline.calls, ends, strict=True):
        call = timeline.events[first]
        assert isinstance(call, Called)
        events.append(_slice(call.call, "refused" if call.refusal else "call", first, last - first))
    for at, event in enumerate(timeline.events):
        match event:
            case PagesAllocated(_, pages) | PlacesFilled(_, pages):
                used += len(pages)
            case PagesFreed(_, pages) | Slid(_, _, _, _, pages, _, _):
                used -= sum(page >= 0 for page in pages)
            case _ if is_engine_event(event):
                words = {"what": explain_pool_event(event)}
                name = type(event).__name__
                events.append(
                    {"ph": "i", "pid": 1, "tid": 2, "name": name, "ts": at, "s": "t", "args": words}
                )
                continue
            case CacheCleared():
                used = 0
            case _:
                continue
        events.append(_used(at + 1, used))
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _slice(name: str, kind: str, first: int, steps: int) -> dict[str, Any]:
    place = {"ph": "X", "pid": 1, "tid": 1, "ts": first, "dur": steps}
    return {**place, "name": name, "cat": kind}


def _frame(name: str, first: int, end: int) -> dict[str, Any]:
    return _slice(name, "frame", first, end - first)


def _used(at: int, pages: int) -> dict[str, Any]:
    return {"ph": "C", "pid": 1, "name": "pages in use", "ts": at, "args": {"pages": pages}}
