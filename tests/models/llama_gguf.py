"""The tiny model as a GGUF file, laid out as llama.cpp's converter does."""

import numpy as np

from relaxlab.models import tiny
from tests.models import gguf_bytes as b


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
