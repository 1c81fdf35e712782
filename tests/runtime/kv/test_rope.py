"""Rotary embeddings rotate: every variant keeps the length of every pair."""

from contextlib import nullcontext

import numpy as np
import pytest

from relaxlab.codegen.attention import is_available
from relaxlab.runtime.kv import exact
from relaxlab.runtime.kv.attention import FAMILIES, KernelSpec, pick
from relaxlab.runtime.kv.rope import Rope, RopeMode
from tests.runtime.kv.dense_attention import DTYPES, TOLERANCE, index

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
LONG = {
    "rope_type": "longrope",
    "max_position_embeddings": 64,
    "original_max_position_embeddings": 4,
}
VARIANTS = {
    "none": {},
    "gptj": {"rope_type": "gptj"},
    "llama3": LLAMA3,
    "llama4": {**LLAMA3, "rope_type": "llama4"},
    "llama4_equal": {**LLAMA3, "rope_type": "llama4", "high_freq_factor": 1.0},
    "yarn": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "beta_fast": 32,
        "beta_slow": 1,
    },
}
DIM = 16


def rows(seed=0, tokens=5, heads=3, dtype="float32"):
    return np.random.default_rng(seed).standard_normal((tokens, heads, DIM)).astype(DTYPES[dtype])


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("rotary_dim", [None, 8])
@pytest.mark.parametrize("name", VARIANTS)
def test_lengths_and_relative_positions_are_kept(name, rotary_dim, inline):
    rope = Rope(DIM, rotary_dim=rotary_dim, scaling=VARIANTS[name])
    q, k = rows(0), rows(1)
    positions = np.array([0, 3, 17, 40, 100])
    turned = rope.rotate(q, positions, inline=inline)
    np.testing.assert_allclose(
        np.linalg.norm(turned, axis=-1), np.linalg.norm(q, axis=-1), rtol=1e-5
    )
    if rotary_dim:
        assert (turned[..., rotary_dim:] == q[..., rotary_dim:]).all()
    # the product of a query and a key depends on the difference of their positions
    products = [
        (
            rope.rotate(q, positions + shift, inline=inline)
            * rope.rotate(k, positions + shift - 2, inline=inline)
        ).sum(-1)
        for shift in (2, 9)
    ]
    np.testing.assert_allclose(*products, atol=2e-4)


@pytest.mark.parametrize(
    ("name", "inline"), [("yarn", False), ("llama4", False), ("gptj", True), ("llama4", True)]
)
def test_tvm_turns_the_features_of_a_pair_by_different_angles(name, inline):
    rope, x = Rope(DIM, scaling=VARIANTS[name]), rows()
    positions = np.array([0, 3, 17, 40, 100])
    with exact():
        turned = rope.rotate(x, positions, inline=inline)
    lengths = np.linalg.norm(turned, axis=-1) - np.linalg.norm(x, axis=-1)
    assert np.abs(lengths).max() > 0.05
    assert not np.allclose(turned, rope.rotate(x, positions, inline=inline), atol=1e-3)


@pytest.mark.parametrize("name", ["none", "gptj", "llama3"])
def test_exact_mode_changes_nothing_else(name):
    rope, x = Rope(DIM, scaling=VARIANTS[name]), rows()
    with exact():
        turned = rope.rotate(x, np.arange(5))
    assert (turned == rope.rotate(x, np.arange(5))).all()


def test_llama3_divides_low_frequencies_and_keeps_high_ones():
    plain = Rope(DIM).frequencies()
    long = {**LLAMA3, "original_max_position_embeddings": 8192}
    scaled = Rope(DIM, scaling=long).frequencies()
    assert scaled[0] == plain[0]  # turns many times within the original length
    assert scaled[7] == plain[7] / 8
    assert (plain / 8 <= scaled).all()
    assert (scaled <= plain).all()


def test_longrope_chooses_its_factors_by_the_size_of_the_batch():
    rope = Rope(DIM, scaling=LONG)
    factors = np.concatenate([np.full(8, 4.0), np.full(8, 2.0)]).astype("float32")
    plain = Rope(DIM).frequencies()
    short, long = (rope.frequencies(ext_factors=factors, tokens=n) for n in (4, 5))
    np.testing.assert_allclose(short, plain / 2)
    np.testing.assert_allclose(long, plain / 4)
    assert rope.magnitude() == pytest.approx(np.sqrt(1 + np.log(16) / np.log(4)))
    assert Rope(DIM, scaling={**LONG, "max_position_embeddings": 4}).magnitude() == 1
    with pytest.raises(ValueError, match="expected a tensor of extension factors"):
        rope.frequencies()


@pytest.mark.parametrize("family", FAMILIES.names())
@pytest.mark.parametrize("name", [*VARIANTS, "longrope"])
@pytest.mark.parametrize("as_tvm", [False, True])
def test_split_rotary_of_every_family(family, name, as_tvm):
    scaling = LONG if name == "longrope" else VARIANTS[name]
    rope = Rope(DIM, 500.0, 0.5, 12, scaling)
    qkv, positions = rows(2, 6, 7), index(0, 1, 2, 40, 41, 3)
    q, k, v = (np.full((6, h, DIM), np.nan, "float32") for h in (3, 2, 2))
    factors = np.linspace(1, 3, 16).astype("float32")
    kernel = pick("split_rotary", KernelSpec(3, 1, DIM, rope=rope), family)
    with exact() if as_tvm else nullcontext():
        kernel(qkv, positions, q, k, v, factors if name == "longrope" else 1)
        given = {"ext_factors": factors, "tokens": 6} if name == "longrope" else {}
        cos, sin = rope.angles(positions, **given)
        apart = 1 if rope.interleaved() else 6
    for out, source in ((q, qkv[:, :3]), (k, qkv[:, 3:5])):
        want = source.astype(np.float64).copy()
        for d in range(12):
            low = d % 2 == 0 if apart == 1 else d < 6
            partner = -source[..., d + apart] if low else source[..., d - apart]
            want[..., d] = source[..., d] * cos[:, None, d] + partner * sin[:, None, d]
        np.testing.assert_allclose(out, want, atol=2e-6)
    assert (v == qkv[:, 5:]).all()


@pytest.mark.parametrize("family", FAMILIES.names())
@pytest.mark.parametrize("dtype", DTYPES)
def test_split_rotary_rounds_once(family, dtype):
    rope, qkv = Rope(DIM), rows(3, 4, 4, dtype)
    q, k, v = (np.zeros((4, h, DIM), qkv.dtype) for h in (2, 1, 1))
    kernel = pick("split_rotary", KernelSpec(2, 1, DIM, dtype=dtype), family)
    kernel(qkv, index(0, 5, 9, 30), q, k, v, 1)
    turned = rope.rotate(qkv[:, :2], index(0, 5, 9, 30))
    difference = np.abs(q.astype("float32") - turned.astype(qkv.dtype).astype("float32"))
    assert difference.max() <= TOLERANCE[dtype]
    kernel(qkv, index(0, 5, 9, 30), q, k, v, 0)
    assert (q == qkv[:, :2]).all()


def test_a_plan_of_angles_follows_the_positions():
    kernel = pick("split_rotary", KernelSpec(1, 1, DIM), "numpy")
    positions, x = index(1, 2), rows(4, 2, 3)
    q, k, v = (np.zeros((2, 1, DIM), "float32") for _ in range(3))
    kernel(x, positions, q, k, v, 1)
    first = q.copy()
    positions[:] = (7, 8)
    kernel(x, positions, q, k, v, 1)
    assert not np.allclose(first, q)
    np.testing.assert_array_equal(q, Rope(DIM).rotate(x[:, :1], positions))


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="unknown rope_type 'spiral'; expected one of default"):
        Rope(8, scaling={"rope_type": "spiral"})
    with pytest.raises(ValueError, match="type 'yarn' lacks original_max_position_embeddings"):
        Rope(8, scaling={"rope_type": "yarn", "factor": 2.0})
    for rotary_dim in (3, 10, 0):
        with pytest.raises(ValueError, match="an even number up to the head size 8"):
            Rope(8, rotary_dim=rotary_dim)


def test_the_compiled_family_is_among_them():
    assert is_available() == ("llvm" in FAMILIES)


def test_modes_have_tvms_numbers():
    assert [int(mode) for mode in RopeMode] == [0, 1, 2]
