"""Steps and events of a cache on one clock; a second run from a cache as it was."""

import numpy as np
import pytest

from relaxlab.runtime.device import cpu
from relaxlab.runtime.kv.rnn_state import RNNState
from relaxlab.runtime.kv.snapshot import snapshot
from relaxlab.runtime.tensor import tensor
from relaxlab.runtime.vm import VirtualMachine
from relaxlab.trace import DebugSession, PoolClock, PoolRecorder, PoolTimeline
from relaxlab.trace.state_copy import copied_state
from tests.trace.pool_runs import new_cache, paged_program


@pytest.fixture
def cache():
    return new_cache()


@pytest.fixture
def session(cache):
    PoolRecorder.of(cache)
    return DebugSession(VirtualMachine(paged_program(), cpu()), "main", cache)


def test_the_clock_is_the_cache_before_every_step(session, cache):
    clock = session.pools[0]
    states = [snapshot(cache)]
    while not session.finished:
        session.step()
        states.append(snapshot(cache))
    pages = PoolTimeline.of(clock.recorder)
    assert len(states) == session.timeline.end + 1 == clock.end + 1
    for step, state in enumerate(states):
        assert pages.state(clock.events_before(step)) == state
    assert clock.events_before(clock.end) == len(pages)


def test_a_step_and_the_events_it_makes_agree(session):
    session.record()
    clock = session.pools[0]
    events = len(clock.recorder.events)
    for step in range(clock.end + 1):
        assert clock.agree(step, clock.events_before(step))
        assert clock.step_of(clock.events_before(step), near=step) == step
    for event in range(events + 1):
        for near in (0, 5, clock.end):
            step = clock.step_of(event, near)
            assert clock.agree(step, event)
            first, last = clock.events_before(step), clock.events_before(step + 1)
            assert first <= event < max(last, first + 1)
            nearer = [one for one in range(clock.end + 1) if clock.agree(one, event)]
            assert abs(step - near) == min(abs(one - near) for one in nearer)


def test_what_happened_before_and_after_the_run_belongs_to_its_ends(cache):
    recorder = PoolRecorder.of(cache)
    cache.add_sequence(5)
    before = len(recorder.events)
    session = DebugSession(VirtualMachine(paged_program(), cpu()), "main", cache).record()
    clock = session.pools[0]
    inside = len(recorder.events)
    cache.remove_sequence(5)
    assert clock.events_before(0) == before
    assert [clock.step_of(event, near=9) for event in range(before)] == [0] * before
    assert clock.events_before(clock.end) == inside < len(recorder.events)
    assert clock.step_of(len(recorder.events), near=3) == clock.end


def test_a_recording_that_lost_its_beginning_keeps_the_clock_of_the_rest(session):
    session.record()
    clock = session.pools[0]
    later = clock.since(7)
    for step in range(7, clock.end + 1):
        assert later.events_before(step) == clock.events_before(step)
    assert later.step_of(0, near=20) == 7
    assert later.to_data()[0][0] == 7


def test_a_recurrent_state_is_copied_as_well():
    def kernel(*arguments): ...

    state = RNNState(1, 3, 2, [kernel], [kernel], [tensor(np.zeros(2, "float32"))])
    state.add_sequence(0)
    before = state.snapshot()
    twin = copied_state(state)
    assert twin.snapshot() == before
    twin.add_sequence(1)
    assert state.snapshot() == before
    assert twin.snapshot() != before
    state.remove_sequence(0)
    assert 0 in twin.snapshot().sequences


def test_the_rows_of_a_copy_are_its_own(cache):
    cache.pages[0].array[:] = 3
    twin = copied_state(cache)
    cache.pages[0].array[:] = 7
    assert (twin.pages[0].array == 3).all()
    assert twin.kernels is cache.kernels
    assert twin.observer is None


def test_a_clock_of_nothing():
    clock = PoolClock(PoolRecorder(4, 2))
    assert (clock.events_before(3), clock.step_of(3, near=8)) == (0, 8)


def test_a_second_run_begins_with_the_cache_as_it_was(session, cache):
    session.record()
    end, events = snapshot(cache), len(session.pools[0].recorder.events)
    pages = PoolTimeline.of(session.pools[0].recorder)
    for step in (session.timeline.end - 1, 2, 9):
        session.goto(step)
        again = session.value(0, depth=0)
        assert again is not cache
        assert snapshot(again) == pages.state(session.pools[0].events_before(step))
    # nobody who holds the cache notices
    assert snapshot(cache) == end
    assert len(session.pools[0].recorder.events) == events
    fork = session.goto(4).fork(1, "other")
    assert fork.record().error is None
    assert fork.pools == []
    assert snapshot(cache) == end
    # and a restart is a run of its own
    assert session.restart().record().error is None
    assert snapshot(cache) == end
