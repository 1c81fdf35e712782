"""Parameters of a file: names, layout, rotary order, and files that are no plain Llama."""

import numpy as np
import pytest

from relaxlab.models import tiny
from relaxlab.models.gguf import GGUFError, GGUFFile
from relaxlab.models.weights import GGUFWeights, parameter_shapes
from tests.models import gguf_bytes as b


def test_a_file_gives_back_what_was_written(tiny_parts, write_gguf):
    weights = GGUFWeights(GGUFFile.open(write_gguf(*tiny_parts)))
    expected = tiny.weights()
    assert list(weights) == list(expected) == list(parameter_shapes(tiny.CONFIG))
    assert len(weights) == len(expected)
    for name, array in weights.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
        assert array.dtype == np.float32
        assert array.flags.c_contiguous
    assert weights.config.rope_interleaved is False
    assert repr(weights) == "GGUFWeights(model.gguf, 106816 weights)"
    with pytest.raises(KeyError, match="nope"):
        weights["nope"]


def test_a_tied_head_is_the_turned_table(tiny_parts, write_gguf):
    metadata, tensors = tiny_parts
    del tensors["output.weight"]
    weights = GGUFWeights(GGUFFile.open(write_gguf(metadata, tensors)))
    assert weights.config.tied
    np.testing.assert_array_equal(weights["head"], tiny.weights()["embed"].T)


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("blk.1.attn_k.weight", None, r"'blk.1.attn_k.weight': expected \[32, 64\], got no such"),
        ("output_norm.weight", b.Tensor([32], 0, bytes(128)), r"expected shape \[64\], got \[32\]"),
        ("blk.0.attn_q.bias", b.Tensor([64], 0, bytes(256)), r"'blk.0.attn_q.bias' \(of 1 such\)"),
        (
            "blk.0.attn_norm.weight",
            b.Tensor([64, 1], 0, bytes(256)),
            r"expected shape \[64\], got \[1, 64\]",
        ),
    ],
)
def test_refuses(tiny_parts, write_gguf, name, tensor, message):
    metadata, tensors = tiny_parts
    tensors.pop(name, None)
    if tensor is not None:
        tensors[name] = tensor
    with pytest.raises(GGUFError, match=message):
        GGUFWeights(GGUFFile.open(write_gguf(metadata, tensors)))


def test_refuses_a_kind_it_cannot_decode_before_decoding_any(tiny_parts, write_gguf):
    metadata, tensors = tiny_parts
    metadata["llama.feed_forward_length"] = b.u32(256)
    for layer in range(2):
        tensors[f"blk.{layer}.ffn_down.weight"] = b.Tensor([256, 64], 14, bytes(64 * 210))
        for gate in ("gate", "up"):
            tensors[f"blk.{layer}.ffn_{gate}.weight"] = b.Tensor([64, 256], 0, bytes(65_536))
    with pytest.raises(GGUFError, match=r"'blk.0.ffn_down.weight': cannot decode kind Q6_K"):
        GGUFWeights(GGUFFile.open(write_gguf(metadata, tensors)))


def test_smollm2(smollm2, smollm2_weights):
    shapes = {name: array.shape for name, array in smollm2_weights.items()}
    assert shapes == parameter_shapes(smollm2.config)
    assert shapes["layers.29.qkv"] == (576, 960)
    assert all(np.isfinite(array).all() for array in smollm2_weights.values())
    assert smollm2_weights["embed"].std() == pytest.approx(0.11, abs=0.03)
