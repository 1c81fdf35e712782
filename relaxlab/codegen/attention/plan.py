"""Plans of compiled attention: a round's index arrays as runs and chunks.

Runs and chunks are words that the compiled program reads (see ``program.py``). Counterpart: the
plan functions of the FlashInfer backend.

Examples
--------
>>> chunk_of((0, 2), [(0, 64, 5)], 5, causal=True).hi  # the first row sees four of five keys
4
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.codegen.attention.compiled import Compiled, attend
from relaxlab.codegen.attention.program import CHUNK_WORDS, Layout, rows_of_tile
from relaxlab.codegen.llvm.machine import machine
from relaxlab.runtime.kv.attention.page_table import ChunkPages

__all__ = [
    "Chunk",
    "Plan",
    "Run",
    "chunk_of",
    "make_plan",
    "page_runs",
    "ragged_runs",
    "tree_chunks",
]

Array = NDArray[Any]

Run = tuple[int, int, int]
"""Where keys and values begin, in elements, and how many rows follow."""

_MANY: Final = 840
"""Query rows of a long prompt, a multiple of every tile."""

NO_BIAS: Final = np.zeros(1, np.float32)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk, before it is written as words; names as in ``CHUNK_WORDS``."""

    first_token: int
    tokens: int
    runs: list[Run]
    keys: int
    hi: int
    hi_step: int = 0
    lo: int = 0
    lo_step: int = 0
    bias: int = 0
    bias_start: int = 0
    bias_keys: int = 0


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


def make_plan(layout: Layout, chunks: Sequence[Chunk], biases: Array) -> Plan:
    """Write chunks as words, those with enough query rows for wide tiles and the others."""
    wide = rows_of_tile(layout, machine().host, rows=_MANY)
    narrow = rows_of_tile(layout, machine().host, rows=layout.group)
    runs: list[Run] = []
    words: dict[int, list[list[int]]] = {}
    for chunk in chunks:
        if not chunk.tokens:
            continue
        rows = wide if chunk.tokens > 1 and chunk.tokens * layout.group >= wide else narrow
        first = len(runs)
        runs += chunk.runs
        record = {name: getattr(chunk, name, 0) for name in CHUNK_WORDS}
        record |= {"first_run": first, "last_run": len(runs)}
        words.setdefault(rows, []).append([record[name] for name in CHUNK_WORDS])
    parts = tuple(
        (attend(layout, rows), np.array(records, np.int64)) for rows, records in words.items()
    )
    longest = max((chunk.keys for chunk in chunks), default=0)
    # a row of scores ends with a vector of its own, and rows do not meet at a multiple of a page
    pitch = (longest // 16 + 2) * 16 + 16
    table = np.array(runs or [(0, 0, 0)], np.int64)
    return Plan(parts, table, pitch, max(wide, narrow), biases, [])


def chunk_of(
    tokens: tuple[int, int],
    runs: list[Run],
    keys: int,
    *,
    causal: bool,
    window: int = 0,
) -> Chunk:
    """Return the chunk of the queries ``tokens[0]`` to ``tokens[1] - 1``.

    Parameters
    ----------
    tokens, runs, keys
        Its queries, and where its keys are and how many.
    causal
        Whether the last row sees all keys, the one before it all but the last, and so on.
    window
        With ``causal``: row ``t`` sees the last ``window - 1 - t`` keys instead; 0 for none.
    """
    first, count = tokens[0], tokens[1] - tokens[0]
    if not causal:
        return Chunk(first, count, runs, keys, keys)
    if window:
        return Chunk(first, count, runs, keys, keys, 0, keys - window + 1, 1)
    return Chunk(first, count, runs, keys, keys - count + 1, 1)


def page_runs(chunk: ChunkPages, shape: tuple[int, ...]) -> list[Run]:
    """Return a chunk's keys as runs; ``shape`` is that of the pages, latent or not."""
    if not chunk.count:
        return []
    latent = len(shape) == 3
    size, dim = (shape[1], shape[2]) if latent else (shape[3], shape[4])
    step = size * dim if latent else 2 * shape[2] * size * dim
    to_values = 0 if latent else shape[2] * size * dim
    places = chunk.places
    page, row = np.divmod(places, size)
    begins = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    begins = np.union1d(begins, np.flatnonzero(np.diff(page, prepend=-1)))
    counts = np.diff(begins, append=len(places))
    offsets = chunk.pages[page[begins]] * step + row[begins] * dim
    return list(zip(offsets.tolist(), (offsets + to_values).tolist(), counts.tolist(), strict=True))


def tree_chunks(
    starts: list[int],
    found: list[tuple[list[Run], int]],
    order_indptr: Array,
    order: Array,
) -> tuple[list[Chunk], Array]:
    """Return chunks that end with trees, and what is added to the scores of the nodes."""
    bounds, nodes = order_indptr.tolist(), order.reshape(-1, 2)
    chunks, biases, size = [], [NO_BIAS], 1
    for i, (runs, keys) in enumerate(found):
        tokens = starts[i + 1] - starts[i]
        tree = nodes[bounds[i] : bounds[i + 1]]
        count = len(tree)
        visits = tree[count - tokens :, 0, None] if count else tree[:, :1]
        seen = (tree[:, 0] <= visits) & (visits < tree[:, 1])
        bias = np.where(seen, np.float32(0), np.float32(-np.inf)).ravel()
        chunks.append(
            Chunk(starts[i], tokens, runs, keys, keys, 0, 0, 0, size, keys - count, count)
        )
        biases.append(bias)
        size += len(bias)
    return chunks, np.concatenate(biases)


def ragged_runs(kv_starts: list[int], k: Array, v: Array) -> list[list[Run]]:
    """Return, for each sequence, its new keys and values as one run."""
    k_step, v_step = k.shape[1] * k.shape[2], v.shape[1] * v.shape[2]
    return [[(first * k_step, first * v_step, last - first)] for first, last in pairwise(kv_starts)]
