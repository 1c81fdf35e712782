"""The stepper with its pages: they stand at the same moment, whoever moves."""

import json
from random import Random

import pytest
import traitlets

from relaxlab.runtime.device import cpu
from relaxlab.runtime.vm import VirtualMachine
from relaxlab.trace import DebugSession, PoolRecorder, render_pool
from relaxlab.widgets import PagedStepper, VMStepper
from tests.trace.conftest import build, count_down
from tests.trace.pool_runs import new_cache, paged_program
from tests.widgets.conftest import page_of


@pytest.fixture
def view():
    return PagedStepper(paged_program(), "main", new_cache())


def at(view, function, name):
    """Return the step of the first call of a builtin."""
    texts = view.trace["code"]["text"]
    pcs = [pc for pc, text in zip(view.trace["code"]["pc"], texts, strict=True) if name in text]
    return min(step for pc in pcs for step in view.session.timeline.visits(pc))


def test_a_step_over_begin_forward_moves_the_pages(view):
    begin = at(view, "main", "kv_state_begin_forward")
    view.goto(begin)
    used = [12 - view.pages.state(view.event).available]
    view.step()
    used.append(12 - view.pages.state(view.event).available)
    assert used == [0, 2]  # six tokens in pages of four
    view.back()
    assert 12 - view.pages.state(view.event).available == 0
    assert "0 of 12 pages in use" in str(view)
    assert "kv_state_begin_forward" in str(view)


def test_the_pages_lead_the_stepper_to_the_instruction_that_made_the_event(view):
    for event in range(len(view.pages) + 1):
        view.event = event
        assert view._clock.agree(view.position, event)
        if event < len(view.pages) and view.pages.call(event + 1) is not None:
            called = view.pages.call(event + 1).call.partition("(")[0]
            if view._clock.events_before(view.position) < event:  # inside the instruction
                pc = view.session.frame.pc
                text = view.trace["code"]["text"][view.trace["code"]["pc"].index(pc)]
                assert called in text


def test_whoever_moves_both_agree(view):
    random = Random(0)
    page = page_of(view)
    end, events = view.session.timeline.end, len(view.pages)
    for _ in range(60):
        match random.randrange(4):
            case 0:
                getattr(view, random.choice(["step", "back", "over", "out", "continue_"]))()
            case 1:
                view.goto(random.randint(0, end))
            case 2:
                view.event = random.randint(0, events)
            case 3:
                page.says(event=random.randint(0, events))
        assert view.session.position == view.position
        assert view._clock.agree(view.position, view.event)


def test_what_a_page_says_in_one_message_is_taken_as_it_is(view):
    page = page_of(view)
    step = at(view, "main", "kv_state_begin_forward")
    event = view._clock.events_before(step) + 2  # inside the instruction
    sent = len(page.states())
    visits = {"count": view.visits["count"] + 1, "last": [*view.visits["last"], [step, -1]]}
    page.says(position=step, visits=visits, event=event)
    assert (view.position, view.event) == (step, event)
    # nothing contradicts it: an answer would pull a page back that went on
    moved = [one for one in page.states()[sent:] if "position" in one or "event" in one]
    assert all(one.get("event", event) == event for one in moved)
    assert all(one.get("position", step) == step for one in moved)


def test_the_twin_is_both_twins(view):
    view.goto(9)
    assert str(view) == f"{view.session}\n\n{render_pool(view.pages, view.event)}"
    assert repr(view).startswith(
        f"PagedStepper(main, step 9 of {view.session.timeline.end}, event "
    )
    json.dumps([view.pool, view.clock], allow_nan=False)


def test_a_recorded_cache_or_a_session_may_be_given():
    cache = new_cache()
    recorder = PoolRecorder.of(cache, name="mine")
    cache.add_sequence(4)
    view = PagedStepper(VirtualMachine(paged_program(), cpu()), "main", cache)
    assert view.pages.name == "mine"
    assert view.event > 0  # what happened before
    session = DebugSession(VirtualMachine(paged_program(), cpu()), "main", new_cache())
    with pytest.raises(ValueError, match="no cache of this run is recorded"):
        PagedStepper(session)
    assert len(view.pages) == len(recorder.events)


def test_what_cannot_be_shown_is_refused():
    machine = build(("down", 1, ["n"], count_down))
    with pytest.raises(ValueError, match="expected a PagedAttentionKVCache among the arguments"):
        PagedStepper(machine, "down", 3)
    cache = new_cache()
    cache.add_sequence(0)
    with pytest.raises(ValueError, match="new or cleared"):
        PagedStepper(paged_program(), "main", cache)
    view = PagedStepper(paged_program(), "main", new_cache())
    with pytest.raises(traitlets.TraitError, match="no event"):
        view.event = len(view.pages) + 1


def test_dropped_steps_do_not_part_them():
    view = PagedStepper(paged_program(40), "main", new_cache(40), limit=20)
    first = view.session.timeline.first_step
    assert first > 0
    view.event = 0
    assert (view.position, view.event) == (first, 0)
    view.step()
    assert view._clock.agree(view.position, view.event)


def test_a_fork_is_a_stepper_of_its_own(view):
    fork = view.goto(4).fork(1, "other")
    assert isinstance(fork, VMStepper)
    assert not isinstance(fork, PagedStepper)
