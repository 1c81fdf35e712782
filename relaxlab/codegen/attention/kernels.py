"""The llvm family's attention kernels: plans in Python, everything else in machine code.

A plan turns the index arrays of a round into runs and chunks (see ``program.py``), once for all
layers; a call passes addresses. What the compiled program has no form for goes to the numpy
kernel: rotation inside the kernel, and arrays that are not contiguous. Counterpart: TVM's
attention kernels for the CPU.

Examples
--------
>>> from relaxlab.runtime.kv.attention import KernelSpec, pick
>>> spec = KernelSpec(num_qo_heads=1, num_kv_heads=1, qk_head_dim=16)
>>> kernel = pick("paged_decode", spec, "llvm")
>>> pages = np.ones((1, 2, 1, 16, 16), "float32")
>>> index = lambda *x: np.array(x, "int32")
>>> o, lse = np.empty((1, 1, 16), "float32"), np.empty((1, 1), "float32")
>>> q = np.zeros((1, 1, 16), "float32")
>>> kernel(q, pages, index(0, 1), index(0), index(2), index(0), index(1), o, lse, 0, 1.0, 1e4, 1.0)
>>> o[0, 0, :3].tolist(), lse.tolist()
([1.0, 1.0, 1.0], [[1.0]])
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.codegen.attention.compiled import Compiled, attend, lanes
from relaxlab.codegen.attention.program import CHUNK_WORDS, Layout, rows_of_tile
from relaxlab.codegen.llvm.machine import machine
from relaxlab.runtime.kv.attention import Kernel, KernelSpec, Kind, pick
from relaxlab.runtime.kv.attention.page_table import ChunkPages, PageTable
from relaxlab.runtime.kv.attention.plans import RecentPlans
from relaxlab.runtime.kv.attention.spec import array

__all__ = ["make_kernel"]

Array = NDArray[Any]

_LOG2_E: Final = 1.4426950408889634
_FLOAT32: Final = np.dtype(np.float32)
_MANY: Final = 840
"""Query rows of a long prompt, a multiple of every tile."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """One chunk, before it is written as words; names as in ``CHUNK_WORDS``."""

    first_token: int
    tokens: int
    runs: list[tuple[int, int, int]]
    keys: int
    hi: int
    hi_step: int = 0
    lo: int = 0
    lo_step: int = 0
    bias: int = 0
    bias_start: int = 0
    bias_keys: int = 0


@dataclass(frozen=True, slots=True)
class _Plan:
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


def _plan(layout: Layout, chunks: Sequence[_Chunk], biases: Array) -> _Plan:
    """Write chunks as words, those with enough query rows for wide tiles and the others."""
    wide = rows_of_tile(layout, machine().host, rows=_MANY)
    narrow = rows_of_tile(layout, machine().host, rows=layout.group)
    runs: list[tuple[int, int, int]] = []
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
    return _Plan(parts, table, pitch, max(wide, narrow), biases, [])


class _Compiled:
    """What the compiled kernels share."""

    kind: Kind

    def __init__(self, spec: KernelSpec, kind: Kind) -> None:
        self.spec = spec
        self.portable: Kernel = pick(kind, spec, "numpy")
        self._plans = RecentPlans()

    def run(
        self, plan: _Plan, q: Array, k: Array, v: Array, output: Array, lse: Array, scale: float
    ) -> None:
        """Attend as planned."""
        if q.dtype is not _FLOAT32:
            q = q.astype(np.float32)
        if not q.flags.c_contiguous:
            q = np.ascontiguousarray(q)
        direct = output.dtype is _FLOAT32 and output.flags.c_contiguous
        out = output if direct else np.empty(output.shape, np.float32)
        sums = lse if lse.flags.c_contiguous else np.empty(lse.shape, np.float32)
        free = plan.scratch
        scratch = free.pop() if free else np.empty(plan.rows * plan.pitch, np.float32)
        factor = scale * _LOG2_E
        for function, chunks in plan.parts:
            function(
                q,
                k,
                v,
                plan.runs,
                chunks,
                len(chunks),
                plan.biases,
                out,
                sums,
                scratch,
                plan.pitch,
                factor,
            )
        free.append(scratch)
        if not direct:
            output[...] = out
        if sums is not lse:
            lse[...] = sums


_NO_BIAS: Final = np.zeros(1, np.float32)


def _paged_layout(q: Array, pages: Array) -> Layout:
    _, _, heads, size, dim = pages.shape
    steps = {"k_row": dim, "k_head": size * dim, "v_row": dim, "v_head": size * dim}
    group = q.shape[1] // heads
    return Layout(heads, group, dim, dim, **steps, dtype=str(pages.dtype))


def _page_runs(chunk: ChunkPages, shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
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


class PagedDecode(_Compiled):
    """One query per chunk over pages."""

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
        q, pages, output, lse = array(q), array(pages), array(output), array(lse)
        if rotary_mode or not pages.flags.c_contiguous:
            self.portable(
                q,
                pages,
                page_indptr,
                page_values,
                length_info,
                k_rope_pos_offset,
                q_rope_position,
                output,
                lse,
                rotary_mode,
                rope_scale,
                rope_theta,
                sm_scale,
            )
            return
        indptr, values, info = array(page_indptr), array(page_values), array(length_info)

        def make() -> _Plan:
            table: PageTable = PageTable.of(indptr, values, info, pages.shape[3])
            chunks = [
                _Chunk(i, 1, _page_runs(c, pages.shape), c.count, c.count)
                for i, c in enumerate(table.chunks)
            ]
            return _plan(_paged_layout(q, pages), chunks, _NO_BIAS)

        plan = self._plans.get(make, (indptr, values, info), (q.shape, pages.shape, pages.dtype))
        self.run(plan, q, pages, pages, output, lse, sm_scale)


class PagedPrefill(_Compiled):
    """Many queries per chunk over pages."""

    def __init__(self, spec: KernelSpec, kind: Kind) -> None:
        super().__init__(spec, kind)
        self.window = spec.layer_window if kind == "paged_prefill_sliding" else 0

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
        q, pages, output, lse = array(q), array(pages), array(output), array(lse)
        if rotary_mode or not pages.flags.c_contiguous:
            self.portable(
                q,
                q_indptr,
                pages,
                page_indptr,
                page_values,
                length_info,
                k_rope_pos_offset,
                q_rope_position,
                output,
                lse,
                causal,
                rotary_mode,
                rope_scale,
                rope_theta,
                sm_scale,
            )
            return
        tables = (array(q_indptr), array(page_indptr), array(page_values), array(length_info))

        def make() -> _Plan:
            table: PageTable = PageTable.of(*tables[1:], pages.shape[3])
            starts = tables[0].tolist()
            chunks = [
                _chunk_of(
                    (starts[i], starts[i + 1]),
                    _page_runs(c, pages.shape),
                    c.count,
                    causal=bool(causal),
                    window=self.window,
                )
                for i, c in enumerate(table.chunks)
            ]
            return _plan(_paged_layout(q, pages), chunks, _NO_BIAS)

        rest = (q.shape, pages.shape, pages.dtype, bool(causal))
        self.run(self._plans.get(make, tables, rest), q, pages, pages, output, lse, sm_scale)


def _chunk_of(
    tokens: tuple[int, int],
    runs: list[tuple[int, int, int]],
    keys: int,
    *,
    causal: bool,
    window: int = 0,
) -> _Chunk:
    first, count = tokens[0], tokens[1] - tokens[0]
    if not causal:
        return _Chunk(first, count, runs, keys, keys)
    if window:
        # row t sees the last window - 1 - t keys
        return _Chunk(first, count, runs, keys, keys, 0, keys - window + 1, 1)
    return _Chunk(first, count, runs, keys, keys - count + 1, 1)


class PagedPrefillTree(_Compiled):
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
        q, pages, output, lse = array(q), array(pages), array(output), array(lse)
        if rotary_mode or not pages.flags.c_contiguous:
            self.portable(
                q,
                q_indptr,
                pages,
                page_indptr,
                page_values,
                length_info,
                k_rope_pos_offset,
                q_rope_position,
                output,
                lse,
                rotary_mode,
                rope_scale,
                rope_theta,
                sm_scale,
                tree_order_indptr,
                tree_order,
            )
            return
        tables = (array(q_indptr), array(page_indptr), array(page_values), array(length_info))
        trees = (array(tree_order_indptr), array(tree_order))

        def make() -> _Plan:
            table: PageTable = PageTable.of(*tables[1:], pages.shape[3])
            found = [(_page_runs(c, pages.shape), c.count) for c in table.chunks]
            chunks, biases = _tree_chunks(tables[0].tolist(), found, *trees)
            return _plan(_paged_layout(q, pages), chunks, biases)

        rest = (q.shape, pages.shape, pages.dtype)
        plan = self._plans.get(make, (*tables, *trees), rest)
        self.run(plan, q, pages, pages, output, lse, sm_scale)


def _tree_chunks(
    starts: list[int],
    found: list[tuple[list[tuple[int, int, int]], int]],
    order_indptr: Array,
    order: Array,
) -> tuple[list[_Chunk], Array]:
    """Return chunks that end with trees, and what is added to the scores of the nodes."""
    bounds, nodes = order_indptr.tolist(), order.reshape(-1, 2)
    chunks, biases, size = [], [_NO_BIAS], 1
    for i, (runs, keys) in enumerate(found):
        tokens = starts[i + 1] - starts[i]
        tree = nodes[bounds[i] : bounds[i + 1]]
        count = len(tree)
        visits = tree[count - tokens :, 0, None] if count else tree[:, :1]
        seen = (tree[:, 0] <= visits) & (visits < tree[:, 1])
        bias = np.where(seen, np.float32(0), np.float32(-np.inf)).ravel()
        chunks.append(
            _Chunk(starts[i], tokens, runs, keys, keys, 0, 0, 0, size, keys - count, count)
        )
        biases.append(bias)
        size += len(bias)
    return chunks, np.concatenate(biases)


def _ragged_layout(q: Array, k: Array, v: Array) -> Layout:
    heads, dim, v_dim = k.shape[1], k.shape[2], v.shape[2]
    steps = {"k_row": heads * dim, "k_head": dim, "v_row": heads * v_dim, "v_head": v_dim}
    return Layout(heads, q.shape[1] // heads, dim, v_dim, **steps, dtype=str(k.dtype))


def _ragged_runs(kv_starts: list[int], k: Array, v: Array) -> list[list[tuple[int, int, int]]]:
    k_step, v_step = k.shape[1] * k.shape[2], v.shape[1] * v.shape[2]
    return [[(first * k_step, first * v_step, last - first)] for first, last in pairwise(kv_starts)]


def _fits(k: Array, v: Array) -> bool:
    """Whether new keys and values can be read where they are."""
    widths = (k.shape[2], v.shape[2])
    return k.flags.c_contiguous and v.flags.c_contiguous and all(w % 4 == 0 for w in widths)


class RaggedPrefill(_Compiled):
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
        q, k, v, output, lse = array(q), array(k), array(v), array(output), array(lse)
        if rotary_mode or not _fits(k, v):
            self.portable(
                q,
                q_indptr,
                k,
                v,
                kv_indptr,
                q_rope_position,
                k_rope_pos_offset,
                output,
                lse,
                causal,
                rotary_mode,
                rope_scale,
                rope_theta,
                sm_scale,
            )
            return
        tables = (array(q_indptr), array(kv_indptr))

        def make() -> _Plan:
            starts, kv_starts = tables[0].tolist(), tables[1].tolist()
            chunks = [
                _chunk_of((starts[i], starts[i + 1]), runs, runs[0][2], causal=bool(causal))
                for i, runs in enumerate(_ragged_runs(kv_starts, k, v))
            ]
            return _plan(_ragged_layout(q, k, v), chunks, _NO_BIAS)

        rest = (q.shape, k.shape, v.shape, k.dtype, bool(causal))
        self.run(self._plans.get(make, tables, rest), q, k, v, output, lse, sm_scale)


class RaggedPrefillTree(_Compiled):
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
        q, k, v, output, lse = array(q), array(k), array(v), array(output), array(lse)
        if rotary_mode or not _fits(k, v):
            self.portable(
                q,
                q_indptr,
                k,
                v,
                kv_indptr,
                q_rope_position,
                mn_indptr,
                mask,
                output,
                lse,
                rotary_mode,
                rope_scale,
                rope_theta,
                sm_scale,
            )
            return
        tables = (array(q_indptr), array(kv_indptr), array(mn_indptr), array(mask))

        def make() -> _Plan:
            runs = _ragged_runs(tables[1].tolist(), k, v)
            found = [(one, one[0][2]) for one in runs]
            chunks, biases = _tree_chunks(tables[0].tolist(), found, *tables[2:])
            return _plan(_ragged_layout(q, k, v), chunks, biases)

        rest = (q.shape, k.shape, v.shape, k.dtype)
        self.run(self._plans.get(make, tables, rest), q, k, v, output, lse, sm_scale)


class MLAPrefill(_Compiled):
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
        q, pages, output, lse = array(q), array(pages), array(output), array(lse)
        dim, v_dim = pages.shape[2], output.shape[2]
        if dim % 4 or v_dim % 4 or not pages.flags.c_contiguous:
            self.portable(
                q,
                q_indptr,
                pages,
                page_indptr,
                page_values,
                length_info,
                output,
                lse,
                causal,
                sm_scale,
            )
            return
        tables = (array(q_indptr), array(page_indptr), array(page_values), array(length_info))

        def make() -> _Plan:
            table: PageTable = PageTable.of(*tables[1:], pages.shape[1])
            starts = tables[0].tolist()
            chunks = [
                _chunk_of(
                    (starts[i], starts[i + 1]),
                    _page_runs(c, pages.shape),
                    c.count,
                    causal=bool(causal),
                )
                for i, c in enumerate(table.chunks)
            ]
            dtype = str(pages.dtype)
            layout = Layout(1, q.shape[1], dim, v_dim, dim, 0, dim, 0, dtype)
            return _plan(layout, chunks, _NO_BIAS)

        rest = (q.shape, pages.shape, pages.dtype, output.shape, bool(causal))
        self.run(self._plans.get(make, tables, rest), q, pages, pages, output, lse, sm_scale)


_KERNELS: Final[dict[Kind, type[_Compiled]]] = {
    "mla_prefill": MLAPrefill,
    "paged_decode": PagedDecode,
    "paged_decode_sliding": PagedDecode,
    "paged_prefill": PagedPrefill,
    "paged_prefill_sliding": PagedPrefill,
    "paged_prefill_tree": PagedPrefillTree,
    "ragged_prefill": RaggedPrefill,
    "ragged_prefill_tree": RaggedPrefillTree,
}


def make_kernel(kind: Kind, spec: KernelSpec) -> Kernel | None:
    """Return a compiled kernel; None if vectors would be shorter than four elements."""
    layout = Layout(1, 1, spec.qk_head_dim, spec.v_head_dim, 0, 0, 0, 0)
    if spec.dtype not in ("float32", "float16", "bfloat16") or lanes(layout) < 4:
        return None
    kernel: Any = _KERNELS[kind](spec, kind)
    found: Kernel = kernel
    return found
