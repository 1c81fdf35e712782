"""Every family computes a dense masked formula, on pages that are NaN where nothing is stored."""

from contextlib import nullcontext

import numpy as np
import pytest

from relaxlab.codegen.attention import is_available
from relaxlab.errors import InternalError
from relaxlab.runtime.kv.attention import FAMILIES, KINDS, Family, KernelSpec, default_family, pick
from relaxlab.runtime.kv.exact import exact
from relaxlab.runtime.kv.rope import Rope
from tests.runtime.kv.dense_attention import (
    DTYPES,
    Pool,
    agree,
    ancestors,
    causal,
    dense,
    index,
    outputs,
    scale_of,
)

SIZE = 4  # of a page
NONE = (0, 1.0, 1e4)  # rotary mode, scale, base
GROUPS = [1, 2, 3, 6, 7]
#: two pages less one, two pages, ... and lengths around one page
LENGTHS = [1, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE - 1, 2 * SIZE, 2 * SIZE + 1]


@pytest.fixture(params=FAMILIES.names())
def family(request):
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def spec_of(heads, kv_heads, dim, dtype="float32", **rest):
    return KernelSpec(heads, kv_heads, dim, page_size=SIZE, dtype=dtype, **rest)


def stacked(parts):
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


# ---- decode ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", GROUPS)
def test_decode_of_a_batch_of_all_lengths(family, rng, group, dtype):
    pool = Pool(rng, 2, 8, SIZE, dtype)
    lengths = [*LENGTHS, 0, 5]
    kept = [pool.add(n) for n in lengths]
    q = pool.random(len(lengths), 2 * group, 8)
    zeros = np.zeros(len(lengths), "int32")
    got = outputs(q)
    kernel = pick("paged_decode", spec_of(2 * group, 2, 8, dtype), family)
    kernel(q, pool.pages, *pool.tables(), zeros, zeros, *got, *NONE, scale_of(8))
    want = stacked(
        dense(q[i : i + 1], k, v, np.ones((1, len(k)), bool), scale_of(8))
        for i, (k, v) in enumerate(kept)
    )
    agree(got, want, dtype)


@pytest.mark.parametrize(("window", "sink"), [(4, 1), (5, 2), (6, 0), (9, 5)])
def test_decode_of_a_slid_window_reads_the_sink_and_the_tail(family, rng, window, sink):
    pool = Pool(rng, 1, 8, SIZE)
    kept = [pool.add(window, sink, sink + gap) for gap in range(5)]
    q = pool.random(len(kept), 3, 8)
    zeros, got = np.zeros(len(kept), "int32"), outputs(q)
    kernel = pick("paged_decode_sliding", spec_of(3, 1, 8), family)
    kernel(q, pool.pages, *pool.tables(sliding=True), zeros, zeros, *got, *NONE, 0.3)
    want = stacked(
        dense(q[i : i + 1], k, v, np.ones((1, window), bool), 0.3) for i, (k, v) in enumerate(kept)
    )
    agree(got, want)


def test_decode_of_one_sequence_over_many_pages(family, rng):
    pool = Pool(rng, 3, 16, SIZE)
    k, v = pool.add(4 * 40 - 1)
    q, zero = pool.random(1, 9, 16), index(0)
    got = outputs(q)
    kernel = pick("paged_decode", spec_of(9, 3, 16), family)
    kernel(q, pool.pages, *pool.tables(), zero, zero, *got, *NONE, 0.25)
    agree(got, dense(q, k, v, np.ones((1, len(k)), bool), 0.25))


def test_decode_with_large_and_with_tiny_scores(family, rng):
    pool = Pool(rng, 1, 8, SIZE)
    k, v = pool.add(9)
    q, zero = pool.random(1, 2, 8) * 40, index(0)
    kernel = pick("paged_decode", spec_of(2, 1, 8), family)
    for scale in (0.0, 1e-6, 10.0):
        got = outputs(q)
        kernel(q, pool.pages, *pool.tables(), zero, zero, *got, *NONE, scale)
        spread = np.einsum("hd,kd->hk", q[0].astype(float), k[:, 0].astype(float)) * scale
        weights = np.exp(spread - spread.max(-1, keepdims=True))
        want = (weights / weights.sum(-1, keepdims=True)) @ v[:, 0].astype(float)
        np.testing.assert_allclose(got[0][0], want, rtol=1e-4, atol=1e-4)


def test_what_lies_in_unused_rows_does_not_matter(family, rng):
    pool = Pool(rng, 1, 4, SIZE)
    pool.add(5)
    q, zero = pool.random(1, 1, 4), index(0)
    kernel = pick("paged_decode", spec_of(1, 1, 4), family)
    results = []
    for filler in (np.nan, np.inf, 0.0, 1e30):
        pages = np.where(np.isnan(pool.pages), np.float32(filler), pool.pages)
        got = outputs(q)
        kernel(q, pages, *pool.tables(), zero, zero, *got, *NONE, 1.0)
        results.append(got[0].tobytes() + got[1].tobytes())
    assert len(set(results)) == 1


# ---- prefill ---------------------------------------------------------------------------------


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("is_causal", [0, 1])
def test_ragged_prefill_of_prompts_around_a_page(family, rng, group, is_causal):
    pool = Pool(rng, 2, 8, SIZE)
    starts = np.cumsum([0, *LENGTHS]).astype("int32")
    q, k, v = (pool.random(starts[-1], h, 8) for h in (2 * group, 2, 2))
    zeros = np.zeros(starts[-1], "int32")
    got = outputs(q)
    kernel = pick("ragged_prefill", spec_of(2 * group, 2, 8), family)
    kernel(q, starts, k, v, starts, zeros, zeros, *got, is_causal, *NONE, scale_of(8))
    parts = []
    for first, n in zip(starts, LENGTHS, strict=False):
        rows = slice(first, first + n)
        seen = causal(n, n) if is_causal else np.ones((n, n), bool)
        parts.append(dense(q[rows], k[rows], v[rows], seen, scale_of(8)))
    agree(got, stacked(parts))


def test_ragged_prefill_with_values_of_another_size(family, rng):
    pool = Pool(rng, 2, 8, SIZE)
    q, k, v = pool.random(5, 2, 6), pool.random(5, 2, 6), pool.random(5, 2, 3)
    got, zero = outputs(q, 3), index(0)
    kernel = pick("ragged_prefill", spec_of(2, 2, 6, v_head_dim=3), family)
    kernel(q, index(0, 5), k, v, index(0, 5), np.arange(5), zero, *got, 1, *NONE, 0.4)
    agree(got, dense(q, k, v, causal(5, 5), 0.4))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("is_causal", [0, 1])
def test_paged_prefill_of_chunks(family, rng, group, is_causal, dtype):
    pool = Pool(rng, 2, 8, SIZE, dtype)
    cached, rows = [0, 1, 4, 5, 8, 11], [2, 1, 4, 0, 3, 5]
    kept = [pool.add(n) for n in cached]
    starts = np.cumsum([0, *rows]).astype("int32")
    q = pool.random(starts[-1], 2 * group, 8)
    zeros, got = np.zeros(starts[-1], "int32"), outputs(q)
    kernel = pick("paged_prefill", spec_of(2 * group, 2, 8, dtype), family)
    kernel(q, starts, pool.pages, *pool.tables(), zeros, zeros, *got, is_causal, *NONE, scale_of(8))
    parts = []
    for (k, v), first, n in zip(kept, starts, rows, strict=False):
        seen = causal(n, len(k)) if is_causal else np.ones((n, len(k)), bool)
        parts.append(dense(q[first : first + n], k, v, seen, scale_of(8)))
    agree(got, stacked(parts), dtype)


@pytest.mark.parametrize("keys_to_window", [-1, 0, 1, 5])
@pytest.mark.parametrize("window", [1, 3, 5])
def test_prefill_within_a_layer_window(family, rng, window, keys_to_window):
    """Cached keys w - 1, w, w + 1 and 2 w of a window w; row r sees the last w - r - 1."""
    pool = Pool(rng, 1, 8, SIZE)
    count = max(window + min(keys_to_window, window), 0)
    k, v = pool.add(count)
    rows = window + 2
    q, got = pool.random(rows, 2, 8), outputs(pool.random(rows, 2, 8))
    kernel = pick("paged_prefill_sliding", spec_of(2, 1, 8, layer_window=window), family)
    tables, zeros = pool.tables(sliding=True), np.zeros(rows, "int32")
    kernel(q, index(0, rows), pool.pages, *tables, zeros, zeros, *got, 1, *NONE, 0.3)
    back = count - np.arange(count)  # how many tokens before the first new one
    seen = back[None] <= np.maximum(window - np.arange(rows) - 1, 0)[:, None]
    agree(got, dense(q, k, v, seen, 0.3))


@pytest.mark.parametrize("extra", [-1, 0, 1, 6])
def test_prefill_over_a_slid_sequence_sees_its_whole_window(family, rng, extra):
    window, sink = 6, 2
    pool = Pool(rng, 1, 8, SIZE)
    count = window if extra >= 0 else window - 1
    k, v = pool.add(count, sink, sink + max(extra, 0))
    q = pool.random(3, 2, 8)
    got, zeros = outputs(q), np.zeros(3, "int32")
    kernel = pick("paged_prefill_sliding", spec_of(2, 1, 8), family)
    tables = pool.tables(sliding=True)
    kernel(q, index(0, 3), pool.pages, *tables, zeros, zeros, *got, 0, *NONE, 0.3)
    agree(got, dense(q, k, v, np.ones((3, count), bool), 0.3))


def test_a_long_prompt_in_tiles_is_the_same_prompt(rng):
    pool = Pool(rng, 2, 8, SIZE)
    n = 700  # more scores than fit one tile
    q, k, v = (pool.random(n, h, 8) for h in (6, 2, 2))
    got, zeros = outputs(q), np.zeros(n, "int32")
    kernel = pick("ragged_prefill", spec_of(6, 2, 8), "numpy")
    kernel(q, index(0, n), k, v, index(0, n), zeros, zeros, *got, 1, *NONE, 0.3)
    agree(got, dense(q, k, v, causal(n, n), 0.3))


# ---- trees -----------------------------------------------------------------------------------

TREES = [
    [-1],
    [-1, 0, 1, 2],
    [-1, 0, 0, 1, 1, 2, 2],
    [-1, -1, 0, 1, 0, 3],
    [-1, 0, 1, 0, -1, 4, 2],
]


def test_ragged_trees(family, rng):
    pool = Pool(rng, 2, 8, SIZE)
    lengths = [len(tree) for tree in TREES]
    starts = np.cumsum([0, *lengths]).astype("int32")
    seen, orders = zip(*map(ancestors, TREES), strict=True)
    q, k, v = (pool.random(starts[-1], h, 8) for h in (6, 2, 2))
    got, zeros = outputs(q), np.zeros(starts[-1], "int32")
    kernel = pick("ragged_prefill_tree", spec_of(6, 2, 8), family)
    order = np.concatenate(orders)
    kernel(q, starts, k, v, starts, zeros, starts, order, *got, *NONE, 0.3)
    parts = []
    for first, n, matrix in zip(starts, lengths, seen, strict=False):
        rows = slice(first, first + n)
        parts.append(dense(q[rows], k[rows], v[rows], matrix, 0.3))
    agree(got, stacked(parts))


@pytest.mark.parametrize("group", GROUPS)
def test_paged_trees_behind_a_past(family, rng, group):
    """A tree's last nodes query; its earlier ones, and the past, are keys only."""
    pool = Pool(rng, 2, 8, SIZE)
    pasts, new = [0, 3, 4, 9, 5], [1, 2, 7, 3, 4]
    kept = [pool.add(past + len(tree)) for past, tree in zip(pasts, TREES, strict=True)]
    starts = np.cumsum([0, *new]).astype("int32")
    seen, orders = zip(*map(ancestors, TREES), strict=True)
    bounds = np.cumsum([0, *map(len, TREES)]).astype("int32")
    q = pool.random(starts[-1], 2 * group, 8)
    got, zeros = outputs(q), np.zeros(starts[-1], "int32")
    kernel = pick("paged_prefill_tree", spec_of(2 * group, 2, 8), family)
    order = np.concatenate(orders)
    kernel(q, starts, pool.pages, *pool.tables(), zeros, zeros, *got, *NONE, 0.3, bounds, order)
    parts = []
    for (k, v), past, first, n, matrix in zip(kept, pasts, starts, new, seen, strict=False):
        whole = np.concatenate([np.ones((len(matrix), past), bool), matrix], 1)[-n:]
        parts.append(dense(q[first : first + n], k, v, whole, 0.3))
    agree(got, stacked(parts))


def test_a_chunk_without_a_tree_of_its_own_is_seen_whole(family, rng):
    pool = Pool(rng, 1, 8, SIZE)
    k, v = pool.add(6)
    q = pool.random(2, 2, 8)
    got, zeros = outputs(q), np.zeros(2, "int32")
    kernel = pick("paged_prefill_tree", spec_of(2, 1, 8), family)
    none = np.zeros((0, 2), "int32")
    tables = pool.tables()
    kernel(q, index(0, 2), pool.pages, *tables, zeros, zeros, *got, *NONE, 0.3, index(0, 0), none)
    agree(got, dense(q, k, v, np.ones((2, 6), bool), 0.3))


# ---- latent pages ----------------------------------------------------------------------------


@pytest.mark.parametrize("is_causal", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_latent_pages(family, rng, is_causal, dtype):
    lengths, rows = [7, 0, 4, 13], [2, 1, 4, 3]
    pages = np.full((12, SIZE, 10), np.nan, DTYPES[dtype])
    ids, kept, values = list(rng.permutation(12)), [], []
    indptr, last = [0], []
    for n in lengths:
        latent = rng.standard_normal((n, 10)).astype(DTYPES[dtype])
        mine = [ids.pop() for _ in range(-(-n // SIZE))]
        for i in range(n):
            pages[mine[i // SIZE], i % SIZE] = latent[i]
        values += mine
        indptr.append(len(values))
        last.append((n - 1) % SIZE + 1 if n else 0)
        kept.append(latent)
    starts = np.cumsum([0, *rows]).astype("int32")
    q = rng.standard_normal((starts[-1], 3, 10)).astype(DTYPES[dtype])
    got = outputs(q, 6)
    kernel = pick("mla_prefill", spec_of(3, 1, 10, dtype, v_head_dim=6), family)
    tables = index(*indptr), index(*values), index(*last)
    kernel(q, starts, pages, *tables, *got, is_causal, 0.3)
    parts = []
    for latent, first, n in zip(kept, starts, rows, strict=False):
        m = len(latent)
        seen = causal(n, m) if is_causal else np.ones((n, m), bool)
        k, v = latent[:, None], latent[:, None, :6]
        parts.append(dense(q[first : first + n], k, v, seen, 0.3))
    agree(got, stacked(parts), dtype)


# ---- rotation inside the kernels -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["none", "gptj", "llama3"])
@pytest.mark.parametrize("as_tvm", [False, True])
def test_inline_rotation(family, rng, kind, as_tvm):
    scaling = {"rope_type": kind, "factor": 8.0, "low_freq_factor": 1.0}
    scaling |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    pool = Pool(rng, 2, 8, SIZE)
    kept = [pool.add(6, 1, 4), pool.add(3)]
    q, offsets, positions = pool.random(2, 4, 8), index(5, 40), index(11, 43)
    got, again, mode = outputs(q), outputs(q), (1, 0.5, 500.0)
    spec = spec_of(4, 2, 8, rope=Rope(8, scaling=scaling))
    rope = Rope(8, 500.0, 0.5, scaling=scaling)
    tables = pool.tables(sliding=True)
    with exact() if as_tvm else nullcontext():
        pick("paged_decode_sliding", spec, family)(
            q, pool.pages, *tables, offsets, positions, *got, *mode, 0.3
        )
        pick("paged_prefill_sliding", spec, family)(
            q, index(0, 1, 2), pool.pages, *tables, offsets, positions, *again, 0, *mode, 0.3
        )
        parts = []
        for i, (k, v) in enumerate(kept):
            turned = rope.rotate(k, offsets[i] + np.arange(len(k)), inline=True)
            query = rope.rotate(q[i : i + 1], positions[i : i + 1], inline=True)
            parts.append(dense(query, turned, v, np.ones((1, len(k)), bool), 0.3))
    agree(got, stacked(parts))
    agree(again, stacked(parts))


def test_inline_rotation_of_new_keys(family, rng):
    pool, rope = Pool(rng, 1, 8, SIZE), Rope(8)
    q, k, v = (pool.random(6, h, 8) for h in (2, 1, 1))
    got, mode = outputs(q), (1, 1.0, 1e4)
    starts, offsets, positions = index(0, 4, 6), index(3, 9), index(3, 4, 5, 6, 9, 10)
    kernel = pick("ragged_prefill", spec_of(2, 1, 8), family)
    kernel(q, starts, k, v, starts, positions, offsets, *got, 1, *mode, 0.3)
    tq, tk = rope.rotate(q, positions), rope.rotate(k, positions)
    parts = [
        dense(tq[rows], tk[rows], v[rows], causal(n, n), 0.3)
        for rows, n in ((slice(0, 4), 4), (slice(4, 6), 2))
    ]
    agree(got, stacked(parts))


# ---- what is refused ---------------------------------------------------------------------------

CHECKED = [name for name in ("numpy", "llvm") if name in FAMILIES]
"""Families that follow page numbers into memory without further checks."""


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.parametrize(
    ("table", "message"),
    [
        (([0, 2], [1, 64], [3]), "pages from 0 to 63, got 64 at 1"),
        (([0, 2], [-1, 2], [3]), "pages from 0 to 63, got -1 at 0"),
        (([0, 3], [1, 2], [3]), "page_indptr: expected at most 2 rows, got 3"),
        (([1, 2], [1, 2], [3]), "page_indptr: expected 0 first"),
        (([0, 2, 1], [1, 2], [3, 1]), "nothing that goes down"),
        (([0, 2], [1, 2], [5]), "last_page_len: expected 1 to 4, got 5"),
        (([0, 2], [1, 2], [0]), "last_page_len: expected 1 to 4, got 0"),
        (([0, 2], [1, 2], [3, 1]), r"length_info: expected \(1,\) or \(3, 1\), got \(2,\)"),
        (([0, 2], [1, 2], [[3], [1], [2]]), "sink 2, offset 1, 7 rows of chunk 0"),
        (([0, 2], [1, 2], [[3], [8], [2]]), "sink 2, offset 8, 7 rows of chunk 0"),
    ],
)
def test_a_page_table_that_leads_nowhere_is_refused(rng, name, table, message):
    pool = Pool(rng, 1, 8, SIZE)
    indptr, values, info = (np.array(x, "int32") for x in table)
    count = len(indptr) - 1
    q, zeros = pool.random(count, 2, 8), np.zeros(count, "int32")
    for kind, first in (("paged_decode_sliding", []), ("paged_prefill_sliding", [0])):
        got = outputs(q)
        starts = [np.arange(count + 1, dtype="int32")] if first else []
        kernel = pick(kind, spec_of(2, 1, 8), name)
        with pytest.raises(InternalError, match=message):
            kernel(
                *(q, *starts, pool.pages, indptr, values, info, zeros, zeros, *got),
                *(*first, *NONE, 0.3),
            )
        assert np.isnan(got[0]).all()


@pytest.mark.skipif("llvm" not in FAMILIES, reason="llvmlite is not installed")
def test_compiled_kernels_refuse_sizes_that_do_not_fit(rng):
    pool = Pool(rng, 2, 8, SIZE)
    pool.add(6)
    zero, spec = index(0), spec_of(4, 2, 8)
    decode = pick("paged_decode", spec, "llvm")
    for q in (pool.random(1, 3, 8), pool.random(1, 4, 6)):
        with pytest.raises(InternalError, match=r"q: expected \[tokens, a multiple of 2, 8\]"):
            decode(q, pool.pages, *pool.tables(), zero, zero, *outputs(q), *NONE, 0.3)
    q = pool.random(1, 4, 8)
    short = outputs(pool.random(1, 2, 8))
    with pytest.raises(InternalError, match="output and lse: expected"):
        decode(q, pool.pages, *pool.tables(), zero, zero, *short, *NONE, 0.3)
    none, wide = q[:0], pool.pages.astype("float64")
    with pytest.raises(InternalError, match="q: expected at most 0 rows, got 1"):
        decode(none, pool.pages, *pool.tables(), zero, zero, *outputs(none), *NONE, 0.3)
    with pytest.raises(InternalError, match="expected keys of float32, float16, bfloat16, got"):
        decode(q, wide, *pool.tables(), zero, zero, *outputs(q), *NONE, 0.3)
    ragged, x = pick("ragged_prefill", spec, "llvm"), pool.random(1, 2, 8)
    with pytest.raises(InternalError, match="kv_indptr: expected at most 1 rows, got 2"):
        ragged(q, index(0, 1), x, x, index(0, 2), zero, zero, *outputs(q), 1, *NONE, 0.3)
    tree = pick("ragged_prefill_tree", spec, "llvm")
    order = index(0, 1, 1, 2).reshape(2, 2)
    with pytest.raises(InternalError, match="1 to 1 nodes in chunk 0, got 2"):
        tree(
            *(q, index(0, 1), x, x, index(0, 1), zero, index(0, 2), order, *outputs(q)),
            *(*NONE, 0.3),
        )


# ---- plans and the picker --------------------------------------------------------------------


def test_a_plan_follows_the_contents_of_reused_arrays(family, rng):
    """Index arrays are views of buffers that the next round overwrites."""
    pool = Pool(rng, 1, 8, SIZE)
    kept = [pool.add(6), pool.add(6)]
    _, values, _ = pool.tables()
    q, zero = pool.random(1, 2, 8), index(0)
    kernel = pick("paged_decode", spec_of(2, 1, 8), family)
    table, indptr, last = values[:2].copy(), index(0, 2), index(2)
    for (k, v), mine in zip(kept, (values[:2], values[2:]), strict=True):
        table[:] = mine
        got = outputs(q)
        kernel(q, pool.pages, indptr, table, last, zero, zero, *got, *NONE, 0.3)
        agree(got, dense(q, k, v, np.ones((1, 6), bool), 0.3))


def test_every_family_has_every_kind(family):
    for kind in KINDS:
        assert callable(pick(kind, KernelSpec(2, 1, 8), family))


def test_the_llvm_family_is_there_with_llvmlite():
    assert ("llvm" in FAMILIES) == is_available()
    assert default_family() == ("llvm" if is_available() else "numpy")


def test_a_missing_kernel_is_named():
    with pytest.raises(ValueError, match="no kernel kind 'paged'"):
        pick("paged", KernelSpec(1, 1, 2))
    with pytest.raises(ValueError, match=r"'nunpy' is not registered; did you mean 'numpy'"):
        pick("paged_decode", KernelSpec(1, 1, 2), "nunpy")
    FAMILIES.register("bare", Family("bare", rank=-9))
    try:
        with pytest.raises(ValueError, match="family 'bare' has no 'paged_decode' and no base"):
            pick("paged_decode", KernelSpec(1, 1, 2), "bare")
    finally:
        FAMILIES.remove("bare")


def test_heads_must_group():
    with pytest.raises(ValueError, match="multiple of the 2 key/value heads"):
        KernelSpec(3, 2, 8)
