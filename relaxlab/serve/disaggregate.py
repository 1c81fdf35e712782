"""Prefill in one process, decode in another: keys and values are written page to page.

The decoding side reserves slots, publishes them, and goes on decoding others. The prefilling side
computes the prompt, and each layer puts its rows into those slots while the next layer computes.
Nobody copies on arrival, and nobody but the asking side owns pages: they stay pinned until the
other side says that it is done, or is gone. What carries the bytes is MPI's one-sided put; the
cache finds it by the names under which TVM's finds NVSHMEM. Both sides must agree on the layout
of their pages, by a hash, before anything moves. Counterpart: kv.md 3.11; MLC's disaggregation.
(`relaxlab.serve.neighbour` does the same on one machine, without MPI.)

Start both processes with MPI (``mpiexec -n 2``, or ipyparallel's ``Cluster(engines="mpi", n=2)``),
create `SymmetricMemory` and the model inside ``memory.installed()`` in both, then let one call
`serve_prefill` and give the other's engine a `RemotePrefill`. Needs the extra ``mpi``.

Examples
--------
>>> from mpi4py import MPI  # doctest: +SKIP
>>> memory = SymmetricMemory(MPI.COMM_WORLD)  # doctest: +SKIP
>>> with memory.installed():  # doctest: +SKIP
...     llama = PagedLlama(open_model("tiny"), transfer=True)
>>> if MPI.COMM_WORLD.rank == 0:  # doctest: +SKIP
...     serve_prefill(memory, llama)
... else:
...     remote = RemotePrefill(memory, llama)
...     engine = Engine(llama, remote=remote)
"""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from relaxlab.models.paged_llama import PagedLlama
from relaxlab.runtime.kv.checkpoint import layout_hash
from relaxlab.runtime.kv.transfer import compress, decompress
from relaxlab.serve.page_memory import Blocks, PageMemory
from relaxlab.serve.prefix_cache import PrefixCache
from relaxlab.serve.radix_tree import RadixTree

__all__ = ["Ask", "RemotePrefill", "Reply", "SymmetricMemory", "layout_of", "serve_prefill"]

_TAG = 7  # of control messages


@dataclass(frozen=True, slots=True)
class Ask:
    """Compute these tokens and write the rows from number ``have`` on into ``slots``.

    Attributes
    ----------
    ticket
        Names the request in the reply.
    tokens
        The prompt's, without those that the asking side runs itself.
    have
        Tokens that the asking side has already.
    slots
        Compressed map of its slots for the others.
    layout
        Of its cache.
    """

    ticket: int
    tokens: tuple[int, ...]
    have: int
    slots: tuple[int, ...]
    layout: str


@dataclass(frozen=True, slots=True)
class Reply:
    """All rows are written, or, with an error, no more rows will be."""

    ticket: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Hello:
    """Who is there, so that its end can be noticed on the same machine."""

    host: str
    process: int


@dataclass(frozen=True, slots=True)
class _Bye:
    """No more requests come."""


class SymmetricMemory(PageMemory):
    """Memory in every process of a communicator that the others can write to, by MPI.

    Parameters
    ----------
    comm
        An ``mpi4py`` communicator. Making a cache is then a collective call: all its processes
        make theirs at the same time.
    """

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI  # noqa: PLC0415 (an optional dependency)

        super().__init__(comm)
        self._mpi = MPI
        self._window: Any = None
        self._types: dict[tuple[int, int, int], Any] = {}
        self._in_flight: list[NDArray[Any]] = []

    def flush(self) -> None:
        """Return when everything that was put is there."""
        if self._window is not None:
            self._window.Flush_all()
        self._in_flight.clear()

    def sync(self) -> None:
        """See what others have put."""
        if self._window is not None:
            self._window.Sync()

    def _allocate(self, size: int) -> Any:
        self._window = self._mpi.Win.Allocate(size, 1, comm=self.comm)
        self._window.Lock_all()
        return self._window.tomemory()

    def _write(self, rows: NDArray[Any], receiver: int, place: Blocks) -> None:
        key = (place.count, place.length, place.stride)
        if key not in self._types:
            self._types[key] = self._mpi.BYTE.Create_vector(*key).Commit()
        data = [rows, rows.nbytes, self._mpi.BYTE]
        self._window.Put(data, receiver, [place.at, 1, self._types[key]])
        self._in_flight.append(rows)  # MPI reads it until the flush


def layout_of(llama: PagedLlama) -> str:
    """Return what two caches must share: the hash of their layout, and the size of the pool.

    The size, because a remote page is found by its number within a layer of equal size.
    """
    return f"{layout_hash(llama.cache.config)}/{llama.total_pages}"


class RemotePrefill:
    """The decoding side's way to the prefilling one; an engine's ``remote``.

    Parameters
    ----------
    memory
        That the model's cache was made in.
    llama
        The decoding side's model.
    peer
        Rank of the process that runs `serve_prefill`.
    least
        Prompts with fewer tokens to compute are computed here.
    """

    def __init__(
        self, memory: PageMemory, llama: PagedLlama, *, peer: int = 0, least: int = 8
    ) -> None:
        self.least = least
        self._memory, self._llama, self._peer = memory, llama, peer
        self._open: set[int] = set()
        self._tickets = 0
        self._sends: list[Any] = []
        self._hello: _Hello = memory.comm.recv(source=peer, tag=_TAG)

    def start(self, sequence: int, tokens: Sequence[int], have: int) -> int:
        """Reserve slots for the tokens from number ``have`` on and ask for them."""
        cache, slots = self._llama.cache, list[int]()
        for first in range(have, len(tokens), self._llama.chunk):
            count = min(self._llama.chunk, len(tokens) - first)
            slots += decompress(cache.disagg_prepare_recv(sequence, count))
            cache.end_forward()
        self._tickets += 1
        ask = Ask(
            self._tickets, tuple(tokens), have, tuple(compress(slots)), layout_of(self._llama)
        )
        self._sends.append(self._memory.comm.isend(ask, dest=self._peer, tag=_TAG))
        self._open.add(ask.ticket)
        return ask.ticket

    def poll(self) -> list[tuple[int, str | None]]:
        """Return what ended; everything, if the other side is gone."""
        self._sends = [send for send in self._sends if not send.Test()]
        ended: list[tuple[int, str | None]] = []
        while self._open and self._memory.comm.iprobe(source=self._peer, tag=_TAG):
            reply: Reply = self._memory.comm.recv(source=self._peer, tag=_TAG)
            self._open.discard(reply.ticket)
            ended.append((reply.ticket, reply.error))
        if ended:
            self._memory.sync()
        elif self._open and not self.alive():
            ended = [(ticket, "the prefilling process is gone") for ticket in sorted(self._open)]
            self._open.clear()
        return ended

    def alive(self) -> bool:
        """Whether the other process is there; on another machine it is taken to be."""
        if self._memory.lost():
            return False
        if self._hello.host != socket.gethostname():
            return True
        return _runs(self._hello.process)

    def close(self) -> None:
        """Let the other side leave `serve_prefill`."""
        if self.alive():
            self._memory.comm.send(_Bye(), dest=self._peer, tag=_TAG)


def serve_prefill(memory: PageMemory, llama: PagedLlama, *, peer: int = 1) -> int:
    """Compute prompts for another process until it closes; return how many.

    Prompts are remembered: of a common beginning the rows are sent page to page.
    """
    memory.comm.send(_Hello(socket.gethostname(), os.getpid()), dest=peer, tag=_TAG)
    prefix = PrefixCache(llama, RadixTree(llama.page_size))
    served = 0
    while not isinstance(ask := memory.comm.recv(source=peer, tag=_TAG), _Bye):
        memory.comm.send(Reply(ask.ticket, _prefill(memory, llama, prefix, ask, peer)), peer, _TAG)
        served += 1
    return served


def _prefill(
    memory: PageMemory, llama: PagedLlama, prefix: PrefixCache, ask: Ask, peer: int
) -> str | None:
    """Compute one prompt and put its rows; return what went wrong, after which nothing is put."""
    own = layout_of(llama)
    if ask.layout != own:
        return (
            f"the layouts differ: pages here are {own}, there {ask.layout} (hash of sizes, dtype "
            f"and rotation / pages in the pool)"
        )
    prefix.sweep()
    sequence, tokens, done = prefix.new_sequence(), list(ask.tokens), 0
    try:
        done = prefix.open(sequence, tokens)
    except RuntimeError as error:
        return str(error)
    try:
        llama.cache.disagg_mark_send(sequence, ask.have, ask.slots, peer)
        while done < len(tokens):
            count = min(llama.chunk, len(tokens) - done)
            while llama.available_pages() * llama.page_size < count + llama.page_size:
                if not prefix.evict():
                    break
            llama.run([sequence], [count], tokens[done : done + count], [count - 1])
            done += count
    except RuntimeError as error:
        memory.flush()
        prefix.drop(sequence)
        return str(error)
    memory.flush()
    prefix.keep(sequence, tokens)
    return None


def _runs(process: int) -> bool:
    """Whether a process of this machine is there and has not ended."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return os.name != "posix" or not os.path.isdir("/proc")  # noqa: PTH112
