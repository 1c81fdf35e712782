"""The view of a page pool: what it holds, how it moves, what it refuses."""

import json

import pytest
import traitlets

from relaxlab.trace.pool_text import render_pool
from relaxlab.widgets import PagePool
from tests.trace.pool_runs import new_cache, story
from tests.widgets.conftest import page_of


@pytest.fixture
def view():
    return PagePool(story())


def test_the_recording_is_sent_once_and_small(view):
    json.dumps(view.pool, allow_nan=False)
    run = view.pool["runs"][0]
    events = len(view.timelines[0])
    assert len(run["stream"]) < 10 * events
    assert view.position == events


def test_moving(view):
    calls = view.timelines[0].calls
    assert view.goto(0).last_call().position == 0
    for at in calls[1:]:
        assert view.next_call().position == at
    assert view.next_call().position == view.end_of()
    assert view.step().position == view.end_of()
    assert view.last_call().position == calls[-1]
    assert view.back(3).step().position == calls[-1] - 2
    for wrong in (-1, view.end_of() + 1):
        with pytest.raises(traitlets.TraitError, match="no position"):
            view.goto(wrong)


def test_the_page_and_python_move_together(view):
    page = page_of(view)
    page.says(position=7)
    assert view.position == 7
    view.step()
    assert page.states()[-1] == {"position": 8}


def test_the_text_twin_is_the_state_there(view):
    for position in (0, 5, view.end_of()):
        assert str(view.goto(position)) == render_pool(view.timelines[0], position)


def test_two_recordings_stand_at_the_same_call():
    one, two = story(), story()
    two.name = "other"
    view = PagePool(one, two).goto(3)
    assert view.event_of(0) == view.timelines[0].calls[3]
    assert view.event_of(1) == view.timelines[1].calls[3]
    assert view.end_of() == len(view.timelines[0].calls)
    assert repr(view) == f"PagePool(story, other, call 3 of {view.end_of()})"
    assert "other: event" in str(view)
    assert view.goto(view.end_of()).event_of(0) == len(view.timelines[0])
    assert view.last_call().position == view.end_of() - 1
    assert view.next_call().position == view.end_of()


@pytest.mark.parametrize("wrong", [(), (new_cache(),), (1, 2, 3)])
def test_what_is_no_recording_is_refused(wrong):
    with pytest.raises(TypeError, match="one or two PoolRecorder"):
        PagePool(*wrong)
