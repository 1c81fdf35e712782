"""Compiled attention in the sizes of real models, and on processors with shorter vectors."""

import numpy as np
import pytest

from relaxlab.codegen.attention import compiled, entry, is_available, plan
from relaxlab.codegen.attention.program import Layout
from relaxlab.codegen.attention.rotary import CompiledSplitRotary
from relaxlab.codegen.llvm.host import Host
from relaxlab.codegen.llvm.machine import machine
from relaxlab.runtime.kv import exact
from relaxlab.runtime.kv.attention import KernelSpec, pick
from relaxlab.runtime.kv.rope import Rope
from tests.runtime.kv.dense_attention import (
    Pool,
    agree,
    ancestors,
    causal,
    dense,
    index,
    outputs,
    scale_of,
)
from tests.runtime.kv.test_rope import VARIANTS

pytestmark = pytest.mark.skipif(not is_available(), reason="llvmlite is not installed")
NONE = (0, 1.0, 1e4)


def decoded(heads, kv_heads, dim, lengths, dtype="float32", size=16):
    pool = Pool(np.random.default_rng(1), kv_heads, dim, size, dtype)
    kept = [pool.add(n) for n in lengths]
    q = pool.random(len(lengths), heads, dim)
    got, zeros = outputs(q), np.zeros(len(lengths), "int32")
    kernel = pick("paged_decode", KernelSpec(heads, kv_heads, dim, dtype=dtype), "llvm")
    kernel(q, pool.pages, *pool.tables(), zeros, zeros, *got, *NONE, scale_of(dim))
    parts = [
        dense(q[i : i + 1], k, v, np.ones((1, len(k)), bool), scale_of(dim))
        for i, (k, v) in enumerate(kept)
    ]
    agree(got, tuple(np.concatenate(x) for x in zip(*parts, strict=True)), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"),
    [(9, 3, 64), (8, 1, 128), (4, 4, 80), (2, 1, 96), (2, 2, 256), (7, 1, 20), (32, 8, 128)],
)
def test_decode_in_the_sizes_of_models(heads, kv_heads, dim, dtype):
    decoded(heads, kv_heads, dim, [1, 15, 16, 17, 200, 0, 255], dtype)


def test_heads_that_no_vector_divides_go_to_numpy():
    decoded(2, 1, 6, [5, 17])


def prefilled(heads, kv_heads, dim, rows, cached, *, is_causal):
    rng = np.random.default_rng(2)
    pool = Pool(rng, kv_heads, dim, 16)
    k, v = pool.add(cached)
    q = pool.random(rows, heads, dim)
    got, zeros = outputs(q), np.zeros(rows, "int32")
    kernel = pick("paged_prefill", KernelSpec(heads, kv_heads, dim), "llvm")
    kernel(
        q, index(0, rows), pool.pages, *pool.tables(), zeros, zeros, *got, int(is_causal), *NONE,
        scale_of(dim),
    )  # fmt: skip
    seen = causal(rows, cached) if is_causal else np.ones((rows, cached), bool)
    agree(got, dense(q, k, v, seen, scale_of(dim)))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 7, 31])
def test_prompts_that_do_not_fill_the_last_tile(rows, is_causal):
    prefilled(3, 1, 32, rows, 100, is_causal=is_causal)
    prefilled(4, 4, 64, rows, 37, is_causal=is_causal)


def test_more_queries_than_keys():
    """The first rows see nothing at all."""
    prefilled(2, 1, 32, 40, 7, is_causal=True)


def test_latent_rows_of_576_features():
    rng = np.random.default_rng(3)
    pages = np.full((6, 16, 576), np.nan, "float32")
    pages[[4, 1]] = rng.standard_normal((2, 16, 576))
    q = rng.standard_normal((3, 16, 576)).astype("float32")
    got = outputs(q, 512)
    kernel = pick("mla_prefill", KernelSpec(16, 1, 576, 512), "llvm")
    kernel(q, index(0, 3), pages, index(0, 2), index(4, 1), index(13), *got, 0, 0.04)
    latent = pages[[4, 1]].reshape(-1, 1, 576)[:29]
    agree(got, dense(q, latent, latent[..., :512], np.ones((3, 29), bool), 0.04))


def test_a_big_tree():
    rng = np.random.default_rng(4)
    parents = [-1] + [int(rng.integers(0, i)) for i in range(1, 60)]
    seen, order = ancestors(parents)
    pool = Pool(rng, 1, 32, 16)
    k, v = pool.add(100 + 60)
    q = pool.random(60, 3, 32)
    got, zeros = outputs(q), np.zeros(60, "int32")
    kernel = pick("paged_prefill_tree", KernelSpec(3, 1, 32), "llvm")
    tables = pool.tables()
    bounds = index(0, 60)
    kernel(q, bounds, pool.pages, *tables, zeros, zeros, *got, *NONE, 0.2, bounds, order)
    agree(got, dense(q, k, v, np.concatenate([np.ones((60, 100), bool), seen], 1), 0.2))


def test_arrays_that_are_not_contiguous():
    pool = Pool(np.random.default_rng(5), 2, 16, 16)
    k, v = pool.add(40)
    wide = np.repeat(pool.pages, 2, axis=4)[..., ::2]
    q = np.repeat(pool.random(1, 4, 16), 2, axis=1)[:, ::2]
    got = (np.zeros((1, 8, 16), "float32")[:, ::2], np.zeros((1, 8), "float32")[:, ::2])
    assert not any(a.flags.c_contiguous for a in (wide, q, *got))
    kernel = pick("paged_decode", KernelSpec(4, 2, 16), "llvm")
    kernel(q, wide, *pool.tables(), index(0), index(0), *got, *NONE, 0.25)
    agree(got, dense(q, k, v, np.ones((1, 40), bool), 0.25))


@pytest.fixture
def on_host(monkeypatch):
    def use(**changes):
        host = machine().host
        fields = {name: getattr(host, name) for name in host.__slots__} | changes
        other = machine(Host(**fields))
        for module in (compiled, entry, plan):
            monkeypatch.setattr(module, "machine", lambda: other)
        compiled.attend.cache_clear()

    yield use
    compiled.attend.cache_clear()


@pytest.mark.parametrize("vector_bytes", [16, 32])
def test_shorter_vectors(on_host, vector_bytes):
    on_host(vector_bytes=vector_bytes, masks=False)
    decoded(9, 3, 64, [1, 15, 16, 17, 100])
    decoded(9, 3, 64, [1, 15, 16, 17, 100], "bfloat16")
    prefilled(3, 1, 32, 7, 50, is_causal=True)


def test_without_knowing_where_arrays_keep_their_addresses(monkeypatch):
    monkeypatch.setattr(entry, "arrays_are_known", lambda: False)
    compiled.attend.cache_clear()
    try:
        decoded(9, 3, 64, [1, 15, 16, 17, 100])
    finally:
        compiled.attend.cache_clear()


def test_the_machine_code_can_be_read():

    layout = Layout(1, 1, 64, 64, 64, 1024, 64, 1024)
    assert "attend_arrays" in compiled.assembly(layout, 1)


@pytest.mark.parametrize("rotary_dim", [None, 32])
@pytest.mark.parametrize("name", VARIANTS)
def test_splitting_and_rotating(name, rotary_dim):
    rng = np.random.default_rng(6)
    rope = Rope(64, 500.0, 0.5, rotary_dim, VARIANTS[name])
    qkv, positions = rng.standard_normal((5, 15, 64)).astype("float32"), index(0, 7, 8, 300, 2)
    found = []
    for family in ("llvm", "numpy"):
        outs = [np.full((5, h, 64), np.nan, "float32") for h in (9, 3, 3)]
        kernel = pick("split_rotary", KernelSpec(9, 3, 64, rope=rope), family)
        assert isinstance(kernel, CompiledSplitRotary) == (family == "llvm")
        kernel(qkv, positions, *outs, 1)
        found.append(outs)
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_rotating_again_follows_the_positions_and_the_mode():
    rng = np.random.default_rng(6)
    rope = Rope(32, scaling=VARIANTS["yarn"])
    kernel = pick("split_rotary", KernelSpec(1, 1, 32, rope=rope), "llvm")
    qkv, positions = rng.standard_normal((1, 3, 32)).astype("float32"), index(3)
    outs = [np.empty((1, 1, 32), "float32") for _ in range(3)]
    for position in (3, 90):
        positions[0] = position
        kernel(qkv, positions, *outs, 1)
        np.testing.assert_allclose(outs[0], rope.rotate(qkv[:, :1], positions), atol=1e-6)
    with exact():
        kernel(qkv, positions, *outs, 1)
        np.testing.assert_allclose(outs[0], rope.rotate(qkv[:, :1], positions), atol=1e-6)
    assert not np.allclose(outs[0], rope.rotate(qkv[:, :1], positions))


def test_what_is_not_float32_or_not_rotated_is_split_all_the_same():
    rng = np.random.default_rng(6)
    for dtype, turns in (("float32", 0), ("float16", 1)):
        qkv, positions = rng.standard_normal((4, 4, 32)).astype(dtype), index(0, 1, 2, 3)
        outs = [np.empty((4, h, 32), dtype) for h in (2, 1, 1)]
        pick("split_rotary", KernelSpec(2, 1, 32, dtype=dtype), "llvm")(
            qkv, positions, *outs, turns
        )
        want = qkv[:, :2] if not turns else Rope(32).rotate(qkv[:, :2], positions)
        np.testing.assert_allclose(outs[0].astype("float32"), want, atol=4e-3)
        assert (outs[2] == qkv[:, 3:]).all()
