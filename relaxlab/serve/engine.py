"""The loop that serves: schedule, run, choose, tell.

One `step` is one round of the model (two if some entries speculate while others read prompts).
Everything is deterministic: the same requests in the same steps give the same tokens, events and
pages, and a request's tokens do not depend on its neighbours at all. A refused operation, or a
failed round, costs the entries concerned their pages and nothing else: they wait, and compute
again. Counterpart: MLC's ``Engine::Step``.

Examples
--------
>>> from relaxlab.models.language_model import open_model
>>> from relaxlab.models.paged_llama import PagedLlama
>>> model = open_model("tiny")
>>> engine = Engine(PagedLlama(model, page_size=8, capacity=256), tokenizer=model.tokenizer)
>>> request = engine.submit("hello", max_tokens=5)
>>> [output.tokens for output in engine.stream()][-1], len(engine.output(request))
((117,), 5)
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from relaxlab.models.tokenizer import Tokenizer
from relaxlab.serve.answer import Answer
from relaxlab.serve.block_hash_cache import BlockHashTree
from relaxlab.serve.events import (
    Cancelled,
    EngineState,
    EntryState,
    Event,
    Observer,
    Submitted,
    count,
)
from relaxlab.serve.eviction import POLICIES
from relaxlab.serve.pages import Pages
from relaxlab.serve.prefix_cache import PrefixCache
from relaxlab.serve.prefix_tree import PrefixTree
from relaxlab.serve.radix_tree import RadixTree
from relaxlab.serve.request import Entry, EntryId, Output, Request, Status
from relaxlab.serve.rounds import Rounds
from relaxlab.serve.sampler import Sampling
from relaxlab.serve.scheduler import Limits, describe, pages_for
from relaxlab.serve.served_model import Remote, ServedModel

__all__ = ["Engine"]

_NAP = 0.0005  # seconds between two looks for what arrives
_PATIENCE = 16  # steps without progress before the first entry is given up


class Engine:
    """Many requests on one model.

    Parameters
    ----------
    model
        The model with its cache, which must be empty and is the engine's from now on.
    tokenizer
        Turns text into tokens and back; without it requests are tokens and have no stop strings.
    limits
        How much at once.
    prefix
        ``"radix"``, ``"hash"``, a tree of your own (its events are then yours), or None for no
        prefix cache.
    policy
        What is evicted first: ``"lru"``, ``"lfu"`` or ``"fifo"``.
    observer
        Gets every event.
    remote
        Computes prompts elsewhere; see `relaxlab.serve.disaggregate`.

    Attributes
    ----------
    prefix
        The prefix cache.
    scheduler
        The queues.
    """

    def __init__(
        self,
        model: ServedModel,
        *,
        tokenizer: Tokenizer | None = None,
        limits: Limits | None = None,
        prefix: str | PrefixTree | None = "radix",
        policy: str = "lru",
        observer: Observer | None = None,
        remote: Remote | None = None,
    ) -> None:
        self._model, self._tokenizer, self._observer = model, tokenizer, observer
        self._limits = Limits() if limits is None else limits
        tree = self._tree(prefix, policy) if isinstance(prefix, str) else prefix
        self.prefix = PrefixCache(model, tree)
        self._pages = Pages(model, self.prefix, self._limits, self._emit, remote)
        self.scheduler = self._pages.scheduler
        self._entries: dict[EntryId, Entry] = {}
        self._answers: dict[EntryId, Answer] = {}
        self._rounds = Rounds(model, self._pages, self._answers, self._emit)
        self._counts = EngineState()
        self._requests = self._idle = 0

    def _tree(self, kind: str, policy: str) -> PrefixTree:
        order = POLICIES.get(policy)
        match kind:
            case "radix":
                return RadixTree(self._model.page_size, order, self._emit)
            case "hash":
                return BlockHashTree(self._model.page_size, order, self._emit)
            case _:
                raise ValueError(f"prefix: expected 'radix', 'hash', a tree or None, got {kind!r}")

    def submit(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int = 16,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        stop_tokens: Sequence[int] = (),
        n: int = 1,
        priority: int = 0,
    ) -> Request:
        """Queue a request; see `Request` for the arguments.

        Raises
        ------
        ValueError
            It can never be answered: no prompt, unknown tokens, or more than model or pool hold.
        """
        if isinstance(prompt, str):
            if self._tokenizer is None:
                raise ValueError("prompt: expected tokens, got text, and there is no tokenizer")
            prompt = self._tokenizer.encode(prompt)
        if stop and self._tokenizer is None:
            raise ValueError("stop: stop strings need a tokenizer; use stop_tokens")
        request = Request(
            self._requests,
            tuple(prompt),
            max_tokens,
            Sampling() if sampling is None else sampling,
            tuple(stop),
            frozenset(stop_tokens),
            n,
            priority,
        )
        self._check(request)
        self._requests += 1
        entries = [Entry(request, index) for index in range(n)]
        for entry in entries:
            entry.leader = entries[0] if entry.index else None
            self._entries[entry.id] = entry
            self._answers[entry.id] = Answer(request, self._tokenizer)
            self.scheduler.wait(entry)
            self._emit(Submitted(entry.id, len(request.prompt), priority))
        return request

    def _check(self, request: Request) -> None:
        model, length = self._model, len(request.prompt)
        wrong = [token for token in request.prompt if not 0 <= token < model.vocab]
        if wrong:
            raise ValueError(f"token {wrong[0]} is not in the vocabulary of {model.vocab}")
        if length > model.context:
            raise ValueError(
                f"the prompt has {length} tokens, the model's context is {model.context}"
            )
        longest = min(length + request.max_tokens - 1, model.context)
        need = pages_for(longest, model.page_size)
        if need > model.total_pages:
            raise ValueError(
                f"{length} tokens and {request.max_tokens} to come need {need} pages of "
                f"{model.page_size} tokens, the pool has {model.total_pages}; shorten the request "
                f"or make a larger cache"
            )

    def cancel(self, request: Request, index: int | None = None) -> None:
        """Cancel all answers of a request, or one; those that ended stay as they are."""
        for entry in self.entries(request):
            if index in (None, entry.index) and entry.status in (Status.WAITING, Status.RUNNING):
                self._pages.close(entry, Status.CANCELLED)
                self._emit(Cancelled(entry.id))

    def step(self) -> list[Output]:
        """Run one round and return what is new, in the order of the batch."""
        self.prefix.sweep()
        self._pages.receive()
        plan = self.scheduler.plan(min(self._limits.tokens, self._model.chunk))
        outputs = self._rounds.run(plan)
        if plan.decodes or plan.chunks:
            self._idle = 0
        elif self._pages.arriving:
            time.sleep(_NAP)  # there is nothing to do but wait
        else:
            self._idle += 1
        if self._idle > _PATIENCE and (stuck := [*self.scheduler.running, *self.scheduler.waiting]):
            self._pages.give_up(
                stuck[0],
                f"no pages for {_PATIENCE} steps: {self._model.available_pages()} of "
                f"{self._model.total_pages} are free, running: {describe(self.scheduler.running)}",
            )
        failed, self._pages.failed = self._pages.failed, []
        return outputs + [Output(entry.id, (), "", "failed") for entry in failed]

    def stream(self) -> Iterator[Output]:
        """Step until nothing is left to do, yielding what is new as it comes."""
        while self.busy:
            yield from self.step()

    def run(self) -> None:
        """Step until nothing is left to do."""
        for _ in self.stream():
            pass

    @property
    def busy(self) -> bool:
        """Whether an entry waits or runs, or pages are still being written to."""
        queues = self.scheduler.waiting or self.scheduler.running
        return bool(queues) or self._pages.arriving

    @property
    def room(self) -> int:
        """Most tokens that one entry may have in the cache."""
        return min(self._model.context, self._model.total_pages * self._model.page_size)

    def entries(self, request: Request) -> list[Entry]:
        """Return the answers of a request in the making."""
        return [self._entries[request.number, index] for index in range(request.n)]

    def output(self, request: Request, index: int = 0) -> tuple[int, ...]:
        """Return the output tokens so far."""
        return tuple(self._entries[request.number, index].output)

    def text(self, request: Request, index: int = 0) -> str:
        """Return the output text so far."""
        return self._answers[request.number, index].text

    def snapshot(self) -> EngineState:
        """Return the state that folding all events gives."""
        return replace(
            self._counts,
            entries={entry.id: _state(entry) for entry in self._entries.values()},
            running=tuple(entry.id for entry in self.scheduler.running),
            nodes={} if self.prefix.tree is None else self.prefix.tree.snapshot(),
        )

    def _emit(self, event: Event) -> None:
        self._counts = count(self._counts, event)
        if self._observer is not None:
            self._observer(event)


def _state(entry: Entry) -> EntryState:
    return EntryState(
        entry.status.value,
        entry.sequence,
        entry.computed,
        len(entry.request.prompt) + entry.told,
        tuple(entry.output[: entry.told]),
    )
