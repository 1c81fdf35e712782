"""The compiled decoder equals the plain NumPy forward pass of the same weights."""

import time

import numpy as np
import pytest

from relaxlab import relax
from relaxlab.models import tiny
from relaxlab.models.config import LlamaConfig
from relaxlab.models.generation import CompiledLlama, generate
from relaxlab.models.language_model import LanguageModel, open_model
from relaxlab.models.llama import decoder, parameter_names
from relaxlab.models.reference import ReferenceLlama, greedy
from relaxlab.models.tokenizer import ByteTokenizer
from relaxlab.serve.sampler import Sampling, chooser


def _model(**changes) -> LanguageModel:
    sizes = {"layers": 1, "heads": 4, "kv_heads": 2, "head_dim": 8, "width": 32, "ff": 48}
    config = LlamaConfig(**{**sizes, "vocab": 64, "context": 40, **changes})
    return LanguageModel("made", config, tiny.weights(config, seed=3), ByteTokenizer())


@pytest.fixture(scope="module")
def llama() -> CompiledLlama:
    return CompiledLlama(open_model("tiny"), "numpy")


@pytest.mark.parametrize(
    "changes",
    [{"layers": 2}, {"heads": 3, "kv_heads": 3}, {"heads": 6, "kv_heads": 1, "head_dim": 2}],
    ids=str,
)
def test_logits_equal_the_reference_in_one_go_and_token_by_token(changes):
    model = _model(**changes)
    compiled, plain = CompiledLlama(model, "numpy"), ReferenceLlama(model.config, model.weights)
    tokens = np.random.default_rng(0).integers(0, 64, 9).tolist()
    cache = plain.cache(12)
    expected = plain.forward(tokens, cache)
    at_once, _ = compiled.prefill(tokens, compiled.empty_cache())
    np.testing.assert_allclose(at_once, expected, rtol=1e-4, atol=1e-5)
    _, caches = compiled.prefill(tokens[:4], compiled.empty_cache())
    _, caches = compiled.prefill(tokens[4:7], caches)  # on top of a cache
    for token in tokens[7:]:
        logits, caches = compiled.decode(token, caches)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    assert caches[0].shape == (model.config.kv_heads, model.config.head_dim, 9)


def test_decode_leaves_the_cache_it_was_given_alone(llama):
    _, caches = llama.prefill([5, 6, 7], llama.empty_cache())
    before = [c.numpy() for c in caches]
    first, _ = llama.decode(9, caches)
    second, _ = llama.decode(9, caches)
    assert np.array_equal(first, second)
    assert all(np.array_equal(a, c.numpy()) for a, c in zip(before, caches, strict=True))


def test_greedy_text_of_the_tiny_model_is_the_references(llama):
    prompt = llama.model.tokenizer.encode("hello")
    plain = ReferenceLlama(llama.model.config, dict(llama.model.weights))
    assert list(generate(llama, prompt, 24)) == list(greedy(plain, prompt, 24))


def test_a_seed_decides_what_is_sampled(llama):
    prompt = llama.model.tokenizer.encode("once")
    rules = [Sampling(1.0, top_p=0.9, seed=seed) for seed in (1, 1, 2)]
    draws = [list(generate(llama, prompt, 16, chooser(one, prompt))) for one in rules]
    assert draws[0] == draws[1] != draws[2]


def test_stop_tokens_end_the_text_and_are_yielded(llama):
    prompt = llama.model.tokenizer.encode("hello")
    whole = list(generate(llama, prompt, 12))
    stop = whole[4]
    assert list(generate(llama, prompt, 12, stop=[stop])) == whole[: whole.index(stop) + 1]


def test_a_full_context_ends_the_text():
    model = _model()
    llama = CompiledLlama(model, "numpy")
    tokens = list(generate(llama, [1] * 38, 30))
    assert len(tokens) == 3  # 38 + 2 fill the context of 40; one more follows from the last


@pytest.mark.parametrize(
    ("tokens", "words"),
    [([], "empty"), ([256], "token 256"), ([-1], "token -1"), ([1] * 3000, "context of 2048")],
)
def test_wrong_tokens_are_refused_and_leave_the_machine_usable(llama, tokens, words):
    with pytest.raises(ValueError, match=words):
        llama.prefill(tokens, llama.empty_cache())
    assert llama.prefill([1], llama.empty_cache())[0].shape == (256,)


def test_parameters_are_named_in_the_order_of_the_module():
    names = parameter_names(tiny.CONFIG)
    params = decoder(tiny.CONFIG)["decode"].params[-1]
    assert len(names) == len(params.ty.fields)
    assert names[0] == "embed"
    assert names[-2:] == ["rope_cos", "rope_sin"]


def test_building_is_linear_in_layers():
    def seconds(layers):
        mod = decoder(_model(layers=layers).config)
        start = time.process_time()
        relax.build(mod, "numpy")
        return time.process_time() - start

    seconds(1)
    few, many = seconds(4), seconds(16)
    assert many < 8 * few + 0.5, f"4 layers took {few:.2f} s, 16 took {many:.2f} s"
