"""Plans of compiled attention: a round's index arrays as runs and chunks.

Runs and chunks are words that the compiled program reads (see ``program.py``). A plan is made in
every round, so it is made by whole arrays: nothing here loops over sequences or pages.
Counterpart: the plan functions of the FlashInfer backend.

Examples
--------
>>> index = lambda *x: np.array(x, "int32")
>>> layout = PageLayout(page=64, row=4, value=32, size=4)
>>> runs, indptr, keys = page_runs(index(0, 2), index(7, 3), index(2), layout)
>>> runs.tolist(), indptr.tolist(), keys.tolist()  # four rows of page 7, then two of page 3
([[448, 480, 4], [192, 224, 2]], [0, 2], [6])
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.codegen.attention.compiled import attend
from relaxlab.codegen.attention.entry import Compiled
from relaxlab.codegen.attention.program import CHUNK_WORDS, Layout, rows_of_tile
from relaxlab.codegen.llvm.machine import machine
from relaxlab.runtime.kv.attention.checks import check_trees

__all__ = [
    "Columns",
    "NO_BIAS",
    "PageLayout",
    "Plan",
    "make_plan",
    "page_runs",
    "ragged_runs",
    "tree_biases",
    "visible",
]

Array = NDArray[Any]
Columns = dict[str, Array | int]
"""Words of chunks by name: one value for each chunk, or one for all."""

_MANY: Final = 840
"""Query rows of a long prompt, a multiple of every tile."""

NO_BIAS: Final = np.zeros(1, np.float32)


@dataclass(frozen=True, slots=True)
class Plan:
    """A round's runs and chunks as arrays of words, and how much scratch they need.

    Attributes
    ----------
    parts
        For each compiled function that is needed, its chunks.
    runs
        All runs.
    pitch, rows
        Elements of a row of scratch, and rows.
    biases
        What is added to scores of tree nodes.
    scratch
        Buffers that are not in use.
    """

    parts: tuple[tuple[Compiled, Array], ...]
    runs: Array
    pitch: int
    rows: int
    biases: Array
    scratch: list[Array]


@cache
def _tiles(layout: Layout) -> tuple[int, int]:
    """Return how many query rows are taken together, of long prompts and of one token."""
    host = machine().host
    wide = rows_of_tile(layout, host, rows=_MANY)
    return wide, rows_of_tile(layout, host, rows=layout.group)


def make_plan(
    layout: Layout, runs: Array, columns: Mapping[str, Array | int], biases: Array
) -> Plan:
    """Write chunks as words, those with enough query rows for wide tiles and the others.

    Parameters
    ----------
    layout
        Where things are.
    runs
        All runs, ``[n, 3]``.
    columns
        The words of ``CHUNK_WORDS``, one value per chunk or one for all; 0 where they are missing.
    biases
        What ``bias`` counts in.
    """
    tokens = np.asarray(columns["tokens"])
    first = np.asarray(columns["first_run"])
    words = np.zeros((len(first), len(CHUNK_WORDS)), np.int64)
    for name, column in columns.items():
        words[:, CHUNK_WORDS.index(name)] = column
    wide, narrow = _tiles(layout)
    for_wide = np.broadcast_to((tokens > 1) & (tokens * layout.group >= wide), first.shape)
    there = np.broadcast_to(tokens > 0, first.shape)
    parts: list[tuple[Compiled, Array]] = []
    if wide == narrow:
        for_wide = there
    for rows, chosen in ((wide, there & for_wide), (narrow, there & ~for_wide)):
        if chosen.any():
            parts.append((attend(layout, rows), np.ascontiguousarray(words[chosen])))
    longest = int(words[:, CHUNK_WORDS.index("keys")].max(initial=0))
    # a row of scores ends with a vector of its own, and rows do not meet at a multiple of a page
    pitch = (longest // 16 + 2) * 16 + 16
    if not len(runs):
        runs = np.zeros((1, 3), np.int64)
    return Plan(tuple(parts), runs, pitch, max(wide, narrow), biases, [])


def visible(tokens: Array | int, keys: Array, *, causal: bool, window: int = 0) -> Columns:
    """Return the columns that say which keys a row sees.

    Parameters
    ----------
    tokens, keys
        Queries and keys of each chunk.
    causal
        Whether the last row sees all keys, the one before it all but the last, and so on.
    window
        With ``causal``: row ``t`` sees the last ``window - 1 - t`` keys instead; 0 for none.
    """
    if not causal:
        return {"hi": keys}
    if window:
        return {"hi": keys, "lo": keys - window + 1, "lo_step": 1}
    return {"hi": keys - tokens + 1, "hi_step": 1}


@dataclass(frozen=True, slots=True)
class PageLayout:
    """Distances in pages, in elements.

    Attributes
    ----------
    page, row
        From page to page, and from row to row.
    value
        From a key to its value.
    size
        Rows of a page.
    """

    page: int
    row: int
    value: int
    size: int

    @classmethod
    def of(cls, pages: Array) -> "PageLayout":
        """Return the layout of an array of pages, latent (three axes) or not (five)."""
        if pages.ndim == 3:
            return cls(pages.shape[1] * pages.shape[2], pages.shape[2], 0, pages.shape[1])
        _, _, heads, size, dim = pages.shape
        return cls(2 * heads * size * dim, dim, heads * size * dim, size)


def page_runs(
    indptr: Array, values: Array, info: Array, layout: PageLayout
) -> tuple[Array, Array, Array]:
    """Return the runs of all chunks, where those of each chunk begin, and its number of keys.

    A page holds up to two runs: what belongs to the sink, and what the window still covers.
    """
    counts = np.diff(indptr).astype(np.int64)
    size, chunks = layout.size, len(counts)
    last, offset, sink = info if info.ndim == 2 else (info, *np.zeros((2, chunks), np.int64))
    total = np.where(counts > 0, (counts - 1) * size + last, 0)
    keys = np.where(counts > 0, total - offset + sink, 0)
    owner = np.repeat(np.arange(chunks), counts)
    before = (np.arange(len(owner)) - indptr[:-1].astype(np.int64)[owner]) * size
    base = values[: len(owner)].astype(np.int64) * layout.page
    if info.ndim == 1:
        begin, end = np.zeros_like(before), np.minimum(total[owner] - before, size)
    else:
        # the sink's part of each page, then the window's
        ends = np.stack([sink, total])[:, owner] - before
        begins = np.stack([np.zeros_like(offset), offset])[:, owner] - before
        begin, end = (np.clip(x, 0, size).T.ravel() for x in (begins, ends))
        base, owner = np.repeat(base, 2), np.repeat(owner, 2)
        used = end > begin
        begin, end, base, owner = begin[used], end[used], base[used], owner[used]
    runs = np.empty((len(base), 3), np.int64)
    runs[:, 0] = base + begin * layout.row
    runs[:, 1] = runs[:, 0] + layout.value
    runs[:, 2] = end - begin
    starts = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=chunks))])
    return runs, starts, keys


def ragged_runs(kv_indptr: Array, k: Array, v: Array) -> Array:
    """Return each sequence's new keys and values as one run."""
    starts = kv_indptr.astype(np.int64)
    runs = np.empty((len(starts) - 1, 3), np.int64)
    runs[:, 0] = starts[:-1] * (k.shape[1] * k.shape[2])
    runs[:, 1] = starts[:-1] * (v.shape[1] * v.shape[2])
    runs[:, 2] = np.diff(starts)
    return runs


def tree_biases(
    tokens: Array, keys: Array, order_indptr: Array, order: Array
) -> tuple[Columns, Array]:
    """Return the columns of chunks that end with trees, and what is added to scores of nodes."""
    check_trees(tokens, keys, order_indptr, order)
    bounds, nodes = order_indptr.tolist(), order.reshape(-1, 2)
    biases, starts, size = [NO_BIAS], [], 1
    for number, count in enumerate(tokens.tolist()):
        tree = nodes[bounds[number] : bounds[number + 1]]
        visits = tree[len(tree) - count :, 0, None] if len(tree) else tree[:, :1]
        seen = (tree[:, 0] <= visits) & (visits < tree[:, 1])
        biases.append(np.where(seen, np.float32(0), np.float32(-np.inf)).ravel())
        starts.append(size)
        size += len(biases[-1])
    sizes = np.diff(order_indptr).astype(np.int64)
    columns: Columns = {
        "hi": keys,
        "bias": np.array(starts, np.int64),
        "bias_start": keys - sizes,
        "bias_keys": sizes,
    }
    return columns, np.concatenate(biases)
