"""CuPy's stream capture: the order of driver calls by a stand-in, and the real one on a GPU."""

from types import SimpleNamespace

import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime import cuda
from relaxlab.runtime.cuda_graph import Capture, Graph, GraphBackend, cupy_backend, graph_backend
from relaxlab.runtime.device import Device


class FakeCuPy:
    """Writes down what is asked of it."""

    def __init__(self, refuse=()):
        self.log = log = []

        def say(word):
            log.append(word)
            if word in refuse:
                raise RuntimeError(f"{word} refused")

        class Scope:
            def __init__(self, name):
                self.name = name

            def __enter__(self):
                say(f"use {self.name}")
                return self

            def __exit__(self, *error):
                log.append(f"leave {self.name}")

        class Stream(Scope):
            def __init__(self, non_blocking):
                assert non_blocking
                super().__init__("stream")

            def begin_capture(self, mode):
                say(f"begin {mode}")

            def end_capture(self):
                say("end")
                return SimpleNamespace(launch=lambda: say("launch"))

        self.cuda = SimpleNamespace(
            Device=lambda index: Scope(f"device {index}"),
            Stream=Stream,
            runtime=SimpleNamespace(streamCaptureModeGlobal="global"),
        )


@pytest.fixture
def fake(monkeypatch):
    fake = FakeCuPy()
    monkeypatch.setattr(Device, "exist", property(lambda self: True))
    monkeypatch.setattr(cupy_backend, "import_module", lambda name: fake)
    return fake


OPEN = ["use device 1", "use stream", "begin global"]
CLOSED = ["leave stream", "leave device 1"]


def test_capture_and_replay(fake):
    backend = graph_backend(cuda(1))
    assert isinstance(backend, GraphBackend)
    capture = backend.begin()
    assert isinstance(capture, Capture)
    with pytest.raises(InternalError, match="open already"):
        backend.begin()
    capture.launch("first", lambda x: fake.log.append(f"kernel {x}"), [1])
    capture.launch("second", lambda: fake.log.append("kernel"), [])
    graph = capture.finish()
    assert isinstance(graph, Graph)
    assert fake.log == [*OPEN, "kernel 1", "kernel", "end", *CLOSED]
    graph.replay()
    assert fake.log[-1] == "launch"
    assert graph.launches == ("first", "second")
    assert (backend.captures, backend.replays, backend.launches_saved) == (1, 1, 1)
    assert repr(backend) == "CuPyBackend(cuda:1: 1 graphs captured, 1 replays, 1 launches saved)"
    assert repr(graph) == "<CUDA graph of 2 launches: first, second>"


@pytest.mark.parametrize("word", ["use device 1", "use stream", "begin global"])
def test_a_failed_begin_leaves_nothing_open(monkeypatch, fake, word):
    backend = graph_backend(cuda(1))
    broken = FakeCuPy(refuse=[word])
    backend.cupy = broken
    with pytest.raises(RuntimeError, match="refused"):
        backend.begin()
    entered = [one.removeprefix("use ") for one in broken.log if one.startswith("use ")]
    entered = entered if word == "begin global" else entered[:-1]
    assert [one for one in broken.log if one.startswith("leave")] == [
        f"leave {name}" for name in reversed(entered)
    ]
    backend.cupy = fake
    backend.begin().finish()


def test_the_previous_stream_is_restored_when_the_capture_fails(fake):
    backend = graph_backend(cuda(1))
    broken = backend.cupy = FakeCuPy(refuse=["end"])
    with pytest.raises(RuntimeError, match="end refused"):
        backend.begin().finish()
    assert broken.log == [*OPEN, "end", *CLOSED]
    backend.begin().abandon()  # what the driver says is dropped: an error is on its way already
    assert broken.log[-3:] == ["end", *CLOSED]
    assert backend.captures == 0


def test_on_a_real_gpu():
    if not cuda().exist:
        pytest.skip("needs a GPU that answers")
    cupy = pytest.importorskip("cupy", reason="needs cupy, where there is a GPU")
    x = cupy.zeros(4, "float32")
    backend = graph_backend(cuda())
    x += 1  # compiled and loaded before the capture
    capture = backend.begin()
    capture.launch("add", lambda: cupy.add(x, 1, out=x), ())
    capture.launch("add", lambda: cupy.add(x, 1, out=x), ())
    graph = capture.finish()
    assert x.tolist() == [1] * 4
    graph.replay()
    cupy.cuda.Device().synchronize()
    assert x.tolist() == [3] * 4
