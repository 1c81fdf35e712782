"""The numpy family's decode kernel: every sequence of the batch at once, page by page.

One query per sequence is too little work for a loop in Python, so all pages of all sequences are
gathered into one array, scores and products are batched over pages, and the pages of a sequence
are joined by segment reductions. Nothing loops over sequences. Counterpart: TVM's decode kernel.

Examples
--------
>>> from relaxlab.runtime.kv.attention.spec import KernelSpec
>>> kernel = PagedDecode(KernelSpec(num_qo_heads=1, num_kv_heads=1, qk_head_dim=2, page_size=4))
>>> pages = np.ones((1, 2, 1, 4, 2), "float32")
>>> index = lambda *x: np.array(x, "int32")
>>> o, lse = np.empty((1, 1, 2), "float32"), np.empty((1, 1), "float32")
>>> q = np.zeros((1, 1, 2), "float32")
>>> kernel(q, pages, index(0, 1), index(0), index(2), index(0), index(1), o, lse, 0, 1.0, 1e4, 1.0)
>>> o[0, 0].tolist(), lse.tolist()  # two keys of equal weight
([1.0, 1.0], [[1.0]])
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.runtime.kv.attention.checks import check_page_table
from relaxlab.runtime.kv.attention.dense import LOG2_E, START
from relaxlab.runtime.kv.attention.page_table import PageTable
from relaxlab.runtime.kv.attention.plans import RecentPlans
from relaxlab.runtime.kv.attention.scratch import Scratch
from relaxlab.runtime.kv.attention.spec import KernelSpec, array
from relaxlab.runtime.kv.attention.turning import Turns

__all__ = ["DecodePlan", "PagedDecode"]

Array = NDArray[Any]

_GATHERED: Final = 1 << 20
"""Bytes that are gathered at a time, unless one sequence needs more: they stay in the cache."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Chunks whose pages are gathered together.

    Attributes
    ----------
    chunks
        Their numbers; chunks without keys are in no part.
    pages
        All their page ids.
    owner
        For each page, which of ``chunks`` it belongs to.
    starts
        Where the pages of each chunk begin.
    unused
        Pairs (page, row) that hold no key of the chunk, as two index arrays.
    keys
        For each page and row, the number of the key within its chunk.
    """

    chunks: Array
    pages: Array
    owner: Array
    starts: Array
    unused: tuple[Array, Array]
    keys: Array


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """What the index arrays of a round say, for all layers."""

    parts: tuple[_Part, ...]
    without_keys: Array


def _part(table: PageTable, numbers: list[int], size: int) -> _Part:
    chunks = [table.chunks[number] for number in numbers]
    counts = np.array([len(chunk.pages) for chunk in chunks])
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    flat = np.full(int(counts.sum()) * size, -1)
    for start, chunk in zip(starts.tolist(), chunks, strict=True):
        flat[start * size + chunk.places] = np.arange(chunk.count)
    keys = flat.reshape(-1, size)
    owner = np.repeat(np.arange(len(chunks)), counts)
    pages = np.concatenate([chunk.pages for chunk in chunks])
    page, row = np.nonzero(keys < 0)
    return _Part(np.array(numbers), pages, owner, starts, (page, row), keys)


class PagedDecode:
    """One query per chunk over pages."""

    def __init__(self, spec: KernelSpec) -> None:
        self._turns = Turns(spec)
        self._plans = RecentPlans()
        self._scratch = Scratch()

    def plan(self, indptr: Array, values: Array, info: Array, pages: Array) -> DecodePlan:
        """Return the plan of a round; arrays as in the kernel's arguments."""
        page_size, page_bytes = pages.shape[3], max(pages[:1].nbytes, 1)

        def make() -> DecodePlan:
            check_page_table(indptr, values, info, pages=len(pages), page_size=page_size)
            table: PageTable = PageTable.of(indptr, values, info, page_size)
            groups: list[list[int]] = []
            room = 0
            for number, chunk in enumerate(table.chunks):
                if not chunk.count:
                    continue
                if room < len(chunk.pages):
                    groups.append([])
                    room = max(_GATHERED // page_bytes, len(chunk.pages))
                groups[-1].append(number)
                room -= len(chunk.pages)
            empty = [number for number, chunk in enumerate(table.chunks) if not chunk.count]
            parts = tuple(_part(table, numbers, page_size) for numbers in groups)
            return DecodePlan(parts, np.array(empty, np.intp))

        plan: DecodePlan = self._plans.get(make, (indptr, values, info), (pages.shape, pages.dtype))
        return plan

    def __call__(
        self,
        q: Any,
        pages: Any,
        page_indptr: Any,
        page_values: Any,
        length_info: Any,
        k_rope_pos_offset: Any,
        q_rope_position: Any,
        output: Any,
        lse: Any,
        rotary_mode: int,
        rope_scale: float,
        rope_theta: float,
        sm_scale: float,
    ) -> None:
        """Run with the arguments of TVM's kernel."""
        q, pages, output, lse = map(array, (q, pages, output, lse))
        tables = array(page_indptr), array(page_values), array(length_info)
        plan = self.plan(*tables, pages)
        heads = pages.shape[2]
        turner = self._turns.by(q.dtype, rotary_mode, rope_scale, rope_theta)
        queries = q if turner is None else turner.at(q, array(q_rope_position))
        scaled = queries.astype(np.float32, copy=False) * np.float32(sm_scale * LOG2_E)
        scaled = scaled.reshape(len(q), heads, -1, q.shape[2])
        if len(plan.without_keys):
            output[plan.without_keys], lse[plan.without_keys] = 0, START
        for part in plan.parts:
            gathered = self._scratch.take((len(part.pages), *pages.shape[1:]), pages.dtype)
            np.take(pages, part.pages, axis=0, out=gathered, mode="clip")
            k, v = gathered[:, 0], gathered[:, 1]
            # what lies in unused rows may be anything, and zero times infinity is not zero
            page, row = part.unused
            if len(page):
                gathered[page, :, :, row] = 0
            if turner is not None:
                first = array(k_rope_pos_offset)[part.chunks][part.owner]
                cos, sin = turner.angles(first[:, None] + np.maximum(part.keys, 0))
                k = turner.turn(k, cos[:, None], sin[:, None])
            k, v = k.astype(np.float32, copy=False), v.astype(np.float32, copy=False)
            out, part_lse = self._attend(part, scaled[part.chunks], k, v)
            self._scratch.give(gathered)
            if len(part.chunks) == len(q):
                output[...] = out.reshape(q.shape)
                lse[...] = part_lse.reshape(lse.shape)
            else:
                output[part.chunks] = out.reshape(-1, *q.shape[1:])
                lse[part.chunks] = part_lse.reshape(-1, lse.shape[1])

    def _attend(self, part: _Part, q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        """Return output ``[chunks, heads, group, dim]`` and LSE ``[chunks, heads, group]``."""
        page, row = part.unused
        # reductions go over pages first: that is elementwise over long rows, hence much faster
        single = len(part.chunks) == 1
        scores = np.matmul(q if single else q[part.owner], k.transpose(0, 1, 3, 2))
        if len(page):
            scores[page, :, :, row] = -np.inf
        if single:
            top = scores.max(axis=0, keepdims=True).max(axis=3)
        else:
            top = np.maximum.reduceat(scores, part.starts, axis=0).max(axis=3)
        np.maximum(top, START, out=top)
        scores -= (top if single else top[part.owner])[..., None]
        weights = np.exp2(scores, out=scores)
        products = np.matmul(weights, v)
        if single:
            total, out = weights.sum(axis=0, keepdims=True), products.sum(axis=0, keepdims=True)
        else:
            total = np.add.reduceat(weights, part.starts, axis=0)
            out = np.add.reduceat(products, part.starts, axis=0)
        total = total.sum(axis=3)
        total += np.exp2(START - top)
        out /= total[..., None]
        return out, top + np.log2(total)
