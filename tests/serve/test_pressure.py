"""A pool for one and a half requests: shared prefixes, cancellations, failures everywhere."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relaxlab.serve.engine import Engine
from relaxlab.serve.events import Preempted, Retried, fold
from relaxlab.serve.sampler import Sampling
from relaxlab.serve.scheduler import Limits
from tests.serve.paper_model import PaperModel
from tests.serve.test_engine import all_pages_come_back, alone


def _wishes(seed, count, longest=24):
    """Requests of up to ``longest`` tokens in all, many with a common beginning."""
    draw = random.Random(seed)
    stems = [[draw.randrange(13) for _ in range(8)] for _ in range(3)]
    for _ in range(count):
        prompt = draw.choice(stems)[: draw.randrange(9)] + [
            draw.randrange(13) for _ in range(draw.randrange(1, 7))
        ]
        sampling = Sampling(
            temperature=draw.choice([0.0, 0.0, 0.9]),
            top_k=draw.choice([0, 4]),
            repetition_penalty=draw.choice([1.0, 1.3]),
            seed=draw.randrange(99),
        )
        yield {
            "prompt": prompt,
            "max_tokens": draw.randrange(1, longest - len(prompt)),
            "sampling": sampling,
            "n": draw.choice([1, 1, 1, 2]),
            "priority": draw.choice([0, 0, 1]),
        }


def _serve(model, wishes, *, cancel=(), seed=0, **choices):
    """Submit a few requests per step, cancel some, check everything after every step."""
    draw, events, waiting = random.Random(seed), [], list(wishes)
    engine = Engine(model, observer=events.append, **choices)
    made, steps, state, folded = [], 0, fold([]), 0
    while waiting or engine.busy:
        for _ in range(draw.randrange(4)):
            if waiting:
                wish = dict(waiting.pop(0))
                made.append((wish, engine.submit(wish["prompt"], **_rest(wish))))
        if steps in cancel and made:
            engine.cancel(draw.choice(made)[1])
        engine.step()
        steps += 1
        model.check()
        if engine.prefix.tree is not None:
            engine.prefix.tree.check()
            model.check_tree(engine.prefix.tree)
        state, folded = fold(events[folded:], state), len(events)
        assert state == engine.snapshot()
        assert steps < 5000, "it does not end"
    return engine, made, events


def _rest(wish):
    return {key: value for key, value in wish.items() if key != "prompt"}


def _answers_equal_isolated_runs(engine, made, *, period=0, may_fail=False):
    for wish, request in made:
        for index in range(request.n):
            expected = alone(wish["prompt"], index, period=period, **_rest(wish))
            got = engine.output(request, index)
            status = engine.entries(request)[index].status.value
            if status == "finished":
                assert got == expected, f"request {request.number}.{index}"
            else:  # what came before the end is right all the same
                assert status == "cancelled" or (may_fail and status == "failed")
                assert got == expected[: len(got)]


@pytest.mark.parametrize("mode", ["recompute", "swap"])
@pytest.mark.parametrize("index", ["radix", "hash", None])
@pytest.mark.parametrize("draft_tokens", [0, 3])
def test_forty_requests_under_pressure(mode, index, draft_tokens):
    model = PaperModel(total_pages=9, period=3)  # 24 tokens are 6 pages
    limits = Limits(preemption=mode, draft_tokens=draft_tokens, reserve=0)
    engine, made, events = _serve(
        model, _wishes(1, 40), cancel={3, 11, 19, 40, 70}, limits=limits, prefix=index
    )
    _answers_equal_isolated_runs(engine, made, period=3)
    assert any(isinstance(e, Preempted) for e in events)
    assert len(made) == 40
    all_pages_come_back(engine, model)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 10**6),
    pages=st.integers(6, 14),
    mode=st.sampled_from(["recompute", "swap"]),
    index=st.sampled_from(["radix", "hash", None]),
    policy=st.sampled_from(["lru", "lfu", "fifo"]),
    draft_tokens=st.sampled_from([0, 2, 5]),
    reserve=st.integers(0, 2),
    running=st.integers(1, 8),
    chunk=st.integers(1, 20),
    failures=st.frozensets(st.integers(-400, 400), max_size=12),
    cancel=st.frozensets(st.integers(0, 60), max_size=6),
)
def test_random_pressure_and_failures(
    seed, pages, mode, index, policy, draft_tokens, reserve, running, chunk, failures, cancel
):
    model = PaperModel(total_pages=pages, period=2, chunk=chunk, fail_at=failures)
    limits = Limits(
        preemption=mode,
        draft_tokens=draft_tokens,
        reserve=reserve,
        running=running,
    )
    engine, made, _ = _serve(
        model,
        _wishes(seed, 12),
        cancel=cancel,
        seed=seed,
        limits=limits,
        prefix=index,
        policy=policy,
    )
    _answers_equal_isolated_runs(engine, made, period=2)
    model.fail_at = frozenset()
    all_pages_come_back(engine, model)


def test_a_failure_at_each_operation_under_pressure():
    choices = {"limits": Limits(draft_tokens=3, preemption="swap"), "seed": 2}
    undisturbed = PaperModel(total_pages=9, period=2)
    _serve(undisturbed, _wishes(7, 8), **choices)
    assert {"add", "fork", "remove", "popn", "run", "commit"} <= set(undisturbed.names)
    for operation in range(1, undisturbed.operations + 1):
        for place in (operation, -operation):  # before a round, and in the middle of it
            model = PaperModel(total_pages=9, period=2, fail_at=frozenset([place]))
            engine, made, events = _serve(model, _wishes(7, 8), **choices)
            _answers_equal_isolated_runs(engine, made, period=2)
            all_pages_come_back(engine, model)
            if undisturbed.names[operation - 1] in ("add", "fork", "run", "commit", "restore"):
                injected = any(isinstance(e, Retried) for e in events)
                assert injected or place < 0 or undisturbed.names[operation - 1] == "fork"


def test_what_never_works_under_pressure_is_given_up():
    model = PaperModel(fail_at=frozenset(range(1, 10_000)))
    engine = Engine(model, limits=Limits(retries=3))
    request = engine.submit([1, 2, 3], max_tokens=4)
    outputs = list(engine.stream())
    assert [o.finished for o in outputs] == ["failed"]
    assert engine.entries(request)[0].retries == 4
    model.fail_at = frozenset()
    again = engine.submit([1, 2, 3], max_tokens=4)
    engine.run()
    assert engine.output(again) == alone([1, 2, 3], max_tokens=4)
