"""SmolLM2 through the paged cache: llama.cpp's greedy tokens in every situation."""

import pytest

from relaxlab.runtime.kv import invariants
from relaxlab.serve.engine import Engine
from relaxlab.serve.events import Drafted, Preempted, Resumed
from relaxlab.serve.scheduler import Limits
from tests.models.test_generate import PROMPT, TOKENS
from tests.serve.real_model import fresh

EXPECTED = tuple(map(int, TOKENS.split()))

OTHERS = [
    "Hello",
    "The sun rises in the east and sets in the",
    "1, 2, 3, 4, 5, 6,",
    "Once upon a time there was a small village where nobody had ever seen the sea, and",
    "def add(a, b):",
    "Water boils at",
    "A list of colours: red, green, blue, and also a few that people seldom name, such as",
]


@pytest.fixture(scope="module")
def prompt(smollm2):
    return smollm2.tokenizer.encode(PROMPT)


def _serve(llama, prompts, *, events=None, lengths=None, **choices):
    engine = Engine(llama, observer=None if events is None else events.append, **choices)
    lengths = lengths or [32] * len(prompts)
    requests = [engine.submit(p, max_tokens=n) for p, n in zip(prompts, lengths, strict=True)]
    while engine.busy:
        engine.step()
        invariants.check(llama.cache)
    return [engine.output(request) for request in requests], engine


@pytest.mark.parametrize("page_size", [4, 16])
def test_alone(smollm2_paged, prompt, page_size):
    llama = fresh(smollm2_paged, page_size=page_size, capacity=64)
    assert _serve(llama, [prompt])[0] == [EXPECTED]


def test_in_a_batch_of_eight_lengths(smollm2, smollm2_paged, prompt):
    others = [smollm2.tokenizer.encode(text) for text in OTHERS]
    assert len({len(tokens) for tokens in others}) > 4
    llama = fresh(smollm2_paged, page_size=16, capacity=1024)
    lengths = [6, 8, 5, 32, 4, 9, 3, 7]
    outputs, _ = _serve(llama, [*others[:3], prompt, *others[3:]], lengths=lengths)
    assert outputs[3] == EXPECTED


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_after_preemption_under_pressure(smollm2, smollm2_paged, prompt, mode):
    llama, events = fresh(smollm2_paged, page_size=4, capacity=52), []
    limits = Limits(preemption=mode, reserve=0)
    first = smollm2.tokenizer.encode("Once upon a time")
    outputs, engine = _serve(llama, [first, prompt], events=events, limits=limits)
    assert outputs[1] == EXPECTED
    (preempted,) = {e.entry for e in events if isinstance(e, Preempted)}
    assert preempted == (1, 0)
    assert (mode == "swap") == any(isinstance(e, Resumed) and e.restored > 8 for e in events)
    engine.prefix.clear()
    assert llama.cache.empty()


def test_with_a_prefix_hit(smollm2_paged, prompt):
    llama = fresh(smollm2_paged, page_size=4, capacity=256)
    engine = Engine(llama)
    for hits in range(2):
        request = engine.submit(prompt, max_tokens=32)
        engine.run()
        assert engine.output(request) == EXPECTED
        assert engine.snapshot().hit_tokens == 4 * hits
    whole = engine.submit([*prompt, *EXPECTED[:15]], max_tokens=17)  # 20 tokens, all cached
    engine.run()
    assert engine.output(whole) == EXPECTED[15:]
    assert engine.snapshot().hit_tokens == 4 + 16


def test_with_speculation(smollm2_paged, prompt):
    llama, events = fresh(smollm2_paged, page_size=16, capacity=256), []
    limits = Limits(draft_tokens=4, draft_width=2)
    outputs, _ = _serve(llama, [prompt], events=events, limits=limits)
    assert outputs == [EXPECTED]
    drafts = [e for e in events if isinstance(e, Drafted)]
    assert sum(e.proposed for e in drafts) > 10
    assert sum(e.accepted for e in drafts) > 0
