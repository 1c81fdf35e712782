"""Configurations: what a file says, and numbers that no network can have."""

import dataclasses

import pytest

from relaxlab.models import tiny
from relaxlab.models.config import LlamaConfig, config_from_gguf
from relaxlab.models.gguf import GGUFError, GGUFFile
from tests.models import gguf_bytes as b


def test_reads_the_file(tiny_parts, write_gguf):
    config = config_from_gguf(GGUFFile.open(write_gguf(*tiny_parts)))
    expected = dataclasses.replace(tiny.CONFIG, rope_interleaved=True, eps=config.eps)
    assert config == expected
    assert config.eps == pytest.approx(1e-5)


def test_smollm2(smollm2_path):
    config = config_from_gguf(GGUFFile.open(smollm2_path))
    assert config == LlamaConfig(
        layers=30,
        heads=9,
        kv_heads=3,
        head_dim=64,
        width=576,
        ff=1536,
        vocab=49_152,
        context=8192,
        rope_theta=1e5,
        rope_interleaved=True,
        eps=config.eps,
        tied=True,
    )
    assert config.eps == pytest.approx(1e-5)
    assert config.parameters == 134_515_008
    assert (config.group, config.q_width, config.kv_width) == (3, 576, 192)


def test_optional_keys_have_llama_cpps_defaults(tiny_parts, write_gguf):
    metadata, tensors = tiny_parts
    del metadata["llama.rope.freq_base"]
    del metadata["llama.attention.head_count_kv"]
    del tensors["output.weight"]
    config = config_from_gguf(GGUFFile.open(write_gguf(metadata, tensors)))
    assert (config.rope_theta, config.kv_heads, config.tied) == (10_000.0, config.heads, True)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("general.architecture", b.string("gemma"), r"expected 'llama', got 'gemma'"),
        ("llama.block_count", b.string("2"), r"llama.block_count: expected an integer, got '2'"),
        ("llama.block_count", b.u32(0), r"layers must be from 1 to \d+, got 0"),
        ("llama.block_count", b.u32(2**32 - 1), r"block_count: expected at most 21, .*got 4294"),
        ("llama.attention.head_count", b.u32(0), r"head_count: expected at least 1, got 0"),
        (
            "llama.attention.head_count",
            b.int32s([4, 4]),
            r"head_count: expected an integer, got arr",
        ),
        (
            "llama.attention.head_count_kv",
            b.u32(3),
            r"heads \(4\) must be a multiple of kv_heads \(3",
        ),
        ("llama.embedding_length", b.u32(68), r"head_dim must be even .* got 17"),
        (
            "llama.rope.freq_base",
            b.f32(float("nan")),
            r"rope_theta must be positive and finite, got",
        ),
        (
            "llama.rope.freq_base",
            b.string("x"),
            r"llama.rope.freq_base: expected a number, got 'x'",
        ),
        ("llama.attention.layer_norm_rms_epsilon", b.f32(-1.0), r"eps must not be negative"),
        ("llama.rope.scaling.type", b.string("yarn"), r"scaling.type: expected 'none', got 'yarn'"),
        ("llama.expert_count", b.u32(8), r"expert_count: expected 0 \(a dense model\), got 8"),
        ("llama.rope.dimension_count", b.u32(8), r"expected the head size 16, got 8 and 16"),
    ],
)
def test_refuses(tiny_parts, write_gguf, key, value, message):
    metadata, tensors = tiny_parts
    with pytest.raises(GGUFError, match=message):
        config_from_gguf(GGUFFile.open(write_gguf(metadata | {key: value}, tensors)))


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("llama.block_count", r"llama.block_count: expected an integer, got no such key"),
        ("llama.attention.layer_norm_rms_epsilon", r"expected a number, got no such key"),
    ],
)
def test_names_a_missing_key(tiny_parts, write_gguf, missing, message):
    metadata, tensors = tiny_parts
    del metadata[missing]
    with pytest.raises(GGUFError, match=message):
        config_from_gguf(GGUFFile.open(write_gguf(metadata, tensors)))


def test_needs_an_embedding_table(tiny_parts, write_gguf):
    metadata, tensors = tiny_parts
    tensors["token_embd.weight"] = b.Tensor([8], 0, bytes(32))
    with pytest.raises(
        GGUFError, match=r"'token_embd.weight': expected .* rank 2, got shape \[8\]"
    ):
        config_from_gguf(GGUFFile.open(write_gguf(metadata, tensors)))
    del tensors["token_embd.weight"]
    with pytest.raises(GGUFError, match=r"'token_embd.weight': expected .*, got no such tensor"):
        config_from_gguf(GGUFFile.open(write_gguf(metadata, tensors)))
