"""The llvm family's attention kernels: plans in Python, everything else in machine code.

A plan turns the index arrays of a round into runs and chunks (see ``program.py``), once for all
layers; a call passes arrays. Pages that must be rotated first, or that are not contiguous, are
copied (see ``gather.py``). Heads whose sizes no vector divides go to the numpy kernel.
Counterpart: TVM's attention kernels for the CPU.

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

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.codegen.attention.compiled import lanes
from relaxlab.codegen.attention.gather import PageGatherer
from relaxlab.codegen.attention.plan import (
    NO_BIAS,
    Columns,
    PageLayout,
    Plan,
    make_plan,
    page_runs,
    ragged_runs,
    tree_biases,
    visible,
)
from relaxlab.codegen.attention.program import Layout
from relaxlab.codegen.attention.rotary import CompiledSplitRotary, lanes_for
from relaxlab.runtime.kv.attention import Kernel, KernelSpec, Kind, pick
from relaxlab.runtime.kv.attention.checks import check_indptr, check_page_table, check_rows
from relaxlab.runtime.kv.attention.plans import RecentPlans
from relaxlab.runtime.kv.attention.spec import array

__all__ = ["make_kernel"]

Array = NDArray[Any]

_LOG2_E: Final = 1.4426950408889634
_FLOAT32: Final = np.dtype(np.float32)


def _paged_layout(q: Array, pages: Array) -> Layout:
    _, _, heads, size, dim = pages.shape
    steps = {"k_row": dim, "k_head": size * dim, "v_row": dim, "v_head": size * dim}
    group = q.shape[1] // heads
    return Layout(heads, group, dim, dim, **steps, dtype=str(pages.dtype))


def _ragged_layout(q: Array, k: Array, v: Array) -> Layout:
    heads, dim, v_dim = k.shape[1], k.shape[2], v.shape[2]
    steps = {"k_row": heads * dim, "k_head": dim, "v_row": heads * v_dim, "v_head": v_dim}
    return Layout(heads, q.shape[1] // heads, dim, v_dim, **steps, dtype=str(k.dtype))


def _paged_columns(
    tables: tuple[Array, Array, Array, Array], pages: Array
) -> tuple[Array, Columns]:
    """Return the runs, and the columns of chunks of many queries."""
    starts = tables[0].astype(np.int64)
    runs, begins, keys = page_runs(*tables[1:], PageLayout.of(pages))
    return runs, {
        "first_token": starts[:-1],
        "tokens": np.diff(starts),
        "first_run": begins[:-1],
        "last_run": begins[1:],
        "keys": keys,
    }


def _ragged_columns(q_indptr: Array, kv_indptr: Array, k: Array, v: Array) -> tuple[Array, Columns]:
    """Return the runs, and the columns of sequences that attend to their own new keys."""
    starts = q_indptr.astype(np.int64)
    runs = ragged_runs(kv_indptr, k, v)
    number = np.arange(len(runs))
    return runs, {
        "first_token": starts[:-1],
        "tokens": np.diff(starts),
        "first_run": number,
        "last_run": number + 1,
        "keys": runs[:, 2],
    }


class _Compiled:
    """What the compiled kernels share."""

    def __init__(self, spec: KernelSpec, kind: Kind) -> None:
        self.portable: Kernel = pick(kind, spec, "numpy")
        self.gather = PageGatherer(spec)
        self._plans = RecentPlans()

    def run(
        self, plan: Plan, q: Array, k: Array, v: Array, output: Array, lse: Array, scale: float
    ) -> None:
        """Attend as planned."""
        if q.dtype is not _FLOAT32:
            q = q.astype(np.float32)
        if not q.flags.c_contiguous:
            q = np.ascontiguousarray(q)
        direct = output.dtype is _FLOAT32 and output.flags.c_contiguous
        out = output if direct else np.empty(output.shape, np.float32)
        sums = (
            lse
            if lse.dtype is _FLOAT32 and lse.flags.c_contiguous
            else np.empty(lse.shape, np.float32)
        )
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
        indptr, values, info = array(page_indptr), array(page_values), array(length_info)
        if rotary_mode or not pages.flags.c_contiguous:
            turn = self.gather.turns.by(q.dtype, rotary_mode, rope_scale, rope_theta)
            offsets = array(k_rope_pos_offset)
            pages, values = self.gather(pages, indptr, values, info, offsets, turn)
            q = q if turn is None else turn.at(q, array(q_rope_position))

        def make() -> Plan:
            check_rows(q, pages.shape[4], pages.shape[2], output, lse)
            check_page_table(indptr, values, info, pages=len(pages), page_size=pages.shape[3])
            check_indptr("q", np.array([0, len(indptr) - 1]), len(q))
            runs, starts, keys = page_runs(indptr, values, info, PageLayout.of(pages))
            columns: Columns = {
                "first_token": np.arange(len(keys)),
                "tokens": 1,
                "first_run": starts[:-1],
                "last_run": starts[1:],
                "keys": keys,
                "hi": keys,
            }
            return make_plan(_paged_layout(q, pages), runs, columns, NO_BIAS)

        plan = self._plans.get(
            make,
            (indptr, values, info),
            (q.shape, pages.shape, pages.dtype, output.shape, lse.shape),
        )
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
        indptr, values, info = array(page_indptr), array(page_values), array(length_info)
        if rotary_mode or not pages.flags.c_contiguous:
            turn = self.gather.turns.by(q.dtype, rotary_mode, rope_scale, rope_theta)
            offsets = array(k_rope_pos_offset)
            pages, values = self.gather(pages, indptr, values, info, offsets, turn)
            q = q if turn is None else turn.at(q, array(q_rope_position))
        tables = (array(q_indptr), indptr, values, info)

        def make() -> Plan:
            check_rows(q, pages.shape[4], pages.shape[2], output, lse)
            check_indptr("q_indptr", tables[0], len(q))
            check_page_table(*tables[1:], pages=len(pages), page_size=pages.shape[3])
            runs, columns = _paged_columns(tables, pages)
            tokens, keys = columns["tokens"], np.asarray(columns["keys"])
            columns |= visible(tokens, keys, causal=bool(causal), window=self.window)
            return make_plan(_paged_layout(q, pages), runs, columns, NO_BIAS)

        rest = (q.shape, pages.shape, pages.dtype, output.shape, lse.shape, bool(causal))
        self.run(self._plans.get(make, tables, rest), q, pages, pages, output, lse, sm_scale)


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
        indptr, values, info = array(page_indptr), array(page_values), array(length_info)
        if rotary_mode or not pages.flags.c_contiguous:
            turn = self.gather.turns.by(q.dtype, rotary_mode, rope_scale, rope_theta)
            offsets = array(k_rope_pos_offset)
            pages, values = self.gather(pages, indptr, values, info, offsets, turn)
            q = q if turn is None else turn.at(q, array(q_rope_position))
        tables = (array(q_indptr), indptr, values, info)
        trees = (array(tree_order_indptr), array(tree_order))

        def make() -> Plan:
            check_rows(q, pages.shape[4], pages.shape[2], output, lse)
            check_indptr("q_indptr", tables[0], len(q))
            check_page_table(*tables[1:], pages=len(pages), page_size=pages.shape[3])
            runs, columns = _paged_columns(tables, pages)
            tokens, keys = np.asarray(columns["tokens"]), np.asarray(columns["keys"])
            more, biases = tree_biases(tokens, keys, *trees)
            return make_plan(_paged_layout(q, pages), runs, columns | more, biases)

        rest = (q.shape, pages.shape, pages.dtype, output.shape, lse.shape)
        plan = self._plans.get(make, (*tables, *trees), rest)
        self.run(plan, q, pages, pages, output, lse, sm_scale)


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
        if k.shape[2] % 4 or v.shape[2] % 4:
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
        turn = self.gather.turns.by(q.dtype, rotary_mode, rope_scale, rope_theta)
        if turn is not None:
            positions = array(q_rope_position)
            q = turn.at(q, positions)
            starts = tables[1]
            steps = np.arange(len(k)) - np.repeat(starts[:-1], np.diff(starts))
            k = turn.at(k, steps + np.repeat(array(k_rope_pos_offset), np.diff(starts)))
        k, v = np.ascontiguousarray(k), np.ascontiguousarray(v)

        def make() -> Plan:
            check_rows(q, k.shape[2], k.shape[1], output, lse)
            check_indptr("q_indptr", tables[0], len(q))
            check_indptr("kv_indptr", tables[1], min(len(k), len(v)))
            runs, columns = _ragged_columns(*tables, k, v)
            tokens, keys = columns["tokens"], np.asarray(columns["keys"])
            columns |= visible(tokens, keys, causal=bool(causal))
            return make_plan(_ragged_layout(q, k, v), runs, columns, NO_BIAS)

        rest = (q.shape, k.shape, v.shape, k.dtype, output.shape, lse.shape, bool(causal))
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
        if k.shape[2] % 4 or v.shape[2] % 4:
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
        turn = self.gather.turns.by(q.dtype, rotary_mode, rope_scale, rope_theta)
        if turn is not None:
            positions = array(q_rope_position)
            q = turn.at(q, positions)
            k = turn.at(k, positions)
        k, v = np.ascontiguousarray(k), np.ascontiguousarray(v)

        def make() -> Plan:
            check_rows(q, k.shape[2], k.shape[1], output, lse)
            check_indptr("q_indptr", tables[0], len(q))
            check_indptr("kv_indptr", tables[1], min(len(k), len(v)))
            runs, columns = _ragged_columns(*tables[:2], k, v)
            tokens, keys = np.asarray(columns["tokens"]), np.asarray(columns["keys"])
            more, biases = tree_biases(tokens, keys, *tables[2:])
            return make_plan(_ragged_layout(q, k, v), runs, columns | more, biases)

        rest = (q.shape, k.shape, v.shape, k.dtype, output.shape, lse.shape)
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
        if dim % 4 or v_dim % 4:
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
        pages = np.ascontiguousarray(pages)
        tables = (array(q_indptr), array(page_indptr), array(page_values), array(length_info))

        def make() -> Plan:
            check_rows(q, dim, 1, output, lse)
            check_indptr("q_indptr", tables[0], len(q))
            check_page_table(*tables[1:], pages=len(pages), page_size=pages.shape[1])
            runs, columns = _paged_columns(tables, pages)
            tokens, keys = columns["tokens"], np.asarray(columns["keys"])
            columns |= visible(tokens, keys, causal=bool(causal))
            layout = Layout(1, q.shape[1], dim, v_dim, dim, 0, dim, 0, str(pages.dtype))
            return make_plan(layout, runs, columns, NO_BIAS)

        rest = (q.shape, pages.shape, pages.dtype, output.shape, lse.shape, bool(causal))
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
    if kind == "split_rotary":
        rope = spec.rope
        fits = rope is not None and lanes_for(rope.head_dim, rope.features) >= 4
        return CompiledSplitRotary(spec) if fits else None
    layout = Layout(1, 1, spec.qk_head_dim, spec.v_head_dim, 0, 0, 0, 0)
    if spec.dtype not in ("float32", "float16", "bfloat16") or lanes(layout) < 4:
        return None
    kernel: Any = _KERNELS[kind](spec, kind)
    found: Kernel = kernel
    return found
