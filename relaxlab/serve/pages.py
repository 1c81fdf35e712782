"""What the scheduler's decisions do to the cache: admit, preempt, evict, fork, close.

Every operation either happens or leaves its entry waiting without a sequence. Removing never
fails: what the cache refuses to remove is tried again later. Counterpart: the cache calls in the
actions of MLC's engine.

Examples: see `relaxlab.serve.engine`.
"""

from collections.abc import Sequence

from relaxlab.serve.events import (
    Admitted,
    Advanced,
    Failed,
    Forked,
    Observer,
    Preempted,
    Resumed,
    Retried,
)
from relaxlab.serve.prefix_cache import PrefixCache
from relaxlab.serve.request import Entry, Status
from relaxlab.serve.scheduler import Limits, Scheduler, pages_for
from relaxlab.serve.served_model import Remote, ServedModel
from relaxlab.serve.speculation import Draft, draft

__all__ = ["Pages"]


class Pages:
    """The pool as the scheduler sees it, and the only writer of an entry's sequence.

    Parameters
    ----------
    model
        Whose cache it is.
    prefix
        Opens and closes sequences.
    limits
        How preemption and drafting are done.
    remote
        Computes prompts elsewhere.
    emit
        Gets the events.

    Attributes
    ----------
    scheduler
        The queues.
    failed
        Entries given up since the list was last emptied.
    """

    def __init__(
        self,
        model: ServedModel,
        prefix: PrefixCache,
        limits: Limits,
        emit: Observer,
        remote: Remote | None = None,
    ) -> None:
        self.scheduler = Scheduler(limits, self)
        self.failed: list[Entry] = []
        self._model, self._prefix, self._limits, self._emit = model, prefix, limits, emit
        self._remote = remote
        self._orphans: dict[int, int] = {}  # ticket of a transfer nobody waits for: its sequence

    @property
    def page_size(self) -> int:
        """Tokens in a page."""
        return self._model.page_size

    def available_pages(self) -> int:
        """Return the number of free pages."""
        return self._model.available_pages()

    def evict(self) -> bool:
        """Forget one cached prefix; False if there is none, or the cache refuses."""
        try:
            return self._prefix.evict()
        except RuntimeError:
            return False

    def admission_pages(self, entry: Entry) -> tuple[int, int]:
        """Return the pages that a waiting entry needs, and those that eviction could free.

        What it has in common with a running entry is made findable first.
        """
        self._share_with(entry)
        cached, evictable = self._prefix.prospect(entry.tokens)
        return self._missing(entry, cached), evictable

    def comes_soon(self, entry: Entry) -> bool:
        """Say whether a running entry is just computing pages that this one begins with."""
        if self._prefix.tree is None:
            return False
        cached = self._prefix.prospect(entry.tokens)[0]
        return any(
            self._common(entry, other.tokens) > max(cached, self._whole(other.computed))
            for other in self.scheduler.running
            if other.remaining > 1
        )

    def admit(self, entry: Entry, kept: int) -> bool:
        """Give a waiting entry a sequence if its pages and ``kept`` more are free, or become so."""
        sequence = self._prefix.new_sequence()
        try:
            cached = self._prefix.open(sequence, entry.tokens)
        except RuntimeError as error:
            self._failed_once(entry, "open", error)
            return False
        while self.available_pages() < self._missing(entry, cached) + kept:
            if not self.evict():
                self._prefix.drop(sequence)
                return False
        restored = cached
        if entry.saved is not None and entry.saved_tokens > cached:
            try:
                self._model.restore(sequence, entry.saved, cached)
                restored = entry.saved_tokens
            except RuntimeError as error:
                self._prefix.drop(sequence)
                entry.saved = None  # computed again next time
                self._failed_once(entry, "restore", error)
                return False
        if entry.saved is None:
            self._emit(Admitted(entry.id, sequence, cached))
        else:
            self._emit(Resumed(entry.id, sequence, restored))
            entry.saved = None
        self._seat(entry, sequence, restored)
        self.scheduler.waiting.remove(entry)
        self._send_for(entry)
        return True

    def _send_for(self, entry: Entry) -> None:
        """Let somebody else compute all but the last token of a new entry, if there is anybody."""
        remote, sequence, count = self._remote, entry.sequence, len(entry.tokens) - 1
        if remote is None or entry.retries or entry.output or sequence is None:
            return
        if count - entry.computed >= remote.least:
            try:
                entry.arriving = remote.start(sequence, entry.tokens[:count], entry.computed)
            except RuntimeError as error:
                self.abandon(entry, "remote", error)

    @property
    def arriving(self) -> bool:
        """Whether keys and values are under way."""
        return bool(self._orphans) or any(e.arriving is not None for e in self.scheduler.running)

    def receive(self) -> None:
        """Take note of transfers that ended, well or not."""
        if self._remote is None:
            return
        waiting = {e.arriving: e for e in self.scheduler.running if e.arriving is not None}
        for ticket, error in self._remote.poll():
            if ticket in self._orphans:
                self._prefix.drop(self._orphans.pop(ticket))
                continue
            entry = waiting[ticket]
            entry.arriving = None
            if error is not None:
                self.abandon(entry, "remote", RuntimeError(error))
            else:
                entry.computed = len(entry.tokens) - 1
                self._emit(Advanced(entry.id, entry.computed))

    def preempt(self, entry: Entry, reason: str) -> None:
        """Take the pages of a running entry; it waits again."""
        assert entry.sequence is not None
        mode = self._limits.preemption
        if mode == "swap" and entry.computed:
            try:
                entry.saved = self._model.save(entry.sequence, entry.computed)
                entry.saved_tokens = entry.computed
            except RuntimeError:
                mode = "recompute"
        self._emit(Preempted(entry.id, mode, entry.computed, reason))
        if mode == "swap":
            self._prefix.drop(entry.sequence, cause="preempted", reason=reason)
        else:  # what it computed may survive until somebody needs the pages
            tokens = entry.tokens[: entry.computed]
            self._prefix.keep(entry.sequence, tokens, cause="preempted", reason=reason)
        self._unseat(entry)
        self.scheduler.wait(entry)

    def guess(self, entry: Entry) -> Draft:
        """Draft what follows an entry's tokens, no further than its output can get."""
        left = entry.request.max_tokens - (len(entry.tokens) - len(entry.request.prompt))
        tokens = min(self._limits.draft_tokens, left - 1, self._model.context - len(entry.tokens))
        return draft(entry.tokens, tokens=max(tokens, 0), width=self._limits.draft_width)

    def fork(self, source: Entry, entry: Entry) -> bool:
        """Let an entry take over the computed prompt of another; False leaves it waiting."""
        assert source.sequence is not None
        position = len(source.request.prompt)
        while self.available_pages() < pages_for(position, self.page_size) - (
            position // self.page_size
        ):
            if not self.evict():
                return False
        if len(self.scheduler.running) >= self._limits.running:
            return False
        sequence = self._prefix.new_sequence()
        try:
            self._model.fork_sequence(source.sequence, sequence, position)
        except RuntimeError:
            return False
        self._prefix.adopt(sequence, source.sequence)
        self.scheduler.waiting.remove(entry)
        self._seat(entry, sequence, position)
        self._emit(Forked(entry.id, source.id, sequence, position))
        return True

    def close(self, entry: Entry, status: Status, *, keep: bool = True) -> None:
        """End an entry; what it computed stays cached if ``keep``."""
        if entry.sequence is not None:
            if entry.arriving is not None:  # its pages are still being written to
                self._orphans[entry.arriving] = entry.sequence
                entry.arriving = None
            elif keep:
                self._prefix.keep(entry.sequence, entry.tokens[: entry.computed])
            else:
                self._prefix.drop(entry.sequence)
            self._unseat(entry)
        elif entry in self.scheduler.waiting:
            self.scheduler.waiting.remove(entry)
        entry.saved = None
        entry.status = status
        for other in self.scheduler.waiting:
            if other.leader is entry:
                other.leader = None

    def abandon(self, entry: Entry, operation: str, error: BaseException) -> None:
        """Take the sequence of an entry whose round failed; it waits, or is given up."""
        assert entry.sequence is not None
        self._prefix.drop(entry.sequence)
        self._unseat(entry)
        self.scheduler.wait(entry)
        self._failed_once(entry, operation, error)

    def give_up(self, entry: Entry, error: str) -> None:
        """End an entry without success."""
        self.close(entry, Status.FAILED, keep=False)
        self._emit(Failed(entry.id, error))
        self.failed.append(entry)

    def _failed_once(self, entry: Entry, operation: str, error: BaseException) -> None:
        entry.retries += 1
        self._emit(Retried(entry.id, operation, f"{type(error).__name__}: {error}"))
        if entry.retries > self._limits.retries:
            self.give_up(entry, f"{operation} failed {entry.retries} times, last: {error}")

    def _share_with(self, entry: Entry) -> None:
        """Share the running entry's pages that begin like this one and are not cached yet."""
        best, running = max(
            ((self._common(entry, e.tokens[: e.computed]), e) for e in self.scheduler.running),
            key=lambda pair: pair[0],
            default=(0, None),
        )
        if running is not None and best > self._prefix.prospect(entry.tokens)[0]:
            assert running.sequence is not None
            self._prefix.share(running.sequence, running.tokens[:best])

    def _common(self, entry: Entry, tokens: Sequence[int]) -> int:
        """Length of a common beginning in whole pages, without the last token of the entry."""
        pairs = zip(entry.tokens[:-1], tokens, strict=False)
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        return self._whole(min(len(entry.tokens) - 1, len(tokens)) if same is None else same)

    def _whole(self, tokens: int) -> int:
        return tokens // self.page_size * self.page_size

    def _missing(self, entry: Entry, cached: int) -> int:
        return pages_for(len(entry.tokens), self.page_size) - cached // self.page_size

    def _seat(self, entry: Entry, sequence: int, computed: int) -> None:
        entry.sequence, entry.computed, entry.status = sequence, computed, Status.RUNNING
        self.scheduler.running.append(entry)

    def _unseat(self, entry: Entry) -> None:
        entry.sequence, entry.computed, entry.status = None, 0, Status.WAITING
        self.scheduler.running.remove(entry)
