"""Graphs on a GPU, through CuPy's stream capture.

Kernels launch into the current stream; while that stream captures, the driver notes the launches
and executes nothing. The capture is global: the driver refuses allocation and synchronization
anywhere in the process meanwhile. This is the one module of the package that imports CuPy, and
only when a backend is made. Counterpart: TVM's ``cuda_graph.cc``.

Examples
--------
::

    backend = CuPyBackend(cuda(0))   # needs a GPU that answers, and the package cupy
"""

import contextlib
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.runtime.device import Device

__all__ = ["CuPyBackend"]


class CuPyBackend:
    """Captures by CUDA's stream capture.

    Parameters
    ----------
    device
        The GPU.

    Raises
    ------
    InternalError
        If the GPU does not answer, or CuPy is not installed.
    """

    def __init__(self, device: Device) -> None:
        if device.type != "cuda" or not device.exist:
            raise InternalError(
                f"no CUDA graph on {device}: the device does not answer; install the package "
                "cupy-cuda12x where there is a GPU, or use cpu(0), where launches are recorded"
            )
        self.name = "cupy"
        self.device = device
        self.captures = 0
        self.replays = 0
        self.launches_saved = 0
        self.cupy: Any = import_module("cupy")
        self._open = False

    def begin(self) -> "_StreamCapture":
        """Make a new stream, make it the current one, and begin to capture it."""
        if self._open:
            raise InternalError(
                "a capture is open already: expected it to be finished or abandoned first"
            )
        capture = _StreamCapture(self)
        self._open = True
        return capture

    def closed(self, captured: bool) -> None:
        """Take note that the open capture is over."""
        self._open = False
        self.captures += captured

    def __repr__(self) -> str:
        return (
            f"CuPyBackend({self.device}: {self.captures} graphs captured, {self.replays} replays, "
            f"{self.launches_saved} launches saved)"
        )


class _StreamCapture:
    """An open capture: a stream that is current, and captures."""

    def __init__(self, backend: CuPyBackend) -> None:
        self._backend = backend
        self._names: list[str] = []
        self._arguments: list[tuple[Any, ...]] = []
        cuda = backend.cupy.cuda
        self._scope = contextlib.ExitStack()
        try:
            self._scope.enter_context(cuda.Device(backend.device.index))
            self._stream = self._scope.enter_context(cuda.Stream(non_blocking=True))
            self._stream.begin_capture(cuda.runtime.streamCaptureModeGlobal)
        except BaseException:
            self._scope.close()
            raise

    def launch(self, name: str, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        """Launch into the capturing stream, which notes it."""
        function(*arguments)
        self._names.append(name)
        self._arguments.append(tuple(arguments))

    def finish(self) -> "_StreamGraph":
        """End the capture and make the graph executable."""
        try:
            graph = self._stream.end_capture()
        except BaseException:
            self._scope.close()
            self._backend.closed(captured=False)
            raise
        self._scope.close()
        self._backend.closed(captured=True)
        return _StreamGraph(self._backend, graph, tuple(self._names), self._arguments)

    def abandon(self) -> None:
        """End the capture; what the driver says to that does not matter any more."""
        with contextlib.suppress(Exception):
            self._stream.end_capture()
        self._scope.close()
        self._backend.closed(captured=False)


class _StreamGraph:
    """An executable CUDA graph; it keeps the arguments of its kernels alive."""

    def __init__(
        self,
        backend: CuPyBackend,
        graph: Any,
        names: tuple[str, ...],
        arguments: list[tuple[Any, ...]],
    ) -> None:
        self._backend = backend
        self._graph = graph
        self._arguments = arguments
        self.launches = names

    def replay(self) -> None:
        """Launch the graph on the current stream."""
        self._graph.launch()
        self._backend.replays += 1
        self._backend.launches_saved += max(0, len(self.launches) - 1)

    def __repr__(self) -> str:
        names = ", ".join(self.launches) or "none"
        return f"<CUDA graph of {len(self.launches)} launches: {names}>"
