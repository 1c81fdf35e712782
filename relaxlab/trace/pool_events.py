"""What a recording of a cache holds, and each of its events in words.

A recording is the events of the cache, and of the engine that uses it, in order. Between them are
remarks of two kinds: which call made the events that follow, and what the tokens are that come
next. The words are templates over
the events' fields, so that a page can fill them in as Python does. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.runtime.kv.observer import PagesAllocated
>>> explain_pool_event(PagesAllocated(2, (5, 6)))
'Block 2 takes pages 5, 6 from the free stack.'
>>> explain_pool_event(Called("fork_sequence(0, 1)", ""))
'Call: fork_sequence(0, 1).'
"""

import re
from dataclasses import dataclass
from typing import Any, Final, TypeGuard, get_args

from relaxlab.runtime.kv import observer
from relaxlab.serve import events as engine

__all__ = [
    "CACHE_CLASSES",
    "CLASSES",
    "Called",
    "ENGINE_CLASSES",
    "EarlierDropped",
    "PoolEvent",
    "TokensNamed",
    "WORDS",
    "explain_pool_event",
    "is_cache_event",
    "is_engine_event",
]

_LISTED: Final = 12


@dataclass(frozen=True, slots=True)
class Called:
    """A call of the cache begins; ``refusal`` says why it was refused, if it was."""

    call: str
    refusal: str


@dataclass(frozen=True, slots=True)
class TokensNamed:
    """The next tokens of a sequence, as indices into the recording's table of token texts."""

    seq_id: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EarlierDropped:
    """The recording begins here: ``count`` events before it were dropped.

    ``state`` is what they led to, as text; see :class:`relaxlab.trace.pool_start.PoolStart`.
    """

    count: int
    state: str


PoolEvent = observer.Event | engine.Event | Called | TokensNamed | EarlierDropped

CACHE_CLASSES: Final[tuple[type, ...]] = get_args(observer.Event)
"""Events of the cache."""

ENGINE_CLASSES: Final[tuple[type, ...]] = get_args(engine.Event)
"""Events of the serving engine."""

CLASSES: Final[tuple[type, ...]] = (
    *CACHE_CLASSES,
    Called,
    TokensNamed,
    EarlierDropped,
    *ENGINE_CLASSES,
)
"""Every class of event in a recording, in the order of its stream."""

WORDS: Final = {
    "CacheCleared": "The cache is cleared: all pages are free, in their first order.",
    "BlockCreated": "Block {block} begins, empty, at position {start}.",
    "BlockLinked": "Block {block} now follows block {parent} (-1: none).",
    "BlockFreed": "Block {block} is gone.",
    "PagesAllocated": "Block {block} takes pages {pages} from the free stack.",
    "PagesFreed": "Block {block} gives pages {pages} back; the last one is taken next.",
    "PlacesBorrowed": "Block {block} gets {count} places without pages: the pool is empty.",
    "PlacesFilled": "The places of block {block} without pages get pages {pages}.",
    "PagesShared": (
        "Pages {pages} move from block {source} to block {block} before it, to be shared: "
        "{length} tokens."
    ),
    "PartialPageCopied": (
        "The first {rows} rows of page {source_page} (block {source}) are copied to page {page} "
        "of block {block}: a page in mid-use cannot be shared."
    ),
    "SequenceAdded": "Sequence {seq_id} begins, empty, in block {block}.",
    "SequenceForked": (
        "Sequence {child} begins as the first {position} tokens of sequence {parent}, and goes on "
        "in block {block}."
    ),
    "SequenceMoved": "Sequence {seq_id} now ends in block {block}.",
    "SequenceRenamed": "Sequence {old} is now called {new}.",
    "SequenceRemoved": "Sequence {seq_id} is gone ({cause}). {reason}",
    "SequenceRetained": "Sequence {seq_id} is kept for its contents only; it may be evicted.",
    "SequenceRevived": "Sequence {seq_id} is in use again.",
    "WindowEnabled": (
        "Sequence {seq_id} keeps its first {sink} tokens and {window} in all: a sliding window."
    ),
    "SinkMoved": "{last_block_sink} sink tokens of sequence {seq_id} lie in its last block.",
    "RoundStarted": "A round begins: sequences {seq_ids} get {append_lengths} tokens.",
    "TokensCounted": "Sequence {seq_id} counts {count} more tokens.",
    "TokensAppended": (
        "{count} slots at the end of block {block} are reserved for sequence {seq_id}."
    ),
    "Slid": (
        "{tokens} tokens behind the sink of sequence {seq_id} slide out of block {block}; "
        "pages {places} leave it."
    ),
    "Popped": "The last {tokens} tokens of sequence {seq_id} leave block {block}.",
    "TreeGrown": "Sequence {seq_id} has a tree of uncommitted tokens, with parents {parents}.",
    "TreeDropped": "The tree of sequence {seq_id} is settled; accepted nodes: {accepted}.",
    "TokensCompacted": "Rows move within the pages, slot by slot: {moves}.",
    "RowsStored": "Layer {layer} stores its rows in slots {slots}.",
    "KernelRan": "Kernel {kernel} ran for layer {layer} ({part} part, depth {depth}).",
    "RoundFinished": "The round is over.",
    "SendMarked": "Rows of sequence {seq_id} from position {begin} on go to receiver {receiver}.",
    "PagesSent": "Layer {layer}: stored rows are sent from slots {local} to slots {remote}.",
    "TokensSent": "Layer {layer}: the round's rows are sent to slots {remote}.",
    "SequenceExported": "All {length} rows of sequence {seq_id} were copied out.",
    "SequenceImported": "All {length} rows of sequence {seq_id} were copied in.",
    "GroupExported": "Group {group} of sequence {seq_id} was copied out.",
    "ImportPrepared": "Sequence {seq_id} is being imported, in {groups} groups.",
    "GroupImported": "Group {group} of sequence {seq_id} is here.",
    "ImportFinished": "Sequence {seq_id} is imported.",
    "Misused": "Warning: {message}",
    "Called": "Call: {call}.{refusal}",
    "TokensNamed": "Sequence {seq_id} is given tokens.",
    "EarlierDropped": "The first {count} events were dropped: the recording goes on from here.",
    "Submitted": "Request {entry} waits, with {prompt} tokens and priority {priority}.",
    "PrefixHit": (
        "Prefix cache: the first {tokens} tokens of sequence {sequence} are there (node {node})."
    ),
    "Missed": "Prefix cache: nothing more for sequence {sequence}. {report}",
    "Admitted": (
        "Request {entry} is admitted as sequence {sequence}; {cached} of its tokens need no "
        "computing."
    ),
    "Resumed": (
        "Request {entry} goes on as sequence {sequence}; {restored} tokens came back from the host."
    ),
    "Forked": (
        "Request {entry} takes over the prompt of request {source}, {computed} tokens, as sequence "
        "{sequence}."
    ),
    "Scheduled": "A round of {kind} is about to run: {batch}.",
    "Advanced": "Request {entry}: {computed} tokens are in the cache now.",
    "Drafted": "Request {entry}: {accepted} of {proposed} guessed tokens were right.",
    "Emitted": "Request {entry} chooses tokens {tokens}.",
    "Preempted": (
        "Request {entry} gives its pages back ({mode}) and waits again; {computed} tokens were "
        "computed. {reason}"
    ),
    "Retried": "Request {entry}: {operation} failed, so it waits and computes again. {error}",
    "Finished": "Request {entry} is finished: {reason}.",
    "Cancelled": "Request {entry} is cancelled.",
    "Failed": "Request {entry} is given up. {error}",
    "NodeAdded": (
        "Prefix cache: node {node} below node {parent}, {pages} pages from page {start} on."
    ),
    "NodeSplit": "Prefix cache: the first {pages} pages of node {node} become node {upper}.",
    "NodePinned": "Prefix cache: users of node {node} change by {change}.",
    "HolderMoved": "Prefix cache: sequence {holder} holds node {node} now.",
    "Evicted": "Prefix cache: node {node} of {pages} pages is evicted: {reason}",
    "NodeRemoved": "Prefix cache: node {node} is gone.",
}
"""A template per class: ``{field}`` stands for the field's value."""


def is_cache_event(event: PoolEvent) -> TypeGuard[observer.Event]:
    """Whether an event is the cache's own."""
    return isinstance(event, CACHE_CLASSES)


def is_engine_event(event: PoolEvent) -> TypeGuard[engine.Event]:
    """Whether an event is the engine's."""
    return isinstance(event, ENGINE_CLASSES)


def explain_pool_event(event: PoolEvent) -> str:
    """Return an event in one sentence."""
    template = WORDS[type(event).__name__]
    return re.sub(r"\{(\w+)\}", lambda match: _field(event, match[1]), template).strip()


def _field(event: PoolEvent, name: str) -> str:
    value: Any = getattr(event, name)
    if name in ("entry", "source") and isinstance(value, tuple):
        return f"{value[0]}.{value[1]}"  # request and which of its answers
    if name == "part":
        return value or "whole"
    return _text(value)


def _text(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(int(value)) if isinstance(value, bool) else str(value)
    items = [_pair(*one) if isinstance(one, tuple) else str(one) for one in value]
    if len(items) > _LISTED:
        return f"{', '.join(items[:_LISTED])}, … ({len(items)})"
    return ", ".join(items) or "none"


def _pair(first: Any, second: Any) -> str:
    if isinstance(first, tuple):
        return f"{first[0]}.{first[1]} +{second}"
    return f"{first} to {second}"
