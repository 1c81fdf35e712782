"""The tiny model through the paged cache: the same tokens, whatever happens around them."""

import random
from functools import cache

import numpy as np
import pytest

from relaxlab.models.paged_llama import PagedLlama
from relaxlab.models.reference import ReferenceLlama, greedy
from relaxlab.runtime.kv import invariants
from relaxlab.runtime.kv.snapshot import fold as fold_cache
from relaxlab.runtime.kv.snapshot import snapshot
from relaxlab.serve.engine import Engine
from relaxlab.serve.events import Admitted, Preempted, PrefixHit, Resumed, Retried, fold
from relaxlab.serve.sampler import Sampling
from relaxlab.serve.scheduler import Limits
from tests.serve.real_model import Failing, breakable, fresh

PROMPT = tuple(b"the pages of a book are turned one by one")


@pytest.fixture(scope="module")
def compiled(tiny_model):
    return PagedLlama(tiny_model, "numpy", page_size=8, capacity=256)


@pytest.fixture(scope="module")
def plain(tiny_model):
    return ReferenceLlama(tiny_model.config, dict(tiny_model.weights))


@pytest.fixture(scope="module")
def isolated(compiled):
    """The answer to a request that has the cache for itself."""

    @cache
    def answer(prompt, index=0, max_tokens=16, sampling=None):
        engine = Engine(fresh(compiled, page_size=8, capacity=512), prefix=None)
        sampling = (sampling or Sampling()).reseeded(index)
        request = engine.submit(prompt, max_tokens=max_tokens, sampling=sampling)
        engine.run()
        return engine.output(request)

    return answer


def _checked(engine, llama, events, *, joining=(), cancel=(), seed=0):
    """Serve to the end; submit a few per step, cancel some, check everything after every step."""
    draw, waiting, made = random.Random(seed), list(joining), []
    state, folded, steps = fold([]), 0, 0
    cache_events, cache_state = [], snapshot(llama.cache)
    llama.cache.observer = cache_events.append
    while waiting or engine.busy:
        for _ in range(draw.randrange(4)):
            if waiting:
                wish = dict(waiting.pop(0))
                made.append((wish, engine.submit(**wish)))
        if steps in cancel and made:
            engine.cancel(draw.choice(made)[1])
        engine.step()
        steps += 1
        invariants.check(llama.cache)
        if engine.prefix.tree is not None:
            engine.prefix.tree.check()
        state, folded = fold(events[folded:], state), len(events)
        assert state == engine.snapshot()
        cache_state = fold_cache(cache_events, cache_state)
        cache_events.clear()
        assert cache_state == snapshot(llama.cache)
        assert steps < 3000, "it does not end"
    return made


def _all_pages_come_back(engine, llama):
    engine.prefix.clear()
    engine.prefix.sweep()
    invariants.check(llama.cache)
    assert llama.cache.empty()


def test_weights_are_decoded_when_they_are_first_needed(tiny_model):
    llama = PagedLlama(tiny_model, "numpy", page_size=8, capacity=64)
    llama.add_sequence(0)
    assert "params" not in vars(llama)
    llama.run([0], [2], [1, 2], [1])
    assert len(vars(llama)["params"]) == len(tiny_model.weights)


def test_logits_equal_the_reference_in_chunks_and_token_by_token(compiled, plain):
    llama = fresh(compiled, page_size=4, capacity=64)
    expected = plain.forward(PROMPT, plain.cache(64), all_positions=True)
    llama.add_sequence(0)
    got = llama.run([0], [7], PROMPT[:7], range(7))
    np.testing.assert_allclose(got, expected[:7], rtol=1e-4, atol=1e-5)
    got = llama.run([0], [9], PROMPT[7:16], [8])
    np.testing.assert_allclose(got[0], expected[15], rtol=1e-4, atol=1e-5)
    for at in range(16, 20):
        got = llama.run([0], [1], [PROMPT[at]], [0])
        np.testing.assert_allclose(got[0], expected[at], rtol=1e-4, atol=1e-5)


def test_a_batch_of_lengths_gives_the_logits_of_each_alone(compiled, plain):
    llama = fresh(compiled, page_size=4, capacity=128)
    lengths = [1, 4, 5, 11]
    for sequence in range(4):
        llama.add_sequence(sequence)
    tokens = [t for n in lengths for t in PROMPT[:n]]
    ends = np.cumsum(lengths) - 1
    got = llama.run(range(4), lengths, tokens, ends)
    for row, n in zip(got, lengths, strict=True):
        expected = plain.forward(PROMPT[:n], plain.cache(n))
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("page_size", [1, 3, 8, 16])
def test_greedy_tokens_are_the_references_for_every_page_size(compiled, plain, page_size):
    llama = fresh(compiled, page_size=page_size, capacity=128)
    engine = Engine(llama)
    request = engine.submit(PROMPT, max_tokens=24)
    engine.run()
    assert engine.output(request) == tuple(greedy(plain, PROMPT, 24))


def test_keys_and_values_come_back_from_the_host_as_they_were(compiled):
    llama = fresh(compiled, page_size=4, capacity=128, chunk=8)
    for first in range(0, 24, 8):
        if not first:
            llama.add_sequence(0)
        llama.run([0], [8], PROMPT[first : first + 8], [])
    saved = llama.save(0, 24)
    llama.fork_sequence(0, 1, 8)
    llama.remove_sequence(0)
    llama.restore(1, saved, 8)
    again = llama.save(1, 24)
    assert all(np.array_equal(a, b) for a, b in zip(saved, again, strict=True))
    invariants.check(llama.cache)
    with pytest.raises(RuntimeError, match=r"[Pp]age"):
        llama.restore(1, (np.zeros((2, 200, 2, 16), np.float32),) * 2, 24)


def test_a_tree_gives_the_logits_of_its_paths_and_commits_one(compiled, plain):
    llama = fresh(compiled, page_size=4, capacity=64)
    llama.add_sequence(0)
    llama.run([0], [6], PROMPT[:6], [5])
    tokens, parents = [10, 20, 30, 40, 50], [-1, 0, 0, 2, 1]
    got = llama.run([0], [5], tokens, range(5), parents)
    for node, path in enumerate([[10], [10, 20], [10, 30], [10, 30, 40], [10, 20, 50]]):
        whole = [*PROMPT[:6], *path]
        expected = plain.forward(whole, plain.cache(len(whole)))
        np.testing.assert_allclose(got[node], expected, rtol=1e-4, atol=1e-5)
    llama.commit([0], [3])
    got = llama.run([0], [1], [60], [0])
    whole = [*PROMPT[:6], 10, 30, 40, 60]
    np.testing.assert_allclose(got[0], plain.forward(whole, plain.cache(10)), rtol=1e-4, atol=1e-5)
    invariants.check(llama.cache)


@pytest.mark.parametrize("length", [8, 16, 40])
def test_a_fully_cached_prompt_of_whole_pages_gives_the_right_logits(compiled, plain, length):
    llama = fresh(compiled, page_size=8, capacity=256)
    engine = Engine(llama)
    answers = []
    for _ in range(4):
        request = engine.submit(PROMPT[:length], max_tokens=12)
        engine.run()
        answers.append(engine.output(request))
    assert set(answers) == {tuple(greedy(plain, PROMPT[:length], 12))}
    assert engine.snapshot().hits == (3 if length > 8 else 0)


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_a_preempted_request_is_readmitted_with_a_prefix_hit(compiled, isolated, mode):
    llama, events = fresh(compiled, page_size=8, capacity=56), []
    limits = Limits(preemption=mode, reserve=0)
    engine = Engine(llama, observer=events.append, limits=limits)
    wishes = [
        {"prompt": PROMPT[:18], "max_tokens": 30},
        {"prompt": (*PROMPT[:16], 7, 8), "max_tokens": 30},
    ]
    made = _checked(engine, llama, events, joining=wishes, seed=1)
    victims = {e.entry for e in events if isinstance(e, Preempted)}
    came_back = [e for e in events if isinstance(e, Admitted | Resumed) and e.entry in victims]
    hits = {e.sequence for e in events if isinstance(e, PrefixHit)}
    assert hits & {e.sequence for e in came_back[1:]}
    for wish, request in made:
        assert engine.output(request) == isolated(wish["prompt"], 0, 30)
    _all_pages_come_back(engine, llama)


def _wishes(seed, count):
    draw = random.Random(seed)
    for number in range(count):
        shared = PROMPT[: draw.choice([0, 8, 13, 16, 20])]
        own = tuple(draw.randrange(97, 123) for _ in range(draw.randrange(1, 6)))
        sampling = Sampling(temperature=draw.choice([0.0, 0.8]), top_p=0.9, seed=number)
        yield {
            "prompt": shared + own,
            "max_tokens": draw.randrange(1, 40 - len(shared) - len(own)),
            "sampling": sampling,
            "n": draw.choice([1, 1, 1, 2]),
            "priority": draw.choice([0, 0, 1]),
        }


def _equal_isolated(engine, made, isolated):
    for wish, request in made:
        for index in range(request.n):
            expected = isolated(wish["prompt"], index, wish["max_tokens"], wish["sampling"])
            got = engine.output(request, index)
            status = engine.entries(request)[index].status.value
            assert status in ("finished", "cancelled")
            assert got == (expected if status == "finished" else expected[: len(got)])


@pytest.mark.parametrize(
    ("mode", "index", "draft_tokens"),
    [("recompute", "radix", 0), ("swap", "hash", 4), ("recompute", None, 3), ("swap", "radix", 0)],
)
def test_forty_requests_under_pressure(compiled, isolated, mode, index, draft_tokens):
    # the longest request needs five pages; there are eight
    llama, events = fresh(compiled, page_size=8, capacity=56, chunk=32), []
    limits = Limits(preemption=mode, draft_tokens=draft_tokens, reserve=0)
    engine = Engine(llama, observer=events.append, limits=limits, prefix=index)
    made = _checked(engine, llama, events, joining=_wishes(2, 40), cancel={5, 17, 40, 90}, seed=2)
    assert len(made) == 40
    assert any(isinstance(e, Preempted) for e in events)
    _equal_isolated(engine, made, isolated)
    _all_pages_come_back(engine, llama)


def test_a_failure_at_each_operation_under_pressure(compiled, isolated):
    wishes = [{**wish, "max_tokens": min(wish["max_tokens"], 6)} for wish in _wishes(4, 7)]
    limits = Limits(preemption="swap", draft_tokens=3, reserve=0)

    def serve(fail_at):
        events = []
        with breakable() as family:
            llama = fresh(compiled, page_size=4, capacity=28, family=family)
        model = Failing(llama, fail_at)
        engine = Engine(model, observer=events.append, limits=limits)
        made = _checked(engine, model, events, joining=wishes)
        _equal_isolated(engine, made, isolated)
        assert not any(-n in fail_at for n in range(1, 999)) or any(
            "middle of a round" in e.error for e in events if isinstance(e, Retried)
        )
        model.fail_at = frozenset()
        _all_pages_come_back(engine, model)
        return model

    undisturbed = serve(())
    assert {"add_sequence", "fork_sequence", "remove_sequence", "popn", "run"} <= set(
        undisturbed.names
    )
    for operation, name in enumerate(undisturbed.names, 1):
        serve({operation})
        if name == "run":
            serve({-operation})
