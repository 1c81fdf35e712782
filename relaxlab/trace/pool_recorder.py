"""Record what happens to the pages of a cache, call by call.

A recorder is the cache's observer. It also notes which call made the events that follow, and, where
somebody tells it, which tokens a sequence is given: a view can then show text in the pages. There
is no TVM counterpart.

Examples
--------
>>> from relaxlab.runtime.kv.observer import PagesAllocated
>>> recorder = PoolRecorder(num_pages=8, page_size=4)
>>> with recorder.call("begin_forward([0], [5])"):
...     recorder(PagesAllocated(0, (0, 1)))
>>> recorder
PoolRecorder(2 events, 1 call)
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, Self

from relaxlab.runtime.kv.observer import Event
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.runtime.kv.snapshot import CacheState, snapshot
from relaxlab.serve.events import Event as EngineEvent
from relaxlab.trace.pool_events import Called, EarlierDropped, PoolEvent, TokensNamed
from relaxlab.trace.pool_timeline import PoolTimeline

__all__ = ["PoolRecorder", "TokenModel"]

_CALLS: Final = frozenset(
    (
        "clear",
        "add_sequence",
        "remove_sequence",
        "fork_sequence",
        "popn",
        "retain_sequence",
        "revive_sequence",
        "enable_sliding_window_for_seq",
        "begin_forward",
        "end_forward",
        "commit_accepted_token_tree_nodes",
        "disagg_prepare_recv",
        "disagg_mark_send",
        "prepare_import",
        "import_page_group",
        "finish_import",
        "export_page_group",
    )
)
_ARGUMENT: Final = 60


class TokenModel(Protocol):
    """A model with a paged cache that is given tokens round by round."""

    @property
    def cache(self) -> PagedAttentionKVCache:
        """The cache."""

    def run(
        self,
        sequences: Sequence[int],
        counts: Sequence[int],
        tokens: Sequence[int],
        rows: Sequence[int],
        parents: Sequence[int] | None = None,
    ) -> Any:
        """Run a round."""


class PoolRecorder:
    """An observer of one cache.

    Parameters
    ----------
    num_pages, page_size
        Of the cache.
    name
        What a view calls the recording.
    limit
        How many of the last events are kept for certain; twice as many are kept at most, and one
        that stands for those dropped. None keeps all.

    Attributes
    ----------
    events : list of PoolEvent
        Everything so far, from the first one that was not dropped on.
    tokens : list of str
        Texts of the tokens that were named, each once.

    Raises
    ------
    ValueError
        If ``limit`` is less than 1.
    """

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        *,
        name: str = "cache",
        limit: int | None = 1_000_000,
    ) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"a recorder keeps at least one event, got limit={limit}")
        self.limit = limit
        self.num_pages = num_pages
        self.page_size = page_size
        self.name = name
        self.events: list[PoolEvent] = []
        self.tokens: list[str] = []
        self._indices: dict[str, int] = {}
        self._open_calls = 0

    @classmethod
    def of(cls, cache: PagedAttentionKVCache, *, name: str = "cache") -> Self:
        """Return a recorder of a new paged cache: its observer, and told of every call.

        Raises
        ------
        ValueError
            If the cache was used already: the recording would not know how.
        """
        pages, page_size = cache.config.num_total_pages, cache.config.page_size
        if snapshot(cache) != CacheState(pages, page_size):
            raise ValueError("expected a new or cleared cache: record from its beginning")
        recorder = cls(pages, page_size, name=name)
        cache.observer = recorder
        for method in _CALLS:
            # on this one object, so that whoever already holds the cache is noted too
            setattr(cache, method, _noting(getattr(cache, method), method, recorder))
        return recorder

    @classmethod
    def of_model(
        cls, model: TokenModel, texts: Callable[[int], str], *, name: str = "cache"
    ) -> Self:
        """Return a recorder of a model's new cache that also names the tokens of every round.

        Parameters
        ----------
        model
            Such as :class:`relaxlab.models.paged_llama.PagedLlama`.
        texts
            Turns a token into its text.
        name
            What a view calls the recording.

        Notes
        -----
        Give :meth:`note` to the engine as its observer: requests and the prefix cache are then
        recorded too.
        """
        recorder = cls.of(model.cache, name=name)
        run = model.run

        @functools.wraps(run)
        def naming(
            sequences: Sequence[int],
            counts: Sequence[int],
            tokens: Sequence[int],
            *rest: Any,
            **keywords: Any,
        ) -> Any:
            first = 0
            for sequence, count in zip(sequences, counts, strict=True):
                given = tokens[first : first + count]
                recorder.name_tokens(sequence, [texts(int(token)) for token in given])
                first += count
            return run(sequences, counts, tokens, *rest, **keywords)

        model.run = naming  # type: ignore[method-assign]  # on this one object
        return recorder

    @property
    def dropped(self) -> int:
        """How many events were dropped."""
        first = self.events[0] if self.events else None
        return first.count if isinstance(first, EarlierDropped) else 0

    def __call__(self, event: Event) -> None:
        """Take note of an event of the cache."""
        self.events.append(event)
        self._drop()

    def note(self, event: EngineEvent) -> None:
        """Take note of an event of the engine."""
        self.events.append(event)
        self._drop()

    def _drop(self) -> None:
        """Drop the oldest events if there are twice as many as are to be kept."""
        # inside a call it must be found again: its end may say that it was refused
        if self.limit is None or len(self.events) < 2 * self.limit or self._open_calls:
            return
        timeline = PoolTimeline.of(self)
        self.events[:] = timeline.since(len(self.events) - self.limit)

    @contextmanager
    def call(self, text: str) -> Iterator[None]:
        """Note a call: the events of the block are its own, and so is the error it raises."""
        self._drop()
        at = len(self.events)
        self.events.append(Called(text, ""))
        self._open_calls += 1
        try:
            yield
        except Exception as error:
            message = " ".join(str(error).split())
            self.events[at] = Called(text, f" It was refused: {message}")
            raise
        finally:
            self._open_calls -= 1

    def name_tokens(self, seq_id: int, texts: Iterable[str]) -> None:
        """Say which tokens a sequence is given next."""
        known = self._indices
        indices = tuple(known.setdefault(text, len(known)) for text in texts)
        self.tokens = list(known)
        self.events.append(TokensNamed(seq_id, indices))

    def __repr__(self) -> str:
        calls = sum(isinstance(event, Called) for event in self.events)
        dropped = f", the first {self.dropped} dropped" if self.dropped else ""
        return (
            f"PoolRecorder({len(self.events)} event{'' if len(self.events) == 1 else 's'}, "
            f"{calls} call{'' if calls == 1 else 's'}{dropped})"
        )


def _noting(method: Any, name: str, recorder: PoolRecorder) -> Any:
    depth = [0]

    @functools.wraps(method)
    def noting(*args: Any, **keywords: Any) -> Any:
        if depth[0]:  # a call that another call makes is part of it
            return method(*args, **keywords)
        depth[0] += 1
        try:
            with recorder.call(_call_text(name, args, keywords)):
                return method(*args, **keywords)
        finally:
            depth[0] -= 1

    return noting


def _call_text(name: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> str:
    words = [_short(one) for one in args]
    words += [f"{key}={_short(value)}" for key, value in keywords.items()]
    return f"{name}({', '.join(words)})"


def _short(value: Any) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= _ARGUMENT else f"{text[: _ARGUMENT - 1]}…"
