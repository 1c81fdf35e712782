"""The captured graphs of a machine as plain data, and how events change it.

Folding the events of a machine from its first run on gives exactly what
``CUDAGraphExtension.snapshot()`` returns, so a picture drawn from events shows the real graphs.
There is no TVM counterpart.

Examples
--------
>>> from relaxlab.runtime.vm.observer import GraphCaptured, GraphReplayed
>>> state = GraphState()
>>> for event in [GraphCaptured(3, 0, 0, (), ("a", "b")), GraphReplayed(9, 0, 0, (), ("a", "b"))]:
...     state = fold_graphs(state, event)
>>> state.regions[0].replays, state.launches_saved
(1, 1)
"""

from dataclasses import dataclass, replace

from relaxlab.runtime.vm.observer import (
    Event,
    GraphCaptured,
    GraphCaptureStarted,
    GraphReplayed,
    GraphStoragesKept,
    KernelRecorded,
    RunFailed,
)

__all__ = ["GraphState", "RegionState", "fold_graphs"]


@dataclass(frozen=True, slots=True)
class RegionState:
    """One captured region: its key, its kernels, and how often it was replayed."""

    index: int
    sizes: tuple[int, ...]
    kernels: tuple[str, ...]
    replays: int = 0


@dataclass(frozen=True, slots=True)
class GraphState:
    """All captured graphs of a machine.

    Attributes
    ----------
    allocations
        Indices of the allocations that are kept, in order.
    regions
        In order of their first capture.
    launches_saved
        How many launches the replays have saved.
    recording
        Kernels of the capture that is open; None if none is.
    """

    allocations: tuple[int, ...] = ()
    regions: tuple[RegionState, ...] = ()
    launches_saved: int = 0
    recording: tuple[str, ...] | None = None


def fold_graphs(state: GraphState, event: Event) -> GraphState:
    """Return the state after an event; the same object for events about other things."""
    match event:
        case GraphStoragesKept(_, _, index, reused) if not reused:
            return replace(state, allocations=(*state.allocations, index))
        case GraphCaptureStarted():
            return replace(state, recording=())
        case KernelRecorded(_, _, kernel):
            return replace(state, recording=(*(state.recording or ()), kernel))
        case GraphCaptured(_, _, index, sizes, kernels):
            region = RegionState(index, sizes, kernels)
            known = [(one.index, one.sizes) for one in state.regions]
            regions = list(state.regions)
            if (index, sizes) in known:
                regions[known.index((index, sizes))] = region
            else:
                regions.append(region)
            return replace(state, regions=tuple(regions), recording=None)
        case GraphReplayed(_, _, index, sizes, kernels):
            regions = [
                replace(one, replays=one.replays + 1)
                if (one.index, one.sizes) == (index, sizes)
                else one
                for one in state.regions
            ]
            saved = state.launches_saved + max(0, len(kernels) - 1)
            return replace(state, regions=tuple(regions), launches_saved=saved)
        case RunFailed() if state.recording is not None:
            return replace(state, recording=None)  # the capture was abandoned
        case _:
            return state
