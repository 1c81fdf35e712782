"""The numpy family's kernels of many queries: one matrix product per sequence and head.

The page table becomes index arrays once a round (a plan); per layer the keys of each chunk are
gathered head by head, rotated if the mode is inline, and attended to as matrices. Counterpart:
TVM's prefill kernels.

Examples
--------
>>> from relaxlab.runtime.kv.attention.spec import KernelSpec
>>> kernel = RaggedPrefill(KernelSpec(num_qo_heads=1, num_kv_heads=1, qk_head_dim=2))
>>> x, i = np.ones((1, 1, 2), "float32"), np.array([0, 1], "int32")
>>> o, lse = np.empty_like(x), np.empty((1, 1), "float32")
>>> kernel(x, i, x, 3 * x, i, i, i, o, lse, 1, 0, 1.0, 1e4, 1.0)
>>> o.tolist()
[[[3.0, 3.0]]]
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxlab.runtime.kv.attention.checks import check_page_table
from relaxlab.runtime.kv.attention.dense import attend, by_head, store
from relaxlab.runtime.kv.attention.page_table import ChunkPages, PageTable
from relaxlab.runtime.kv.attention.plans import RecentPlans
from relaxlab.runtime.kv.attention.spec import KernelSpec, array
from relaxlab.runtime.kv.attention.turning import Turn, Turns
from relaxlab.runtime.kv.attention.visibility import (
    Causal,
    Everything,
    LayerWindow,
    TreeNodes,
    Visibility,
)

__all__ = [
    "MLAPrefill",
    "PagedPrefill",
    "PagedPrefillTree",
    "RaggedPrefill",
    "RaggedPrefillTree",
]

Array = NDArray[Any]


class _Paged:
    """What the paged kernels of many queries share."""

    def __init__(self, spec: KernelSpec) -> None:
        self.turns = Turns(spec)
        self._plans = RecentPlans()

    def plan(self, indptr: Array, values: Array, info: Array, pages: Array) -> PageTable:
        """Return where the keys of each chunk are; arrays as in the kernel's arguments."""
        page_size = pages.shape[3] if pages.ndim == 5 else pages.shape[1]

        def make() -> PageTable:
            check_page_table(indptr, values, info, pages=len(pages), page_size=page_size)
            table: PageTable = PageTable.of(indptr, values, info, page_size)
            return table

        table: PageTable = self._plans.get(make, (indptr, values, info), (pages.shape,))
        return table

    def run(
        self,
        plan: PageTable,
        visibilities: Sequence[Visibility],
        starts: list[int],
        tensors: tuple[Array, Array, Array, Array],
        turner: Turn | None,
        positions: Array,
        offsets: Array,
        sm_scale: float,
    ) -> None:
        """Attend from the queries of each chunk to its keys."""
        q, pages, output, lse = tensors
        heads = pages.shape[2]
        group = q.shape[1] // heads
        for b, (chunk, visibility) in enumerate(zip(plan.chunks, visibilities, strict=True)):
            rows = slice(starts[b], starts[b + 1])
            if rows.start == rows.stop:
                continue
            queries = q[rows]
            k, v = gathered(pages, chunk)
            if turner is not None:
                queries = turner.at(queries, positions[rows])
                k = turner.turn(k, *turner.angles(int(offsets[b]) + np.arange(chunk.count)))
            k, v = k.astype(np.float32, copy=False), v.astype(np.float32, copy=False)
            out = attend(by_head(queries, heads), k, v, visibility, group, sm_scale)
            store(*out, output[rows], lse[rows])


def gathered(pages: Array, chunk: ChunkPages) -> tuple[Array, Array]:
    """Return keys and values of a chunk, ``[heads, keys, dim]`` each."""
    _, _, heads, size, dim = pages.shape
    both = np.empty((2, heads, len(chunk.pages), size, dim), pages.dtype)
    both.transpose(2, 0, 1, 3, 4)[...] = pages[chunk.pages]
    flat = both.reshape(2, heads, -1, dim)
    count = chunk.count
    if not count or chunk.places[-1] == count - 1:
        return flat[0, :, :count], flat[1, :, :count]
    return flat[0][:, chunk.places], flat[1][:, chunk.places]


class PagedPrefill(_Paged):
    """Many queries per chunk over pages."""

    def __init__(self, spec: KernelSpec, *, sliding: bool = False) -> None:
        super().__init__(spec)
        window = spec.layer_window if sliding else 0
        self._causal: Visibility = LayerWindow(window) if window else Causal()

    def __call__(
        self,
        q: Any,
        q_indptr: Any,
        pages: Any,
        page_indptr: Any,
        page_values: Any,
        length_info: Any,
        k_rope_pos_offset: Any,
        q_rope_position: Any,
        output: Any,
        lse: Any,
        causal: int,
        rotary_mode: int,
        rope_scale: float,
        rope_theta: float,
        sm_scale: float,
    ) -> None:
        """Run with the arguments of TVM's kernel."""
        q, pages, output, lse = map(array, (q, pages, output, lse))
        tables = array(page_indptr), array(page_values), array(length_info)
        plan = self.plan(*tables, pages)
        visibility = self._causal if causal else Everything()
        turner = self.turns.by(q.dtype, rotary_mode, rope_scale, rope_theta)
        self.run(
            plan,
            [visibility] * len(plan.chunks),
            array(q_indptr).tolist(),
            (q, pages, output, lse),
            turner,
            array(q_rope_position),
            array(k_rope_pos_offset),
            sm_scale,
        )


class PagedPrefillTree(_Paged):
    """Tree queries over pages that end with the tree's nodes."""

    def __call__(
        self,
        q: Any,
        q_indptr: Any,
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
        tree_order_indptr: Any,
        tree_order: Any,
    ) -> None:
        """Run with the arguments of TVM's kernel."""
        q, pages, output, lse = map(array, (q, pages, output, lse))
        tables = array(page_indptr), array(page_values), array(length_info)
        order, bounds = array(tree_order).reshape(-1, 2), array(tree_order_indptr).tolist()
        plan = self.plan(*tables, pages)
        self.run(
            plan,
            [TreeNodes(order[bounds[b] : bounds[b + 1]]) for b in range(len(plan.chunks))],
            array(q_indptr).tolist(),
            (q, pages, output, lse),
            self.turns.by(q.dtype, rotary_mode, rope_scale, rope_theta),
            array(q_rope_position),
            array(k_rope_pos_offset),
            sm_scale,
        )


class _Ragged:
    """What the kernels over this round's own keys share."""

    def __init__(self, spec: KernelSpec) -> None:
        self.turns = Turns(spec)

    def run(
        self,
        tensors: tuple[Array, Array, Array, Array, Array],
        q_rows: slice,
        kv_rows: slice,
        visibility: Visibility,
        turner: Turn | None,
        q_positions: Array,
        k_positions: Array,
        sm_scale: float,
    ) -> None:
        """Attend from the queries of one sequence to its keys."""
        q, k, v, output, lse = tensors
        queries, keys = q[q_rows], k[kv_rows]
        heads = k.shape[1]
        if turner is not None:
            queries = turner.at(queries, q_positions[q_rows])
            keys = turner.at(keys, k_positions)
        out = attend(
            by_head(queries, heads),
            by_head(keys, heads),
            by_head(v[kv_rows], heads),
            visibility,
            q.shape[1] // heads,
            sm_scale,
        )
        store(*out, output[q_rows], lse[q_rows])


class RaggedPrefill(_Ragged):
    """New queries over the new keys of the same sequence."""

    def __call__(
        self,
        q: Any,
        q_indptr: Any,
        k: Any,
        v: Any,
        kv_indptr: Any,
        q_rope_position: Any,
        k_rope_pos_offset: Any,
        output: Any,
        lse: Any,
        causal: int,
        rotary_mode: int,
        rope_scale: float,
        rope_theta: float,
        sm_scale: float,
    ) -> None:
        """Run with the arguments of TVM's kernel."""
        q, k, v, output, lse = map(array, (q, k, v, output, lse))
        starts, kv_starts = array(q_indptr).tolist(), array(kv_indptr).tolist()
        positions, offsets = array(q_rope_position), array(k_rope_pos_offset)
        visibility: Visibility = Causal() if causal else Everything()
        turner = self.turns.by(q.dtype, rotary_mode, rope_scale, rope_theta)
        for b in range(len(starts) - 1):
            q_rows = slice(starts[b], starts[b + 1])
            kv_rows = slice(kv_starts[b], kv_starts[b + 1])
            k_positions = int(offsets[b]) + np.arange(kv_rows.stop - kv_rows.start)
            tensors = (q, k, v, output, lse)
            self.run(tensors, q_rows, kv_rows, visibility, turner, positions, k_positions, sm_scale)


class RaggedPrefillTree(_Ragged):
    """Tree queries over the nodes of the same tree."""

    def __call__(
        self,
        q: Any,
        q_indptr: Any,
        k: Any,
        v: Any,
        kv_indptr: Any,
        q_rope_position: Any,
        mn_indptr: Any,
        mask: Any,
        output: Any,
        lse: Any,
        rotary_mode: int,
        rope_scale: float,
        rope_theta: float,
        sm_scale: float,
    ) -> None:
        """Run with the arguments of TVM's kernel."""
        q, k, v, output, lse = map(array, (q, k, v, output, lse))
        starts, kv_starts = array(q_indptr).tolist(), array(kv_indptr).tolist()
        order, bounds = array(mask).reshape(-1, 2), array(mn_indptr).tolist()
        positions = array(q_rope_position)
        turner = self.turns.by(q.dtype, rotary_mode, rope_scale, rope_theta)
        for b in range(len(starts) - 1):
            q_rows = slice(starts[b], starts[b + 1])
            kv_rows = slice(kv_starts[b], kv_starts[b + 1])
            nodes = TreeNodes(order[bounds[b] : bounds[b + 1]])
            tensors = (q, k, v, output, lse)
            self.run(
                tensors, q_rows, kv_rows, nodes, turner, positions, positions[kv_rows], sm_scale
            )


class MLAPrefill(_Paged):
    """Queries over latent pages: one row is the key of all heads, its first part their value."""

    def __call__(
        self,
        q: Any,
        q_indptr: Any,
        pages: Any,
        page_indptr: Any,
        page_values: Any,
        length_info: Any,
        output: Any,
        lse: Any,
        causal: int,
        sm_scale: float,
    ) -> None:
        """Run with the arguments of TVM's kernel."""
        q, pages, output, lse = map(array, (q, pages, output, lse))
        tables = array(page_indptr), array(page_values), array(length_info)
        starts = array(q_indptr).tolist()
        visibility: Visibility = Causal() if causal else Everything()
        for b, chunk in enumerate(self.plan(*tables, pages).chunks):
            rows = slice(starts[b], starts[b + 1])
            if rows.start == rows.stop:
                continue
            latent = pages[chunk.pages].reshape(-1, pages.shape[2])[None, chunk.places]
            k = latent.astype(np.float32, copy=False)
            v = k[..., : output.shape[2]]
            out = attend(by_head(q[rows], 1), k, v, visibility, q.shape[1], sm_scale)
            store(*out, output[rows], lse[rows])
