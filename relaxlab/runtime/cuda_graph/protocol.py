"""What a machine needs to capture a region and to replay it: three small interfaces.

A capture is open between ``begin`` and ``finish`` or ``abandon``. While it is open a launch is
noted and does not happen: outputs keep what they held. So whoever captures runs the region
normally first (which also loads modules and grows pools), and the outputs of the capture hold the
values of that first run. Counterpart: ``cudaStreamBeginCapture``, ``cudaStreamEndCapture``,
``cudaGraphLaunch``.

Examples
--------
>>> from relaxlab.runtime.cuda_graph.recording import RecordingBackend
>>> isinstance(RecordingBackend(), GraphBackend)
True
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

__all__ = ["Capture", "Graph", "GraphBackend"]


@runtime_checkable
class Graph(Protocol):
    """Launches that were captured; it keeps their arguments alive."""

    @property
    def launches(self) -> tuple[str, ...]:
        """Names of the kernels, in order."""

    def replay(self) -> None:
        """Launch all of them, with the memory they were captured with."""


@runtime_checkable
class Capture(Protocol):
    """An open capture."""

    def launch(self, name: str, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        """Note the launch of a kernel.

        Parameters
        ----------
        name
            What the program calls the kernel.
        function
            The kernel: it writes its results into its arguments.
        arguments
            Tensors and numbers, as they are.
        """

    def finish(self) -> Graph:
        """Close the capture and return what was captured."""

    def abandon(self) -> None:
        """Close the capture and forget it; never raises, since an error is on its way already."""


@runtime_checkable
class GraphBackend(Protocol):
    """A way to capture graphs on one device.

    Attributes
    ----------
    name : str
        Short word for the kind of backend.
    launches_saved : int
        How many launches replays have saved so far: a graph of ``n`` kernels is one launch.
    """

    name: str
    launches_saved: int

    def begin(self) -> Capture:
        """Open a capture; one at a time.

        Raises
        ------
        InternalError
            If one is open already.
        """
