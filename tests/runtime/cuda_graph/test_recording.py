"""The recording double: notes launches, replays them, counts, and keeps its promises on errors."""

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime import cpu, cuda, tensor
from relaxlab.runtime.cuda_graph import (
    Capture,
    Graph,
    GraphBackend,
    RecordingBackend,
    graph_backend,
)


def add_to(out, amount):
    out.array[...] += amount


def test_a_launch_is_noted_and_does_not_happen_until_the_replay():
    x = tensor(np.zeros(3, "float32"))
    backend = RecordingBackend()
    capture = backend.begin()
    for amount in (1, 10, 100):
        capture.launch("add_to", add_to, [x, amount])
    graph = capture.finish()
    assert x.numpy().tolist() == [0, 0, 0]
    assert graph.launches == ("add_to",) * 3
    for times in (1, 2):
        graph.replay()
        assert x.numpy().tolist() == [111 * times] * 3
    assert (backend.captures, backend.replays, backend.launches_saved) == (1, 2, 4)
    assert repr(backend) == "RecordingBackend(1 graphs captured, 2 replays, 4 launches saved)"
    assert repr(graph) == "<graph of 3 launches: add_to, add_to, add_to>"


def test_an_empty_graph_saves_nothing():
    backend = RecordingBackend()
    graph = backend.begin().finish()
    graph.replay()
    assert backend.launches_saved == 0
    assert repr(graph) == "<graph of 0 launches: none>"


def test_one_capture_at_a_time_and_none_after_its_end():
    backend = RecordingBackend()
    capture = backend.begin()
    with pytest.raises(InternalError, match="a capture is open already"):
        backend.begin()
    capture.abandon()
    capture.abandon()
    assert backend.captures == 0
    for late in (lambda: capture.launch("f", add_to, ()), capture.finish):
        with pytest.raises(InternalError, match="the capture is over"):
            late()
    backend.begin().finish()
    assert backend.captures == 1


def test_an_error_in_a_replay_names_the_kernel_and_is_not_counted():
    backend = RecordingBackend()
    capture = backend.begin()
    capture.launch("divide", lambda: 1 / 0, ())
    graph = capture.finish()
    with pytest.raises(ZeroDivisionError) as raised:
        graph.replay()
    assert raised.value.__notes__ == ["  in the replay of a graph, at kernel 'divide'"]
    assert backend.replays == 0


def test_the_parts_fit_the_protocol():
    backend = RecordingBackend()
    capture = backend.begin()
    graph = capture.finish()
    assert isinstance(backend, GraphBackend)
    assert isinstance(capture, Capture)
    assert isinstance(graph, Graph)


def test_a_device_is_asked_and_not_a_package():
    assert isinstance(graph_backend(cpu()), RecordingBackend)
    if cuda(99).exist:
        pytest.skip("a machine with a hundred GPUs")
    with pytest.raises(InternalError, match=r"no CUDA graph on cuda:99: .*does not answer"):
        graph_backend(cuda(99))
