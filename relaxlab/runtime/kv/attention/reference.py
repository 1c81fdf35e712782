"""Attention, page by page: the living definition of every attention kernel.

Slow and obvious on purpose: loops over sequences, heads, query rows and pages, and one running
softmax that is merged page after page. What it computes is what the other families must compute.

For a query row and the keys it sees, ``s_i`` is the scaled score times log2(e). The running state
starts with maximum ``m = -5e4``, denominator ``d = 1`` and output 0, so a row that sees nothing
gives zeros and the log-sum-exp -5e4. Log-sum-exps are base 2. Scores and sums are float32; rotated
queries and keys, and the output, are rounded to the cache's element type.

Counterpart: TVM's attention kernels for the CPU.

Examples
--------
>>> state = RunningSoftmax(2)
>>> state.add(np.array([0.0, 1.0], "float32"), np.array([[1.0, 0.0], [0.0, 1.0]], "float32"))
>>> o, lse = state.result()
>>> (o * 100).round().tolist(), round(float(lse), 3)  # the start state counts nothing beside them
([33.0, 67.0], 1.585)
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.runtime.kv.attention.spec import Kernel, KernelSpec, array

__all__ = [
    "RunningSoftmax",
    "make_mla_prefill",
    "make_paged_decode",
    "make_paged_prefill",
    "make_paged_prefill_tree",
    "make_ragged_prefill",
    "make_ragged_prefill_tree",
]

Array = NDArray[Any]
Sees = Callable[[int, int], bool]

START: Final = -5.0e4
_LOG2_E: Final = math.log2(math.e)


class RunningSoftmax:
    """Output and log-sum-exp of one query row over keys that come a page at a time."""

    def __init__(self, features: int) -> None:
        self._maximum = np.float32(START)
        self._denominator = np.float32(1.0)
        self._sum = np.zeros(features, np.float32)

    def add(self, scores: Array, values: Array) -> None:
        """Take in keys by their scores (base 2) ``[n]`` and values ``[n, features]``."""
        if not len(scores):
            return
        maximum = max(self._maximum, scores.max())
        shrink = np.exp2(self._maximum - maximum)
        weights = np.exp2(scores - maximum)
        self._denominator = self._denominator * shrink + weights.sum()
        self._sum = self._sum * shrink + weights @ values
        self._maximum = maximum

    def result(self) -> tuple[Array, np.float32]:
        """Return the output ``[features]`` and the log-sum-exp, base 2."""
        return self._sum / self._denominator, self._maximum + np.log2(self._denominator)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The keys of one chunk: its pages, and which place of them each key is in."""

    pages: list[int]
    last_page_len: int
    offset: int = 0
    sink: int = 0

    def blocks(self, page_size: int) -> Iterator[tuple[int, list[int], list[int]]]:
        """Yield page id, the rows used in it, and the numbers of the keys there."""
        count = self.count(page_size)
        for number, page in enumerate(self.pages):
            rows, keys = [], []
            for key in range(count):
                place = key if key < self.sink else key - self.sink + self.offset
                if place // page_size == number:
                    rows.append(place % page_size)
                    keys.append(key)
            yield page, rows, keys

    def count(self, page_size: int) -> int:
        """Return the number of keys."""
        if not self.pages:
            return 0
        return (len(self.pages) - 1) * page_size + self.last_page_len - self.offset + self.sink


def _chunk(number: int, page_indptr: Array, page_values: Array, length_info: Array) -> _Chunk:
    pages = page_values[page_indptr[number] : page_indptr[number + 1]].tolist()
    if length_info.ndim == 1:
        return _Chunk(pages, int(length_info[number]))
    return _Chunk(pages, *(int(row[number]) for row in length_info))


class _Turner:
    """Rotates rows as attention kernels do in inline mode; does nothing in other modes."""

    def __init__(
        self, spec: KernelSpec, dtype: Any, rotary_mode: int, scale: float, theta: float
    ) -> None:
        self._rope = spec.inline_rope if rotary_mode else None
        self._dtype, self._scale, self._theta = dtype, scale, theta

    def __call__(self, row: Array, position: int) -> Array:
        """Return a query or key ``[features]`` at its position, as float32."""
        if self._rope is None:
            return row.astype(np.float32)
        cos, sin = self._rope.angles(np.array(position), theta=self._theta, scale=self._scale)
        x = row.astype(np.float32)
        out = np.empty_like(x)
        half = len(x) // 2
        interleaved = self._rope.interleaved(inline=True)
        for d in range(len(x)):
            if interleaved:
                partner = -x[d + 1] if d % 2 == 0 else x[d - 1]
            else:
                partner = -x[d + half] if d < half else x[d - half]
            out[d] = x[d] * cos[d] + partner * sin[d]
        return out.astype(self._dtype).astype(np.float32)


def _scores(q: Array, keys: list[Array], sm_scale: float) -> Array:
    scale = np.float32(sm_scale * _LOG2_E)
    return np.array([np.dot(q, key) * scale for key in keys], np.float32)


def _paged(
    turn: _Turner,
    chunk: _Chunk,
    sees: Sees,
    row: int,
    q: Array,
    q_position: int,
    k_offset: int,
    pages: Array,
    head: int,
    sm_scale: float,
) -> tuple[Array, np.float32]:
    """Attend from one query row and head to the keys of a chunk, a page at a time."""
    state = RunningSoftmax(pages.shape[-1])
    turned = turn(q, q_position)
    for page, rows, keys in chunk.blocks(pages.shape[3]):
        seen = [(r, i) for r, i in zip(rows, keys, strict=True) if sees(row, i)]
        k = [turn(pages[page, 0, head, r], k_offset + i) for r, i in seen]
        v = pages[page, 1, head][[r for r, _ in seen]].astype(np.float32)
        state.add(_scores(turned, k, sm_scale), v)
    return state.result()


def make_paged_prefill(spec: KernelSpec, *, sliding: bool = False) -> Kernel:
    """Return the kernel of many queries per chunk over pages."""
    window = spec.layer_window

    def paged_prefill(
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
        q, pages, output, lse = map(array, (q, pages, output, lse))
        starts, offsets, positions = map(array, (q_indptr, k_rope_pos_offset, q_rope_position))
        tables = tuple(map(array, (page_indptr, page_values, length_info)))
        turn = _Turner(spec, q.dtype, rotary_mode, rope_scale, rope_theta)
        group = q.shape[1] // pages.shape[2]
        for b in range(len(starts) - 1):
            chunk = _chunk(b, *tables)
            first, rows = int(starts[b]), int(starts[b + 1] - starts[b])
            n = chunk.count(pages.shape[3])

            def sees(row: int, key: int, n: int = n, rows: int = rows) -> bool:
                if not causal:
                    return True
                if sliding and window:
                    return key >= n - max(window - row - 1, 0)
                return key < n - rows + row + 1

            for r in range(rows):
                t = first + r
                for h in range(q.shape[1]):
                    output[t, h], lse[t, h] = _paged(
                        turn,
                        chunk,
                        sees,
                        r,
                        q[t, h],
                        int(positions[t]),
                        int(offsets[b]),
                        pages,
                        h // group,
                        sm_scale,
                    )

    return paged_prefill


def make_paged_decode(spec: KernelSpec, *, sliding: bool = False) -> Kernel:
    """Return the kernel of one query per chunk over pages."""
    prefill = make_paged_prefill(spec, sliding=sliding)

    def paged_decode(
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
        one_each = np.arange(len(array(page_indptr)), dtype=np.int32)
        prefill(
            q,
            one_each,
            pages,
            page_indptr,
            page_values,
            length_info,
            k_rope_pos_offset,
            q_rope_position,
            output,
            lse,
            0,
            rotary_mode,
            rope_scale,
            rope_theta,
            sm_scale,
        )

    return paged_decode


def make_paged_prefill_tree(spec: KernelSpec) -> Kernel:
    """Return the kernel of tree queries over pages that end with the nodes of the tree."""

    def paged_prefill_tree(
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
        q, pages, output, lse = map(array, (q, pages, output, lse))
        starts, offsets, positions = map(array, (q_indptr, k_rope_pos_offset, q_rope_position))
        tables = tuple(map(array, (page_indptr, page_values, length_info)))
        order_starts, order = array(tree_order_indptr), array(tree_order).reshape(-1, 2)
        turn = _Turner(spec, q.dtype, rotary_mode, rope_scale, rope_theta)
        group = q.shape[1] // pages.shape[2]
        for b in range(len(starts) - 1):
            chunk = _chunk(b, *tables)
            first, rows = int(starts[b]), int(starts[b + 1] - starts[b])
            nodes = order[order_starts[b] : order_starts[b + 1]]
            before = chunk.count(pages.shape[3]) - len(nodes)

            def sees(
                row: int, key: int, before: int = before, nodes: Array = nodes, rows: int = rows
            ) -> bool:
                if key < before or not len(nodes):
                    return True
                visit = nodes[len(nodes) - rows + row, 0]
                return bool(nodes[key - before, 0] <= visit < nodes[key - before, 1])

            for r in range(rows):
                t = first + r
                for h in range(q.shape[1]):
                    output[t, h], lse[t, h] = _paged(
                        turn,
                        chunk,
                        sees,
                        r,
                        q[t, h],
                        int(positions[t]),
                        int(offsets[b]),
                        pages,
                        h // group,
                        sm_scale,
                    )

    return paged_prefill_tree


def _ragged(
    turn: _Turner,
    tensors: tuple[Array, Array, Array, Array, Array],
    q_rows: range,
    kv_rows: range,
    sees: Sees,
    q_positions: Array,
    k_positions: Array,
    sm_scale: float,
) -> None:
    """Attend from the queries of one sequence to its keys, both of this round."""
    q, k, v, output, lse = tensors
    group = q.shape[1] // k.shape[1]
    for r, t in enumerate(q_rows):
        for h in range(q.shape[1]):
            seen = [i for i in range(len(kv_rows)) if sees(r, i)]
            keys = [turn(k[kv_rows[i], h // group], int(k_positions[i])) for i in seen]
            values = v[[kv_rows[i] for i in seen], h // group].astype(np.float32)
            state = RunningSoftmax(v.shape[-1])
            state.add(_scores(turn(q[t, h], int(q_positions[t])), keys, sm_scale), values)
            output[t, h], lse[t, h] = state.result()


def make_ragged_prefill(spec: KernelSpec) -> Kernel:
    """Return the kernel of new queries over the new keys of the same sequence."""

    def ragged_prefill(
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
        q, k, v, output, lse = map(array, (q, k, v, output, lse))
        starts, kv_starts = array(q_indptr), array(kv_indptr)
        positions, offsets = array(q_rope_position), array(k_rope_pos_offset)
        turn = _Turner(spec, q.dtype, rotary_mode, rope_scale, rope_theta)
        for b in range(len(starts) - 1):
            q_rows = range(int(starts[b]), int(starts[b + 1]))
            kv_rows = range(int(kv_starts[b]), int(kv_starts[b + 1]))
            ahead = len(kv_rows) - len(q_rows)

            def sees(row: int, key: int, ahead: int = ahead) -> bool:
                return not causal or key < ahead + row + 1

            tensors = (q, k, v, output, lse)
            k_positions = int(offsets[b]) + np.arange(len(kv_rows))
            _ragged(turn, tensors, q_rows, kv_rows, sees, positions, k_positions, sm_scale)

    return ragged_prefill


def make_ragged_prefill_tree(spec: KernelSpec) -> Kernel:
    """Return the kernel of tree queries over the nodes of the same tree."""

    def ragged_prefill_tree(
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
        q, k, v, output, lse = map(array, (q, k, v, output, lse))
        starts, kv_starts, order_starts = map(array, (q_indptr, kv_indptr, mn_indptr))
        order, positions = array(mask).reshape(-1, 2), array(q_rope_position)
        turn = _Turner(spec, q.dtype, rotary_mode, rope_scale, rope_theta)
        for b in range(len(starts) - 1):
            q_rows = range(int(starts[b]), int(starts[b + 1]))
            kv_rows = range(int(kv_starts[b]), int(kv_starts[b + 1]))
            nodes = order[order_starts[b] : order_starts[b + 1]]

            def sees(row: int, key: int, nodes: Array = nodes) -> bool:
                return bool(nodes[key, 0] <= nodes[row, 0] < nodes[key, 1])

            # a node is rotated at the position of its query, which the tree's shape decides
            tensors = (q, k, v, output, lse)
            _ragged(turn, tensors, q_rows, kv_rows, sees, positions, positions[kv_rows], sm_scale)

    return ragged_prefill_tree


def make_mla_prefill(spec: KernelSpec) -> Kernel:
    """Return the kernel over latent pages: one row is the key of all heads, and their value."""

    def mla_prefill(
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
        q, pages, output, lse = map(array, (q, pages, output, lse))
        starts = array(q_indptr)
        tables = tuple(map(array, (page_indptr, page_values, length_info)))
        size, features = pages.shape[1], output.shape[-1]
        for b in range(len(starts) - 1):
            chunk = _chunk(b, *tables)
            first, rows, n = int(starts[b]), int(starts[b + 1] - starts[b]), chunk.count(size)
            for r in range(rows):
                for h in range(q.shape[1]):
                    state = RunningSoftmax(features)
                    for page, places, keys in chunk.blocks(size):
                        seen = [
                            place
                            for place, i in zip(places, keys, strict=True)
                            if not causal or i < n - rows + r + 1
                        ]
                        block = pages[page][seen].astype(np.float32)
                        query = q[first + r, h].astype(np.float32)
                        state.add(_scores(query, list(block), sm_scale), block[:, :features])
                    output[first + r, h], lse[first + r, h] = state.result()

    return mla_prefill
