"""Which backend captures on which device.

Examples
--------
>>> from relaxlab.runtime.device import cpu
>>> graph_backend(cpu())
RecordingBackend(0 graphs captured, 0 replays, 0 launches saved)
"""

from relaxlab.runtime.cuda_graph.cupy_backend import CuPyBackend
from relaxlab.runtime.cuda_graph.protocol import GraphBackend
from relaxlab.runtime.cuda_graph.recording import RecordingBackend
from relaxlab.runtime.device import Device

__all__ = ["graph_backend"]


def graph_backend(device: Device) -> GraphBackend:
    """Return a new backend for ``device``: CuPy's on a GPU that answers, else notes.

    Raises
    ------
    InternalError
        If it is a GPU that does not answer.
    """
    return CuPyBackend(device) if device.type == "cuda" else RecordingBackend()
