"""The NumPy forward pass: against loops in float64, against itself, and against llama.cpp."""

import dataclasses

import numpy as np
import pytest

from relaxlab.models import reference, tiny
from relaxlab.models.reference import ReferenceLlama, greedy
from tests.models.llama_gguf import interleaved

PROMPT = [504, 3575, 282, 4649, 314]
# Greedy tokens of llama.cpp for "The capital of France is".
LLAMA_CPP = [
    7042,
    30,
    198,
    198,
    504,
    2988,
    314,
    42,
    216,
    34,
    32,
    33,
    40,
    29,
    32,
    33,
    29,
    34,
    34,
    216,
]
LLAMA_CPP += [33, 34, 42, 33, 34, 42, 37, 35, 30, 2, 198, 1]


def by_loops(config, weights, tokens):
    """The textbook, one position and one head at a time, in float64; logits ``[n, vocab]``."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    d, half = config.head_dim, config.head_dim // 2
    norm = lambda x, g: x / np.sqrt((x * x).mean() + config.eps) * g  # noqa: E731

    def rotate(head, position):
        turned = np.empty(d)
        for i in range(half):
            angle = position * config.rope_theta ** (-2 * i / d)
            a, b = head[i], head[i + half]
            turned[i] = a * np.cos(angle) - b * np.sin(angle)
            turned[i + half] = a * np.sin(angle) + b * np.cos(angle)
        return turned

    rows = [w["embed"][token] for token in tokens]
    for layer in range(config.layers):
        name = f"layers.{layer}"
        keys, values, after = [], [], []
        for position, x in enumerate(rows):
            qkv = norm(x, w[f"{name}.attn_norm"]) @ w[f"{name}.qkv"]
            heads = qkv.reshape(-1, d)
            keys.append([rotate(h, position) for h in heads[config.heads : -config.kv_heads]])
            values.append(heads[-config.kv_heads :])
            mixed = []
            for index in range(config.heads):
                q, shared = rotate(heads[index], position), index // config.group
                scores = np.array([q @ k[shared] / np.sqrt(d) for k in keys])
                p = np.exp(scores - scores.max())
                p /= p.sum()
                mixed.append(sum(p[t] * values[t][shared] for t in range(position + 1)))
            x = x + np.concatenate(mixed) @ w[f"{name}.out"]
            gate, up = np.split(norm(x, w[f"{name}.mlp_norm"]) @ w[f"{name}.gate_up"], 2)
            after.append(x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{name}.down"])
        rows = after
    return np.array([norm(x, w["norm"]) @ w["head"] for x in rows])


@pytest.fixture(scope="module")
def tokens():
    return np.random.default_rng(3).integers(0, 256, 20).tolist()


def test_equals_the_textbook(tokens):
    model = ReferenceLlama(tiny.CONFIG, tiny.weights())
    logits = model.forward(tokens, model.cache(32), all_positions=True)
    np.testing.assert_allclose(logits, by_loops(tiny.CONFIG, tiny.weights(), tokens), atol=2e-4)


@pytest.mark.parametrize("block", [3, 20, 128])
@pytest.mark.parametrize("split", [1, 7, 19])
def test_a_prompt_in_parts_gives_the_same(tokens, split, block, monkeypatch):
    monkeypatch.setattr(reference, "_QUERY_BLOCK", block)
    model = ReferenceLlama(tiny.CONFIG, tiny.weights())
    whole = model.forward(tokens, model.cache(20), all_positions=True)
    cache = model.cache(20)
    first = model.forward(tokens[:split], cache, all_positions=True)
    rest = [model.forward([token], cache) for token in tokens[split:]]
    assert cache.length == 20
    np.testing.assert_allclose(np.vstack([first, rest]), whole, atol=1e-4)


def test_the_rotary_forms_are_one(tokens):
    config, weights = tiny.CONFIG, tiny.weights()
    model = ReferenceLlama(config, weights)
    other = dict(weights)
    for layer in range(config.layers):
        q, k, v = np.split(
            weights[f"layers.{layer}.qkv"],
            [config.q_width, config.q_width + config.kv_width],
            axis=1,
        )
        other[f"layers.{layer}.qkv"] = np.concatenate(
            [interleaved(q, config.heads), interleaved(k, config.kv_heads), v], axis=1
        )
    pairs = ReferenceLlama(dataclasses.replace(config, rope_interleaved=True), other)
    expected = model.forward(tokens, model.cache(20), all_positions=True)
    found = pairs.forward(tokens, pairs.cache(20), all_positions=True)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_refuses():
    weights = tiny.weights()
    model = ReferenceLlama(tiny.CONFIG, weights)
    cache = model.cache(2)
    for bad, message in [
        ([], r"expected 1 to 2 tokens, got 0"),
        ([1, 2, 3], r"expected 1 to 2 tokens, got 3"),
        ([256], r"tokens must be from 0 to 255, got \[256\]"),
        ([0, -1], r"got \[0, -1\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.forward(bad, cache)
    assert cache.length == 0
    with pytest.raises(ValueError, match=r"'norm': expected shape \(64,\), got \(63,\)"):
        ReferenceLlama(tiny.CONFIG, weights | {"norm": np.ones(63, np.float32)})
    del weights["head"]
    with pytest.raises(ValueError, match=r"'head': expected shape .* got no such parameter"):
        ReferenceLlama(tiny.CONFIG, weights)


def test_smollm2_says_what_llama_cpp_says(smollm2, smollm2_weights):
    model = ReferenceLlama(smollm2.config, smollm2_weights)
    tokens = list(greedy(model, smollm2.tokenizer.encode("The capital of France is"), 32))
    assert tokens == LLAMA_CPP
    assert smollm2.tokenizer.decode(tokens).startswith(" Paris.\n\nThe answer is")
