"""Decoders of GGUF's element kinds against the ``gguf`` package and against the formulas."""

import numpy as np
import pytest

from relaxlab.models.dequantise import DECODABLE, KINDS, dequantise


def kind(name: str):
    return next(k for k in KINDS.values() if k.name == name)


def packed(name: str, blocks: int, seed: int = 0) -> np.ndarray:
    """Random bytes whose half-precision scales are finite."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (blocks, kind(name).nbytes), np.uint8)
    for column in {"Q4_0": [0], "Q8_0": [0], "Q4_1": [0, 2]}.get(name, []):
        scales = rng.standard_normal(blocks).astype("<f2")
        raw[:, column : column + 2] = scales.view(np.uint8).reshape(-1, 2)
    return raw.reshape(-1)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0", "BF16", "F16", "F32"])
@pytest.mark.parametrize("blocks", [1, 3, 20_000])
def test_equals_gguf_package(name, blocks):
    gguf = pytest.importorskip("gguf", reason="the oracle of this test is the gguf package")
    if name in ("BF16", "F16", "F32"):
        blocks *= 32
        values = np.random.default_rng(1).standard_normal(blocks).astype(np.float32)
        raw = {
            "F32": values,
            "F16": values.astype("<f2"),
            "BF16": (values.view("<u4") >> 16).astype("<u2"),
        }[name].view(np.uint8)
    else:
        raw = packed(name, blocks)
    expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name])
    np.testing.assert_array_equal(dequantise(kind(name), raw), expected.astype(np.float32))


def test_q4_1_by_its_formula():
    block = np.concatenate(
        [np.array([0.5, -3.0], "<f2").view(np.uint8), np.arange(16, dtype=np.uint8) * 16 + 5]
    )
    values = dequantise(kind("Q4_1"), block)
    assert values[:16].tolist() == [0.5 * 5 - 3.0] * 16
    assert values[16:].tolist() == [0.5 * high - 3.0 for high in range(16)]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("I8", "i1"), ("I16", "<i2"), ("I32", "<i4"), ("I64", "<i8"), ("F64", "<f8")],
)
def test_plain_kinds(name, dtype):
    values = np.array([-3, 0, 1, 100], dtype)
    assert dequantise(kind(name), values.view(np.uint8)).tolist() == [-3.0, 0.0, 1.0, 100.0]


def test_writes_into_out_across_chunks():
    raw = packed("Q4_1", 10_000)
    out = np.full((1000, 320), np.nan, np.float32)
    assert dequantise(kind("Q4_1"), raw, out) is out
    np.testing.assert_array_equal(out.reshape(-1), dequantise(kind("Q4_1"), raw))


def test_refusals_name_what_is_wrong():
    with pytest.raises(ValueError, match=r"multiple of 20 bytes, got 21"):
        dequantise(kind("Q4_1"), np.zeros(21, np.uint8))
    with pytest.raises(ValueError, match=r"cannot decode Q6_K; kinds that can be: F32, F16"):
        dequantise(kind("Q6_K"), np.zeros(210, np.uint8))
    with pytest.raises(ValueError, match=r"contiguous float32 with 32 values, got float32\[31\]"):
        dequantise(kind("Q4_1"), np.zeros(20, np.uint8), np.zeros(31, np.float32))
    with pytest.raises(ValueError, match=r"got float64\[32\]"):
        dequantise(kind("Q4_1"), np.zeros(20, np.uint8), np.zeros(32))  # type: ignore[arg-type]
    assert "Q4_1" in DECODABLE
    assert "Q6_K" not in DECODABLE


def test_block_sizes_are_ggmls():
    gguf = pytest.importorskip("gguf", reason="the oracle of this test is the gguf package")
    for code, ours in KINDS.items():
        theirs = gguf.GGMLQuantizationType(code)
        assert (theirs.name, gguf.GGML_QUANT_SIZES[theirs]) == (
            ours.name,
            (ours.values, ours.nbytes),
        )
