"""The tiny model: the same nonsense everywhere."""

import dataclasses
import hashlib

import numpy as np

from relaxlab.models import tiny
from relaxlab.models.language_model import open_model
from relaxlab.models.reference import ReferenceLlama, greedy
from relaxlab.models.weights import parameter_shapes


def test_weights_never_change():
    weights = tiny.weights()
    assert {name: array.shape for name, array in weights.items()} == parameter_shapes(tiny.CONFIG)
    assert sum(array.size for array in weights.values()) == tiny.CONFIG.parameters
    digest = hashlib.sha256(b"".join(array.tobytes() for array in weights.values())).hexdigest()
    assert digest == "6d59ce3b68439c97ce849d614f06e8c1c23ea417540dcf104325baf164ff6ae0"
    assert (tiny.weights(seed=1)["embed"] != weights["embed"]).any()


def test_writes_readable_nonsense():
    model = open_model("tiny")
    prompt = model.tokenizer.encode("The capital of France is")
    tokens = list(greedy(ReferenceLlama(model.config, model.weights), prompt, 32))
    assert model.tokenizer.decode(tokens) == "vvvlkrvvhgpbqkihxmldbouirv,jlkfx"


def test_any_size_and_tied():
    config = dataclasses.replace(tiny.CONFIG, layers=3, width=32, heads=2, vocab=64, tied=True)
    weights = tiny.weights(config)
    assert {name: array.shape for name, array in weights.items()} == parameter_shapes(config)
    np.testing.assert_array_equal(weights["head"], weights["embed"].T)
