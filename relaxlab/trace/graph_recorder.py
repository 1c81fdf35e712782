"""Note which regions a machine captures as graphs, and every replay, over many calls.

The recorder is the machine's observer for as long as one likes. Its history says, call by call,
what was captured or replayed and with which key; :class:`GraphSummary` adds up, for each key, what
was saved. There is no TVM counterpart.

Examples
--------
>>> recorder = GraphRecorder()
>>> print(recorder)
0 graphs captured, 0 replays, 0 launches saved
"""

from dataclasses import dataclass, field

from relaxlab.runtime.vm.observer import (
    CallStarted,
    Event,
    GraphCaptured,
    GraphCaptureStarted,
    GraphReplayed,
    RunFailed,
    RunStarted,
)

__all__ = ["GraphMoment", "GraphRecorder", "GraphSummary"]


@dataclass(frozen=True, slots=True)
class GraphMoment:
    """Something that happened to a graph.

    Attributes
    ----------
    call
        Number of the host's call, from 0.
    what
        ``"captured"``, ``"replayed"`` or ``"abandoned"``.
    index, sizes
        The key: which region, and the values of its symbolic sizes.
    kernels
        The graph's kernels, in order; empty when the capture was abandoned.
    """

    call: int
    what: str
    index: int
    sizes: tuple[int, ...]
    kernels: tuple[str, ...]

    @property
    def key(self) -> str:
        """The key in words."""
        return f"region {self.index}" + (f", sizes {list(self.sizes)}" if self.sizes else "")


@dataclass(slots=True)
class GraphSummary:
    """What became of one key.

    Attributes
    ----------
    key
        In words.
    kernels
        Of the graph captured last.
    captures, replays, abandoned
        How often.
    launches_saved
        Launches that replays saved: a graph of ``n`` kernels is one launch.
    """

    key: str
    kernels: tuple[str, ...] = ()
    captures: int = 0
    replays: int = 0
    abandoned: int = 0
    launches_saved: int = 0


@dataclass(slots=True)
class GraphRecorder:
    """An observer that keeps what happens to graphs.

    Attributes
    ----------
    calls
        Names of the functions that the host called, in order.
    history
        What happened, in order.
    launches
        Kernels that were launched one by one, by call.
    """

    calls: list[str] = field(default_factory=list)
    history: list[GraphMoment] = field(default_factory=list)
    launches: list[int] = field(default_factory=list)
    _open: GraphCaptureStarted | None = None

    def __call__(self, event: Event) -> None:
        """Take note of an event of the machine."""
        match event:
            case RunStarted(depth=0, function=function):
                self.calls.append(function)
                self.launches.append(0)
            case CallStarted(callee=callee, callee_kind="packed"):
                # while a capture is open, a launch is noted and does not happen
                if self.launches and self._open is None and not callee.startswith("vm.builtin."):
                    self.launches[-1] += 1
            case GraphCaptureStarted():
                self._open = event
            case GraphCaptured(_, _, index, sizes, kernels):
                self._open = None
                self._note("captured", index, sizes, kernels)
            case GraphReplayed(_, _, index, sizes, kernels):
                self._note("replayed", index, sizes, kernels)
            case RunFailed() if self._open is not None:
                self._note("abandoned", self._open.index, self._open.sizes, ())
                self._open = None
            case _:
                pass

    def _note(
        self, what: str, index: int, sizes: tuple[int, ...], kernels: tuple[str, ...]
    ) -> None:
        self.history.append(GraphMoment(len(self.calls) - 1, what, index, sizes, kernels))

    def summary(self, upto: int | None = None) -> list[GraphSummary]:
        """Return what became of each key, in order of first sight, before moment ``upto``."""
        found: dict[str, GraphSummary] = {}
        for moment in self.history[:upto]:
            graph = found.setdefault(moment.key, GraphSummary(moment.key))
            match moment.what:
                case "captured":
                    graph.captures += 1
                    graph.kernels = moment.kernels
                case "replayed":
                    graph.replays += 1
                    # of this replay: a region may be captured again with other kernels
                    graph.launches_saved += max(0, len(moment.kernels) - 1)
                case _:
                    graph.abandoned += 1
        return list(found.values())

    def words(self, moment: GraphMoment) -> str:
        """Return one moment in a sentence."""
        call = f"call {moment.call} ({self.calls[moment.call]})"
        match moment.what:
            case "captured":
                return f"{call}: {moment.key} captured: {', '.join(moment.kernels)}"
            case "replayed":
                count = len(moment.kernels)
                return f"{call}: {moment.key} replayed: {count} kernels in one launch"
            case _:
                return f"{call}: {moment.key} abandoned: it cannot be a graph"

    def render(self, upto: int | None = None) -> str:
        """Return the graphs before a moment, and what happened, as text."""
        graphs = self.summary(upto)
        captured = sum(graph.captures > 0 for graph in graphs)
        replays = sum(graph.replays for graph in graphs)
        saved = sum(graph.launches_saved for graph in graphs)
        lines = [f"{captured} graphs captured, {replays} replays, {saved} launches saved"]
        lines += [
            f"  {graph.key}: {' '.join(graph.kernels) or 'no graph'}; captured "
            f"{graph.captures}, replayed {graph.replays}, abandoned {graph.abandoned}"
            for graph in graphs
        ]
        lines += [self.words(moment) for moment in self.history[:upto]]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()
