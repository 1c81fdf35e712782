"""Prefill and decode in two processes of one machine, without MPI."""

import multiprocessing
import os
import time

import pytest

from relaxlab.models.paged_llama import PagedLlama
from relaxlab.models.reference import ReferenceLlama, greedy
from relaxlab.runtime.kv import invariants
from relaxlab.runtime.kv.observer import PagesSent, TokensSent
from relaxlab.serve.disaggregate import layout_of
from relaxlab.serve.engine import Engine
from relaxlab.serve.events import Retried
from relaxlab.serve.neighbour import Neighbour

LONG = list(b"the pages of a book are turned one by one")
LONGER = list(b"the pages of a book are turned one after the other")
SHORT = list(b"short")


def expected(model, prompt, count):
    return list(greedy(ReferenceLlama(model.config, dict(model.weights)), prompt, count))


def bytes_of(model, tokens):
    c = model.config
    return tokens * c.layers * 2 * c.kv_heads * c.head_dim * 4


def test_the_other_process_computes_what_is_missing_and_no_more(tiny_model):
    with Neighbour("tiny", page_size=8, capacity=256, chunk=16) as other:
        assert other.process != os.getpid()
        assert layout_of(other.llama).endswith(f"/{other.llama.total_pages}")
        engine = Engine(other.llama, remote=other.remote)
        for prompt in (LONG, LONGER, SHORT, LONG):
            request = engine.submit(prompt, max_tokens=8)
            while engine.busy:
                engine.step()
                invariants.check(other.llama.cache)
            if prompt is SHORT:
                engine.prefix.clear()  # the other side still has what this one forgets
            assert list(engine.output(request)) == expected(tiny_model, prompt, 8)
    work = other.work
    assert work.prompts == 3  # the short one was not worth asking
    shared = 32  # four full pages of a common beginning are here already
    missing = len(LONG) - 1 + len(LONGER) - 1 - shared + len(LONG) - 1
    assert work.bytes_put == bytes_of(tiny_model, missing)
    assert {type(event) for event in work.events} >= {TokensSent, PagesSent}
    assert (work.num_pages, work.page_size) == (other.llama.total_pages, 8)
    assert "has ended" in repr(other)
    assert other.close() is work


def test_whoever_dies_takes_no_answer_with_it(tiny_model):
    events = []
    other = Neighbour("tiny", page_size=8, capacity=256, chunk=8, rest=0.5)
    engine = Engine(other.llama, remote=other.remote, observer=events.append)
    away, here = (engine.submit(prompt, max_tokens=4) for prompt in (LONG, SHORT))
    while len(engine.output(here)) < 4:  # goes on while the long prompt is computed
        engine.step()
    assert not engine.output(away)
    other.kill()
    engine.run()
    (retried,) = (event for event in events if isinstance(event, Retried))
    assert "gone" in retried.error
    assert [list(engine.output(one)) for one in (away, here)] == [
        expected(tiny_model, prompt, 4) for prompt in (LONG, SHORT)
    ]
    after = engine.submit(LONGER, max_tokens=4)
    engine.run()
    assert list(engine.output(after)) == expected(tiny_model, LONGER, 4)
    engine.prefix.clear()
    assert other.llama.cache.empty()
    assert other.close() is None


def test_nobody_stays_behind():
    with pytest.raises(KeyError), Neighbour("tiny", capacity=64):
        raise KeyError
    forgotten = Neighbour("tiny", capacity=64)
    process = next(one for one in multiprocessing.active_children() if one.pid == forgotten.process)
    del forgotten.llama, forgotten.remote, forgotten  # a cell that was run again
    end = time.monotonic() + 30
    while process.is_alive():
        assert time.monotonic() < end
        time.sleep(0.05)
    assert multiprocessing.active_children() == []


def test_a_second_cache_has_no_place_in_the_memory(tiny_model):
    with Neighbour("tiny", page_size=8, capacity=64) as other:
        memory = other.remote._memory
        with memory.installed(), pytest.raises(RuntimeError, match="one memory, one cache"):
            PagedLlama(tiny_model, page_size=8, capacity=64, transfer=True)
