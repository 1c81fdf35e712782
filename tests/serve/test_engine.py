"""The engine on a paper model: continuous batching, order, cancellation, forks, speculation."""

from functools import cache

import pytest

from relaxlab.serve.engine import Engine
from relaxlab.serve.events import Admitted, Evicted, Forked, Preempted, Scheduled, fold
from relaxlab.serve.sampler import Sampling
from relaxlab.serve.scheduler import Limits
from tests.serve.paper_model import PaperModel


def alone(prompt, index=0, *, sampling=None, **wishes):
    """The answer to a request that has everything for itself."""
    for no_matter in ("n", "priority"):
        wishes.pop(no_matter, None)
    sampling = (sampling or Sampling()).reseeded(index)
    return _alone(tuple(prompt), sampling, **wishes)


@cache
def _alone(prompt, sampling, *, period=0, context=4096, **wishes):
    model = PaperModel(total_pages=4096, period=period, chunk=4096, context=context)
    engine = Engine(model, prefix=None)
    request = engine.submit(prompt, sampling=sampling, **wishes)
    engine.run()
    return engine.output(request)


def checked(engine, model, events):
    """Run to the end with every invariant checked after every step."""
    outputs = []
    while engine.busy:
        outputs += engine.step()
        model.check()
        if engine.prefix.tree is not None:
            engine.prefix.tree.check()
            model.check_tree(engine.prefix.tree)
        assert fold(events) == engine.snapshot()
    return outputs


def all_pages_come_back(engine, model):
    engine.prefix.clear()
    engine.prefix.sweep()
    assert model.available_pages() == model.total_pages
    assert not model.tokens


def test_one_request_is_prefilled_and_decoded():
    model, events = PaperModel(), []
    engine = Engine(model, observer=events.append)
    request = engine.submit([1, 2, 3], max_tokens=5)
    outputs = checked(engine, model, events)
    assert [len(o.tokens) for o in outputs] == [1] * 5
    assert [o.finished for o in outputs] == [None] * 4 + ["length"]
    assert engine.output(request) == alone([1, 2, 3], max_tokens=5)
    assert model.computed == 3 + 4
    all_pages_come_back(engine, model)


def test_requests_join_and_leave_a_running_batch():
    model, events = PaperModel(total_pages=64), []
    engine = Engine(model, observer=events.append)
    first = engine.submit([1, 2, 3], max_tokens=9)
    engine.step()
    engine.step()
    second = engine.submit([4, 5], max_tokens=2)
    checked(engine, model, events)
    batches = [len(e.batch) for e in events if isinstance(e, Scheduled)]
    assert batches == [1, 1, 2, 2, 1, 1, 1, 1, 1]
    assert engine.output(first) == alone([1, 2, 3], max_tokens=9)
    assert engine.output(second) == alone([4, 5], max_tokens=2)


def test_a_long_prompt_is_read_in_chunks_beside_a_decode():
    model, events = PaperModel(total_pages=64, chunk=8), []
    engine = Engine(model, observer=events.append)
    engine.submit([7], max_tokens=8)
    engine.step()
    prompt = [i % 13 for i in range(20)]
    late = engine.submit(prompt, max_tokens=2)
    checked(engine, model, events)
    shares = [dict(e.batch) for e in events if isinstance(e, Scheduled)]
    assert [s.get(late and (late.number, 0)) for s in shares[:6]] == [None, 7, 7, 6, 1, None]
    assert all(s[0, 0] == 1 for s in shares)  # the decode never waits
    assert engine.output(late) == alone(prompt, max_tokens=2)


def test_the_urgent_and_then_the_early_go_first():
    model, events = PaperModel(), []
    engine = Engine(model, limits=Limits(running=1), observer=events.append)
    for priority in (1, 0, 1, 0):
        engine.submit([1, 2], max_tokens=2, priority=priority)
    checked(engine, model, events)
    assert [e.entry[0] for e in events if isinstance(e, Admitted)] == [1, 3, 0, 2]


def test_an_urgent_request_takes_the_pages_of_a_less_urgent_one():
    model, events = PaperModel(total_pages=6), []
    engine = Engine(model, observer=events.append)
    slow = engine.submit([1, 2, 3, 4, 5, 6, 7, 8], max_tokens=12, priority=5)
    engine.step()
    fast = engine.submit([9] * 15, max_tokens=3, priority=0)
    checked(engine, model, events)
    preempted = [e for e in events if isinstance(e, Preempted)]
    assert preempted[0].entry == (slow.number, 0)
    assert "more urgent" in preempted[0].reason
    assert engine.output(slow) == alone([1, 2, 3, 4, 5, 6, 7, 8], max_tokens=12)
    assert engine.output(fast) == alone([9] * 15, max_tokens=3)


def test_a_cancelled_request_gives_its_pages_back_at_once():
    model, events = PaperModel(), []
    engine = Engine(model, observer=events.append, prefix=None)
    running = engine.submit([1] * 9, max_tokens=20)
    waiting = engine.submit([2] * 60, max_tokens=2)
    engine.step()
    engine.cancel(running)
    engine.cancel(waiting)
    assert model.available_pages() == model.total_pages
    assert not engine.busy
    assert fold(events) == engine.snapshot()
    engine.cancel(running)  # once more changes nothing
    assert fold(events) == engine.snapshot()


@pytest.mark.parametrize("length", [3, 4, 8, 9])
def test_answers_of_one_request_share_its_prompt(length):
    model, events = PaperModel(total_pages=64), []
    engine = Engine(model, observer=events.append)
    wishes = {"max_tokens": 6, "sampling": Sampling(temperature=1.0, seed=5), "n": 3}
    prompt = list(range(1, length + 1))
    request = engine.submit(prompt, **wishes)
    engine.step()
    assert sum(isinstance(e, Forked) for e in events) == 2
    assert model.computed == length  # once, not three times
    checked(engine, model, events)
    answers = [engine.output(request, i) for i in range(3)]
    assert answers == [alone(prompt, i, **wishes) for i in range(3)]
    assert len(set(answers)) > 1
    all_pages_come_back(engine, model)


def test_each_answer_pins_the_prefix_that_it_was_forked_with():
    model = PaperModel(total_pages=64)
    engine = Engine(model)
    engine.submit(range(1, 9), max_tokens=1)
    engine.run()
    request = engine.submit(range(1, 10), max_tokens=6, n=3)
    engine.step()
    assert {node.pins for node in engine.snapshot().nodes.values()} == {3}
    engine.cancel(request, 1)
    assert max(node.pins for node in engine.snapshot().nodes.values()) == 2
    engine.run()
    assert {node.pins for node in engine.snapshot().nodes.values()} == {0}


def test_answers_that_cannot_be_forked_now_are_computed_later():
    model, events = PaperModel(total_pages=4), []
    engine = Engine(model, observer=events.append)
    request = engine.submit([1, 2, 3, 4, 5], max_tokens=8, n=4)
    checked(engine, model, events)
    assert {engine.output(request, i) for i in range(4)} == {alone([1, 2, 3, 4, 5], max_tokens=8)}


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_speculation_changes_the_number_of_rounds_and_no_token(temperature, width):
    model, events = PaperModel(total_pages=64, period=2), []
    limits = Limits(draft_tokens=5, draft_width=width)
    engine = Engine(model, observer=events.append, limits=limits)
    sampling = Sampling(temperature=temperature, seed=1)
    requests = [engine.submit([1, 2, i], max_tokens=40, sampling=sampling) for i in range(3)]
    checked(engine, model, events)
    for i, request in enumerate(requests):
        expected = alone([1, 2, i], max_tokens=40, sampling=sampling, period=2)
        assert engine.output(request) == expected
    state = engine.snapshot()
    assert state.proposed >= state.accepted
    rounds = sum(isinstance(e, Scheduled) for e in events)
    if not temperature:  # the greedy text of this model runs in circles
        assert state.accepted > 60
        assert rounds < 30
    all_pages_come_back(engine, model)


def test_stop_tokens_end_an_answer_in_the_middle_of_an_accepted_guess():
    model, events = PaperModel(total_pages=64, period=2), []
    plain = alone([1, 2], max_tokens=40, period=2)
    stop = plain[20]
    engine = Engine(model, observer=events.append, limits=Limits(draft_tokens=6))
    request = engine.submit([1, 2], max_tokens=40, stop_tokens=[stop])
    outputs = checked(engine, model, events)
    assert engine.output(request) == plain[: plain.index(stop) + 1]
    assert outputs[-1].finished == "stop"


def test_the_context_ends_an_answer():
    model, events = PaperModel(context=10), []
    engine = Engine(model, observer=events.append, limits=Limits(draft_tokens=4))
    request = engine.submit([1] * 8, max_tokens=30)
    outputs = checked(engine, model, events)
    assert len(engine.output(request)) == 3  # ten in the cache, and what follows them
    assert outputs[-1].finished == "length"


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_preemption_under_pressure_loses_nothing(mode):
    model, events = PaperModel(total_pages=7), []
    limits = Limits(preemption=mode, reserve=0)
    engine = Engine(model, observer=events.append, limits=limits)
    requests = [engine.submit([i] * 6, max_tokens=14) for i in range(4)]
    checked(engine, model, events)
    preempted = [e for e in events if isinstance(e, Preempted)]
    assert {e.mode for e in preempted} == {mode}
    assert all("largest rank" in e.reason for e in preempted)
    for i, request in enumerate(requests):
        assert engine.output(request) == alone([i] * 6, max_tokens=14)
    if mode == "swap":  # every token was computed once
        assert model.computed == 4 * (6 + 13)
    all_pages_come_back(engine, model)


def test_the_same_prompt_four_times_gives_the_same_answer():
    model, events = PaperModel(total_pages=64), []
    engine = Engine(model, observer=events.append)
    prompt = list(range(12))  # a multiple of the page: all of it is cached from the second time on
    answers = []
    for _ in range(4):
        request = engine.submit(prompt, max_tokens=3)
        checked(engine, model, events)
        answers.append(engine.output(request))
    assert set(answers) == {alone(prompt, max_tokens=3)}
    assert engine.snapshot().hits == 3
    assert model.computed == (12 + 2) + 3 * (4 + 2)  # the last page runs again, for its logits


@pytest.mark.parametrize("index", ["radix", "hash"])
def test_a_prompt_that_begins_like_a_running_one_shares_its_pages(index):
    model, events = PaperModel(total_pages=64), []
    engine = Engine(model, observer=events.append, prefix=index)
    first = engine.submit([1, 2, 3, 4, 5, 6, 7, 8, 9], max_tokens=12)
    engine.step()
    engine.step()
    second = engine.submit([1, 2, 3, 4, 5, 6, 7, 8, 10, 11], max_tokens=3)
    checked(engine, model, events)
    assert engine.snapshot().hit_tokens == 8
    assert engine.output(first) == alone([1, 2, 3, 4, 5, 6, 7, 8, 9], max_tokens=12)
    assert engine.output(second) == alone([1, 2, 3, 4, 5, 6, 7, 8, 10, 11], max_tokens=3)
    assert model.computed == (9 + 11) + (2 + 2)
    all_pages_come_back(engine, model)


@pytest.mark.parametrize("chunk", [5, 16])
def test_of_equal_beginnings_that_come_together_one_is_computed(chunk):
    model, events = PaperModel(total_pages=64, chunk=chunk), []
    engine = Engine(model, observer=events.append)
    prompts = [[1, 2, 3, 4, 5, 6, 7, 8, 9, last] for last in range(4)]
    requests = [engine.submit(prompt, max_tokens=2) for prompt in prompts]
    checked(engine, model, events)
    assert model.computed == (10 + 3 * 2) + 4
    for prompt, request in zip(prompts, requests, strict=True):
        assert engine.output(request) == alone(prompt, max_tokens=2)
    all_pages_come_back(engine, model)


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"prompt": []}, "empty"),
        ({"prompt": [13]}, "token 13"),
        ({"prompt": [1] * 5000}, "context"),
        ({"prompt": [1] * 100}, "pool has 16"),
        ({"prompt": [1], "max_tokens": 0}, "max_tokens"),
        ({"prompt": [1], "n": 0}, "n:"),
        ({"prompt": "text"}, "tokenizer"),
        ({"prompt": [1], "stop": ["x"]}, "stop_tokens"),
    ],
)
def test_what_can_never_be_answered_is_refused(wishes, words):
    engine = Engine(PaperModel())
    with pytest.raises(ValueError, match=words):
        engine.submit(**wishes)
    assert not engine.busy
    assert engine.snapshot().entries == {}


@pytest.mark.parametrize("index", ["radix", "hash"])
@pytest.mark.parametrize("policy", ["lru", "lfu", "fifo"])
def test_under_pressure_evictions_tell_why(index, policy):
    model, events = PaperModel(total_pages=8), []
    engine = Engine(model, observer=events.append, prefix=index, policy=policy)
    for i in range(6):
        engine.submit([i % 3, 5, 5, 5, i, 6, 6, 6, 1], max_tokens=8)
        checked(engine, model, events)
    evicted = [e for e in events if isinstance(e, Evicted)]
    assert evicted
    assert all(e.policy == policy and e.reason.startswith(policy) for e in evicted)
    all_pages_come_back(engine, model)
