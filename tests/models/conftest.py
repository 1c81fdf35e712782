"""The real model, for the tests that need it, and small files that look like it."""

import os

import numpy as np
import pytest

from relaxlab.models import download, tiny
from relaxlab.models.language_model import open_model
from tests.models import gguf_bytes as b


@pytest.fixture(scope="session")
def smollm2_path():
    """The SmolLM2 file. CI and RELAXLAB_REQUIRE_MODEL=1 fetch it; elsewhere its absence skips."""
    if os.environ.get("CI") == "true" or os.environ.get("RELAXLAB_REQUIRE_MODEL") == "1":
        return download.get("smollm2")
    try:
        return download.find_model("smollm2")
    except download.ModelNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def smollm2(smollm2_path):
    """The real model, opened by its path; its tokenizer needs the extra ``llm``."""
    pytest.importorskip("tokenizers", reason="SmolLM2's tokenizer needs relaxlab[llm]")
    return open_model(str(smollm2_path))


@pytest.fixture(scope="session")
def smollm2_weights(smollm2):
    """All parameters of the real model, decoded once."""
    return dict(smollm2.weights)


def interleaved(columns: np.ndarray, heads: int) -> np.ndarray:
    """Reorder rotary pairs ``(i, i + d/2)`` to neighbours, on the last axis."""
    halves = columns.reshape(*columns.shape[:-1], heads, 2, -1)
    return halves.swapaxes(-1, -2).reshape(columns.shape)


def tiny_gguf_parts():
    """Metadata and float32 tensors of the tiny model, as llama.cpp's converter lays them out."""
    c, w = tiny.CONFIG, tiny.weights()
    metadata = {
        "general.architecture": b.string("llama"),
        "llama.block_count": b.u32(c.layers),
        "llama.context_length": b.u32(c.context),
        "llama.embedding_length": b.u32(c.width),
        "llama.feed_forward_length": b.u32(c.ff),
        "llama.attention.head_count": b.u32(c.heads),
        "llama.attention.head_count_kv": b.u32(c.kv_heads),
        "llama.rope.freq_base": b.f32(c.rope_theta),
        "llama.attention.layer_norm_rms_epsilon": b.f32(c.eps),
    }
    arrays = {
        "token_embd.weight": w["embed"],
        "output_norm.weight": w["norm"],
        "output.weight": w["head"].T,
    }
    for i in range(c.layers):
        ours, theirs = f"layers.{i}", f"blk.{i}"
        q, k, v = np.split(w[f"{ours}.qkv"], [c.q_width, c.q_width + c.kv_width], axis=1)
        gate, up = np.split(w[f"{ours}.gate_up"], 2, axis=1)
        arrays |= {
            f"{theirs}.attn_norm.weight": w[f"{ours}.attn_norm"],
            f"{theirs}.attn_q.weight": interleaved(q, c.heads).T,
            f"{theirs}.attn_k.weight": interleaved(k, c.kv_heads).T,
            f"{theirs}.attn_v.weight": v.T,
            f"{theirs}.attn_output.weight": w[f"{ours}.out"].T,
            f"{theirs}.ffn_norm.weight": w[f"{ours}.mlp_norm"],
            f"{theirs}.ffn_gate.weight": gate.T,
            f"{theirs}.ffn_up.weight": up.T,
            f"{theirs}.ffn_down.weight": w[f"{ours}.down"].T,
        }
    tensors = {n: b.Tensor(a.shape[::-1], 0, a.astype("<f4").tobytes()) for n, a in arrays.items()}
    return metadata, tensors


@pytest.fixture
def tiny_parts():
    """Fresh dictionaries that a test may break before it writes them."""
    return tiny_gguf_parts()


@pytest.fixture
def write_gguf(tmp_path):
    """A function that writes a file and returns its path."""

    def write(metadata, tensors):
        path = tmp_path / "model.gguf"
        path.write_bytes(b.gguf(metadata, tensors))
        return path

    return write
