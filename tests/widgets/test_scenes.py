"""Every scene is a real cache at work, and shows what its title says."""

import pytest

from relaxlab.runtime.kv.invariants import violations
from relaxlab.serve.events import Evicted, Preempted, PrefixHit
from relaxlab.trace.pool_events import Called
from relaxlab.widgets import PagePool, scenes


def states(view):
    return [timeline.state(len(timeline)) for timeline in view.timelines]


def events(view, kind, run=0):
    return [event for event in view.timelines[run].events if isinstance(event, kind)]


@pytest.mark.parametrize("name", scenes.names())
def test_a_scene_runs_and_leaves_a_sound_cache(name):
    view = scenes.scene(name)
    assert isinstance(view, PagePool)
    assert scenes.title(name).endswith(".")
    assert view.end_of() > 0
    for state in states(view):
        assert violations(state) == []
    assert str(view)


def test_there_are_at_least_twelve_and_an_unknown_one_is_refused():
    assert len(scenes.names()) >= 12
    with pytest.raises(KeyError, match="fork"):
        scenes.scene("forks")


def test_slabs_refuse_what_pages_admit():
    view = scenes.scene("contiguous")
    refused = [[call for call in events(view, Called, run) if call.refusal] for run in (0, 1)]
    assert refused[0]
    assert not refused[1]


def test_a_fork_in_mid_page_copies_and_one_on_a_boundary_does_not():
    copies = [
        event
        for event in scenes.scene("fork").timelines[0].events
        if type(event).__name__ == "PartialPageCopied"
    ]
    assert [copy.rows for copy in copies] == [2]


def test_a_refusal_changes_nothing():
    timeline = scenes.scene("refusal").timelines[0]
    at = next(at for at in timeline.calls if timeline.events[at].refusal)
    after = next((call for call in timeline.calls if call > at), len(timeline))
    assert timeline.state(at) == timeline.state(after)


def test_a_window_gives_pages_back():
    assert events(scenes.scene("window"), object)
    timeline = scenes.scene("window").timelines[0]
    assert any(type(event).__name__ == "Slid" for event in timeline.events)
    assert timeline.state(len(timeline)).sequences[0].length <= 10


def test_the_policies_decide_differently():
    view = scenes.scene("eviction")
    evicted = [[event.node for event in events(view, Evicted, run)] for run in (0, 1)]
    assert evicted[0] != evicted[1]
    hits = [len(events(view, PrefixHit, run)) for run in (0, 1)]
    assert hits[0] < hits[1]


def test_radix_tree_and_block_hashes_find_the_same_prefixes():
    view = scenes.scene("prefix_trees")
    hits = [[event.tokens for event in events(view, PrefixHit, run)] for run in (0, 1)]
    assert hits[0] == hits[1]
    assert all(hits[0])
    assert len(hits[0]) == 2


def test_pressure_preempts_and_a_prefix_is_found():
    assert events(scenes.scene("pressure"), Preempted)
    assert events(scenes.scene("prefix_hit"), PrefixHit)
