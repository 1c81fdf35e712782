"""Rows of ``relaxlab bench llm`` on a small model: names, peers, and a peer that is not there."""

import sys
from types import SimpleNamespace

import pytest

from relaxlab.cli.bench import llm
from relaxlab.models.language_model import open_model

NAMES = ["smollm2_decode_b1", "smollm2_decode_b8", "smollm2_prefill_512_numpy"]
NAMES += ["smollm2_prefill_512"]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(llm, "open_model", lambda name: open_model("tiny"))
    monkeypatch.setattr(llm, "find_model", lambda name: "model.gguf")
    monkeypatch.setattr(llm, "_CONTEXT", 32)
    monkeypatch.setattr(llm, "_ROUNDS", 2)


def test_without_llama_cpp_its_row_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "llama_cpp", None)  # importing it fails
    rows = list(llm.rows())
    assert [row.name for row in rows] == NAMES
    assert [row.peer for row in rows] == ["numpy"] * 3 + ["llama.cpp"]
    assert all(row.ours > 0 for row in rows)
    assert rows[-1].peer_value is None
    assert rows[-1].ok is None


def test_llama_cpp_reads_the_same_prompt_from_the_start_each_time(monkeypatch):
    calls = []

    class Llama:
        def __init__(self, model_path, n_ctx, **others):
            assert model_path == "model.gguf"
            assert n_ctx >= 32

        def reset(self):
            calls.append("reset")

        def eval(self, tokens):
            calls.append(len(tokens))

    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=Llama))
    row = list(llm.rows())[-1]
    assert row.peer_value > 0
    assert row.ok is not None
    assert calls == ["reset", 32] * 4
