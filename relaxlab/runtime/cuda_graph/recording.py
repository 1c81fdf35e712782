"""Graphs without a GPU: launches are noted, and replayed by calling the kernels in order.

It is not a mock: programs that RewriteCUDAGraph made run on it with the results they have on a
GPU, and it is what the notebooks show. There is no TVM counterpart.

Examples
--------
>>> backend = RecordingBackend()
>>> log = []
>>> capture = backend.begin()
>>> capture.launch("note", log.append, (7,))
>>> log
[]
>>> graph = capture.finish()
>>> graph.replay(), graph.replay(), log
(None, None, [7, 7])
"""

from collections.abc import Callable, Sequence
from typing import Any

from relaxlab.errors import InternalError

__all__ = ["RecordedGraph", "RecordingBackend"]


class RecordedGraph:
    """Kernels and their arguments, in the order of their launches."""

    def __init__(
        self,
        backend: "RecordingBackend",
        nodes: list[tuple[str, Callable[..., Any], tuple[Any, ...]]],
    ) -> None:
        self._backend = backend
        self._nodes = nodes

    @property
    def launches(self) -> tuple[str, ...]:
        """Names of the kernels, in order."""
        return tuple(name for name, _, _ in self._nodes)

    def replay(self) -> None:
        """Call the kernels; an error of one passes through, and names it in a note."""
        for name, function, arguments in self._nodes:
            try:
                function(*arguments)
            except Exception as error:
                error.add_note(f"  in the replay of a graph, at kernel {name!r}")
                raise
        self._backend.replays += 1
        self._backend.launches_saved += max(0, len(self._nodes) - 1)

    def __repr__(self) -> str:
        names = ", ".join(self.launches) or "none"
        return f"<graph of {len(self._nodes)} launches: {names}>"


class RecordingBackend:
    """Captures by taking notes.

    Attributes
    ----------
    captures, replays
        How many graphs were made, and how often one was replayed.
    launches_saved
        How many launches the replays saved.
    """

    def __init__(self) -> None:
        self.name = "recording"
        self.captures = 0
        self.replays = 0
        self.launches_saved = 0
        self._open = False

    def begin(self) -> "_Notes":
        """Open a capture; one at a time.

        Raises
        ------
        InternalError
            If one is open already.
        """
        if self._open:
            raise InternalError(
                "a capture is open already: expected it to be finished or abandoned first"
            )
        self._open = True
        return _Notes(self)

    def closed(self, captured: bool) -> None:
        """Take note that the open capture is over."""
        self._open = False
        self.captures += captured

    def __repr__(self) -> str:
        return (
            f"RecordingBackend({self.captures} graphs captured, {self.replays} replays, "
            f"{self.launches_saved} launches saved)"
        )


class _Notes:
    """An open capture of a :class:`RecordingBackend`."""

    def __init__(self, backend: RecordingBackend) -> None:
        self._backend = backend
        self._nodes: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = []
        self._is_open = True

    def launch(self, name: str, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        """Note a launch."""
        self._require_open()
        self._nodes.append((name, function, tuple(arguments)))

    def finish(self) -> RecordedGraph:
        """Close the capture and return what was noted."""
        self._require_open()
        self._is_open = False
        self._backend.closed(captured=True)
        return RecordedGraph(self._backend, self._nodes)

    def abandon(self) -> None:
        """Close the capture and forget it."""
        if self._is_open:
            self._is_open = False
            self._backend.closed(captured=False)

    def _require_open(self) -> None:
        if not self._is_open:
            raise InternalError("the capture is over: expected it to be open")
