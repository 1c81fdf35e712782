"""Record kernel launches once, and launch them together ever after.

Launching a kernel costs the host some microseconds, and a decoder launches hundreds for every
token. A CUDA graph is the list of launches of a region, with the addresses that they had: one
launch replays them all. This package is the protocol that ``vm.builtin.cuda_graph`` works against,
and its two implementations: :class:`RecordingBackend` needs no GPU, executes the same protocol on
the CPU, counts what it saves and refuses what a real capture refuses; the other one is CuPy's
stream capture. Counterpart: the CUDA graph part of TVM's CUDA runtime.

Examples
--------
>>> from relaxlab.runtime import cpu, tensor
>>> backend = graph_backend(cpu())
>>> x = tensor([1.0, 2.0])
>>> def double(tensor):
...     tensor.array[...] *= 2
>>> capture = backend.begin()
>>> capture.launch("double", double, (x,))
>>> capture.launch("double", double, (x,))
>>> graph = capture.finish()
>>> graph, x.numpy().tolist()
(<graph of 2 launches: double, double>, [1.0, 2.0])
>>> graph.replay()
>>> x.numpy().tolist(), backend.launches_saved
([4.0, 8.0], 1)
"""

from relaxlab.runtime.cuda_graph.choice import graph_backend
from relaxlab.runtime.cuda_graph.protocol import Capture, Graph, GraphBackend
from relaxlab.runtime.cuda_graph.recording import RecordedGraph, RecordingBackend

__all__ = [
    "Capture",
    "Graph",
    "GraphBackend",
    "RecordedGraph",
    "RecordingBackend",
    "graph_backend",
]
