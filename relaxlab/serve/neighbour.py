"""A second process of this machine computes prompts, and writes their rows into our pages.

The same two halves as with MPI (`relaxlab.serve.disaggregate`), with nothing to install: pages lie
in files that both processes map into memory, control messages go through a pipe. It is what a
notebook needs to show two processes; between machines, and for speed, take MPI. The other process
ends with this one, however this one ends. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.serve.engine import Engine
>>> with Neighbour("tiny", page_size=8, capacity=64) as other:
...     engine = Engine(other.llama, remote=other.remote)
...     request = engine.submit(list(b"prefill here, decode there"), max_tokens=4)
...     _ = engine.run()
>>> len(engine.output(request)), other.work.prompts
(4, 1)
"""

import mmap
import multiprocessing
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import sleep
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from relaxlab.models.language_model import open_model
from relaxlab.models.paged_llama import PagedLlama
from relaxlab.runtime.kv.observer import Event, PagesSent, TokensSent
from relaxlab.serve.disaggregate import RemotePrefill, serve_prefill
from relaxlab.serve.page_memory import Blocks, PageMemory

__all__ = ["Neighbour", "Work"]

_SECONDS: Final = 10.0  # to end in


@dataclass(frozen=True, slots=True)
class Work:
    """What the other process did.

    Attributes
    ----------
    prompts
        How many it computed.
    bytes_put
        Bytes of keys and values that it wrote into our pages.
    events
        Of its cache.
    num_pages, page_size
        Of its cache.
    """

    prompts: int
    bytes_put: int
    events: tuple[Event, ...]
    num_pages: int
    page_size: int


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Of both caches."""

    model: str
    page_size: int
    capacity: int
    chunk: int


class Neighbour:
    """A process that computes prompts, and the model that decodes in this one.

    Parameters
    ----------
    model
        Name or path, for :func:`relaxlab.models.language_model.open_model`; both open it.
    page_size, capacity, chunk
        As for :class:`relaxlab.models.paged_llama.PagedLlama`.
    least
        Prompts with fewer tokens to compute are computed here.
    rest
        Seconds that the other process waits after each layer, so that one can watch it.

    Attributes
    ----------
    process : int
        Number of the other process.
    llama : PagedLlama
        The model of this one; its pages lie where the other can write.
    remote : RemotePrefill
        For an engine's ``remote``.
    work : Work or None
        What the other did, once :meth:`close` was called; None if it was gone before.
    """

    def __init__(
        self,
        model: str = "tiny",
        *,
        page_size: int = 8,
        capacity: int = 256,
        chunk: int = 32,
        least: int = 8,
        rest: float = 0.0,
    ) -> None:
        sizes = _Sizes(model, page_size, capacity, chunk)
        self.work: Work | None = None
        context = multiprocessing.get_context("spawn")  # a fork would copy this one's threads
        ours, theirs = context.Pipe()
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            self._child = context.Process(
                target=_compute_prompts, args=(theirs, folder, sizes, rest), daemon=True
            )
            self._child.start()
            theirs.close()  # so that the pipe ends with the other process
            self._channel = _Channel(ours)
            memory = _MappedMemory(self._channel, Path(folder), rank=1)
            self.llama = _open(memory, sizes)
        # the files are mapped and need no name any more
        assert self._child.pid is not None
        self.process = self._child.pid
        self.remote = RemotePrefill(memory, self.llama, least=least)

    def kill(self) -> None:
        """End the other process at once, whatever it is doing."""
        self._child.kill()
        self._child.join(_SECONDS)

    def close(self) -> Work | None:
        """Let the other process end, and return what it did; None if it was gone already."""
        if self._child.is_alive() and self.work is None:
            with suppress(EOFError):
                self.remote.close()
                self.work = self._channel.recv()
            self._child.join(_SECONDS)
        if self._child.is_alive():
            self.kill()
        return self.work

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.kill()

    def __repr__(self) -> str:
        state = "computes prompts" if self._child.is_alive() else "has ended"
        return f"Neighbour(another process {state})"


class _Channel:
    """The part of a communicator of two that control messages need."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection
        self._arrived: list[Any] = []
        self.ended = False

    def send(self, message: object, dest: int = 0, tag: int = 0) -> None:
        """Send; what is sent to a process that is gone is lost."""
        try:
            self._connection.send(message)
        except OSError:
            self.ended = True

    def isend(self, message: object, dest: int = 0, tag: int = 0) -> "_Sent":
        """Send; the pipe holds what was not read yet."""
        self.send(message)
        return _Sent()

    def recv(self, source: int = 0, tag: int = 0) -> Any:
        """Wait for a message.

        Raises
        ------
        EOFError
            If the other process has ended.
        """
        if self._arrived:
            return self._arrived.pop()
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            self.ended = True
            raise EOFError("the other process has ended") from None

    def iprobe(self, source: int = 0, tag: int = 0) -> bool:
        """Whether a message is there."""
        if not self._arrived and not self.ended:
            with suppress(EOFError):  # a pipe that has ended says that there is something to read
                if self._connection.poll():
                    self._arrived.append(self.recv())
        return bool(self._arrived)


class _Sent:
    """A message that is on its way."""

    def Test(self) -> bool:
        """Whether it has left."""
        return True


class _MappedMemory(PageMemory):
    """A file for each of two processes, mapped into the memory of both."""

    def __init__(self, channel: _Channel, folder: Path, rank: int) -> None:
        super().__init__(channel)
        self._channel, self._folder, self._rank = channel, folder, rank
        self._other: mmap.mmap | None = None

    def flush(self) -> None:
        """Return when everything that was put is there, which it is."""

    def sync(self) -> None:
        """See what others have put, which is seen at once."""

    def lost(self) -> bool:
        """Whether the pipe has ended, and the other process with it."""
        return self._channel.ended

    def _allocate(self, size: int) -> mmap.mmap:
        own = self._folder / f"{self._rank}.pages"
        own.write_bytes(bytes(size))
        mapped = _map(own)
        self._channel.send(size)
        if self._channel.recv() == size:  # else the layouts differ, and nothing will be put
            self._other = _map(self._folder / f"{1 - self._rank}.pages")
        # neither may remove the files before both have mapped them
        self._channel.send(None)
        self._channel.recv()
        return mapped

    def _write(self, rows: NDArray[Any], receiver: int, place: Blocks) -> None:
        if self._other is None:
            raise RuntimeError("symmetric memory: the two caches have different sizes")
        shape, strides = (place.count, place.length), (place.stride, 1)
        target = np.ndarray(shape, np.uint8, self._other, place.at, strides)
        target[:] = rows.view(np.uint8).reshape(shape)


def _map(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def _open(memory: _MappedMemory, sizes: _Sizes) -> PagedLlama:
    model = open_model(sizes.model)
    with memory.installed():
        return PagedLlama(
            model,
            page_size=sizes.page_size,
            capacity=sizes.capacity,
            chunk=sizes.chunk,
            transfer=True,
        )


def _compute_prompts(
    connection: "Connection[Any, Any]", folder: str, sizes: _Sizes, rest: float
) -> None:
    """Serve in the other process until the first one says goodbye, or has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the one who reads
    channel = _Channel(connection)
    events: list[Event] = []
    with suppress(EOFError):
        memory = _MappedMemory(channel, Path(folder), rank=0)
        llama = _open(memory, sizes)
        llama.cache.observer = _resting(events.append, rest)
        prompts = serve_prefill(memory, llama)
        work = Work(prompts, memory.bytes_put, tuple(events), llama.total_pages, llama.page_size)
        channel.send(work)


def _resting(note: Callable[[Event], None], seconds: float) -> Callable[[Event], None]:
    def observer(event: Event) -> None:
        note(event)
        if seconds and isinstance(event, TokensSent | PagesSent):
            sleep(seconds)

    return observer
