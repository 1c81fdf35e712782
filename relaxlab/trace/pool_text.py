"""The page pool as text: the twin of the view, and what a terminal shows.

Sentences are those of the page, word for word. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.trace.pool_recorder import PoolRecorder
>>> from relaxlab.trace.pool_timeline import PoolTimeline
>>> print(render_pool(PoolTimeline.of(PoolRecorder(num_pages=2, page_size=4)), 0))
cache: event 0 of 0
0 of 2 pages in use; 0 rows filled, 0 empty; 0 sequences of 0 tokens.
next: nothing: the end
<BLANKLINE>
pages
   0 free      1 free
<BLANKLINE>
sequences and their page tables
  none
free stack, next page first: 0 1
"""

from collections.abc import Iterator
from typing import Final

from relaxlab.runtime.kv.block import NO_PAGE
from relaxlab.runtime.kv.snapshot import BlockState, CacheState, SequenceState
from relaxlab.serve.events import EngineState, EntryState, NodeState
from relaxlab.trace.pool_events import explain_pool_event
from relaxlab.trace.pool_timeline import PoolTimeline, page_of, slot_of

__all__ = [
    "counters",
    "entry_words",
    "free_pages",
    "node_words",
    "render_pool",
    "sequence_words",
    "users_of",
]

_PAGES_SHOWN: Final = 256
_LISTED: Final = 64
_SEQUENCES_SHOWN: Final = 80
_IN_A_ROW: Final = 6


def render_pool(timeline: PoolTimeline, position: int) -> str:
    """Return everything about a moment of a recording."""
    state = timeline.state(position)
    lines = [f"{timeline.name}: event {position} of {len(timeline)}"]
    if (call := timeline.call(position)) is not None:
        lines.append(explain_pool_event(call))
    lines.append(counters(state))
    if position:
        lines.append(f"done: {explain_pool_event(timeline.events[position - 1])}")
    at_end = position == len(timeline)
    coming = "nothing: the end" if at_end else explain_pool_event(timeline.events[position])
    lines += [
        f"next: {coming}",
        "",
        "pages",
        *_grid(state, timeline.copies(position)),
        "",
        "sequences and their page tables",
    ]
    lines += _sequences(state)
    lines.append(f"free stack, next page first: {free_pages(state)}")
    lines += _tokens(timeline, position, state)
    if (engine := timeline.engine(position)) is not None:
        lines += ["", *_requests(engine), *_prefix_cache(engine, state.page_size)]
        given_up = [loss for loss in timeline.losses if loss.event < position]
        lines += ["given up"] * bool(given_up)
        lines += [f"  event {loss.event}: {loss.text}" for loss in given_up]
    return "\n".join(lines)


def counters(state: CacheState) -> str:
    """Return pages, rows, sequences and what sharing saves, in one sentence."""
    used = state.num_pages - state.available
    filled = sum(
        slot_of(block, token, state.page_size)[0] != NO_PAGE
        for block in state.blocks
        for token in range(block.length)
    )
    tokens = sum(sequence.length for sequence in state.sequences)
    count = len(state.sequences)
    saved = f", {tokens - filled} saved by sharing" if tokens > filled else ""
    return (
        f"{used} of {state.num_pages} pages in use; {filled} rows filled, "
        f"{used * state.page_size - filled} empty; {count} sequence{'' if count == 1 else 's'} "
        f"of {tokens} tokens{saved}."
    )


def users_of(state: CacheState) -> dict[int, list[int]]:
    """Return, for each block, the sequences that pass through it, by id."""
    users: dict[int, list[int]] = {block.index: [] for block in state.blocks}
    for sequence in sorted(state.sequences, key=lambda one: one.seq_id):
        for block in _chain(state, sequence):
            users[block.index].append(sequence.seq_id)
    return users


def sequence_words(state: CacheState, sequence: SequenceState) -> str:
    """Return what there is to say of a sequence besides its pages."""
    marks = [f"{sequence.length} token{'' if sequence.length == 1 else 's'}"]
    if sequence.window > 0:
        marks.append(f"window {sequence.window}, sink {sequence.sink}")
    if sequence.retained:
        marks.append("kept for its contents")
    if sequence.tree:
        marks.append(f"tree of {len(sequence.tree)}")
    batch = state.round
    if batch is not None and not batch.finished and sequence.seq_id in batch.seq_ids:
        count = batch.append_lengths[batch.seq_ids.index(sequence.seq_id)]
        marks.append(f"+{count} this round")
    return ", ".join(marks)


def free_pages(state: CacheState) -> str:
    """Return the free pages, the next one first; a long list is cut."""
    if not state.available:
        return "empty"
    order = [*reversed(state.freed), *range(state.fresh, min(state.num_pages, state.fresh + 100))]
    more = state.available - _LISTED
    return " ".join(map(str, order[:_LISTED])) + (f" … {more} more" if more > 0 else "")


def _chain(state: CacheState, sequence: SequenceState) -> list[BlockState]:
    blocks = {block.index: block for block in state.blocks}
    chain = [blocks[sequence.last_block]]
    while chain[0].parent != -1:
        chain.insert(0, blocks[chain[0].parent])
    return chain


def _grid(state: CacheState, copies: dict[int, tuple[int, int]]) -> Iterator[str]:
    users = users_of(state)
    cells: dict[int, str] = {}
    for block in state.blocks:
        using = users[block.index]
        badge = f"×{len(using)}" if len(using) > 1 else f"s{using[0]}" if using else "–"
        for page in block.pages:
            if page != NO_PAGE:
                rows = {row for row, _ in page_of(block, page, state.page_size)}
                marks = "".join("#" if row in rows else "." for row in range(state.page_size))
                copied = f" ←{copies[page][0]}" if page in copies else ""
                cells[page] = f"{badge:3} {marks}{copied}"
    shown = min(state.num_pages, _PAGES_SHOWN)
    width = max(12, *(len(cell) + 6 for cell in cells.values())) if cells else 12
    texts = [f"{page:4} {cells.get(page, 'free')}" for page in range(shown)]
    for first in range(0, shown, _IN_A_ROW):
        yield "".join(f"{text:{width}}" for text in texts[first : first + _IN_A_ROW]).rstrip()
    if shown < state.num_pages:
        yield f"  … {state.num_pages - shown} more"


def _sequences(state: CacheState) -> Iterator[str]:
    users = users_of(state)
    ordered = sorted(state.sequences, key=lambda one: one.seq_id)
    for sequence in ordered[:_SEQUENCES_SHOWN]:
        tables = []
        left = _LISTED
        for block in _chain(state, sequence):
            pages = ["–" if page == NO_PAGE else str(page) for page in block.pages[: max(0, left)]]
            left -= len(pages)
            count = len(users[block.index])
            tables.append(" ".join([f"×{count}", *pages] if count > 1 else pages))
        table = " | ".join(tables) + (" …" if left <= 0 else "")
        yield f"  s{sequence.seq_id}  {sequence_words(state, sequence)}  | {table}".rstrip()
    if len(ordered) > _SEQUENCES_SHOWN:
        yield f"  … {len(ordered) - _SEQUENCES_SHOWN} more"
    if not ordered:
        yield "  none"


def _tokens(timeline: PoolTimeline, position: int, state: CacheState) -> Iterator[str]:
    if not timeline.tokens:
        return
    names = timeline.names(position)
    owners = {page: block for block in state.blocks for page in block.pages if page != NO_PAGE}
    yield "tokens"
    for page in sorted(owners)[:_PAGES_SHOWN]:
        block = owners[page]
        held = page_of(block, page, state.page_size)
        if held:
            texts = " ".join(repr(names[block.index][token]) for _, token in held)
            yield f"  page {page}: {texts}"


def _requests(engine: EngineState) -> Iterator[str]:
    yield "requests"
    for entry in [*engine.running, *(one for one in engine.entries if one not in engine.running)]:
        yield f"  {entry[0]}.{entry[1]}  {entry_words(engine.entries[entry])}"
    if not engine.entries:
        yield "  none"


def entry_words(entry: EntryState) -> str:
    """Return what there is to say of a request."""
    words = [entry.status]
    if entry.sequence is not None:
        words.append(f"sequence {entry.sequence}")
        words.append(f"{entry.computed} of {entry.tokens} tokens computed")
    else:
        words.append(f"{entry.tokens} tokens")
    if entry.output:
        words.append(f"{len(entry.output)} chosen")
    return ", ".join(words)


def _prefix_cache(engine: EngineState, page_size: int) -> Iterator[str]:
    yield (
        f"prefix cache: {engine.hits} hits, {engine.hit_tokens} tokens saved, "
        f"{engine.evictions} evictions, {engine.preemptions} preemptions"
    )
    children: dict[int, list[int]] = {}
    for node, state in sorted(engine.nodes.items()):
        children.setdefault(state.parent, []).append(node)
    pending = [(node, 0) for node in reversed(children.get(0, []))]
    while pending:
        node, depth = pending.pop()
        yield f"  {'  ' * depth}{node_words(node, engine.nodes[node], page_size)}"
        pending += [(child, depth + 1) for child in reversed(children.get(node, []))]


def node_words(node: int, state: NodeState, page_size: int) -> str:
    """Return what there is to say of a node of the prefix cache."""
    first, last = state.start * page_size, (state.start + state.pages) * page_size - 1
    held = "by nobody now" if state.holder is None else f"by sequence {state.holder}"
    used = f", in use by {state.pins}" if state.pins else ""
    return f"node {node}: tokens {first} to {last}, held {held}{used}"
