"""What an engine gave up and who paid, against the events and the prompts."""

import re

import pytest

from relaxlab.serve.events import Admitted, Evicted, Preempted, Resumed, Scheduled
from relaxlab.trace.pool_text import render_pool
from relaxlab.trace.pool_timeline import PoolTimeline
from tests.trace.engine_runs import PROMPTS, crowded
from tests.trace.pool_runs import story


@pytest.fixture(scope="module", params=[(48, "lru"), (64, "lfu")], ids=["lru", "lfu"])
def timeline(request):
    return PoolTimeline.of(crowded(*request.param)[1])


def test_every_eviction_and_preemption_is_told_once(timeline):
    lost = [at for at, one in enumerate(timeline.events) if isinstance(one, Evicted | Preempted)]
    assert [loss.event for loss in timeline.losses] == lost
    assert lost
    for loss in timeline.losses:
        assert f"Why: {timeline.events[loss.event].reason}" in loss.text
        assert "Who paid: " in loss.text


def test_the_pages_named_are_those_that_became_free(timeline):
    for loss in timeline.losses:
        if not isinstance(timeline.events[loss.event], Evicted):
            continue
        named = {int(one) for one in re.search(r"^Pages? ([\d, ]+),", loss.text)[1].split(", ")}
        call = max(at for at in timeline.calls if at < loss.event)
        before, after = timeline.state(call), timeline.state(loss.event)
        assert named == set(after.freed) - set(before.freed)
        # and the request named is one that is given one of them next
        taker = re.search(r"Taken by request (\d+\.\d+)\.", loss.text)
        if taker is not None:
            position = next(
                at
                for at in range(loss.event, len(timeline) + 1)
                if not named <= set(timeline.state(at).freed)
            )
            state = timeline.state(position + 1)
            blocks = {one.index for one in state.blocks if named & set(one.pages)}
            users = {one.seq_id for one in state.sequences if one.last_block in blocks}
            running = {
                f"{key[0]}.{key[1]}"
                for key, entry in timeline.engine(position).entries.items()
                if entry.sequence in users
            }
            assert taker[1] in running


def test_who_pays_for_an_eviction_began_with_the_same_tokens(timeline):
    found = 0
    for loss in timeline.losses:
        paid = re.search(r"request (\d+)\.\d+ computed (\d+) of these tokens again", loss.text)
        if paid is None or "preempted" in loss.text:
            continue
        found += 1
        owner = int(re.search(r"kept from request (\d+)", loss.text)[1])
        payer, count = int(paid[1]), int(paid[2])
        admitted = next(
            one
            for one in timeline.events[loss.event :]
            if isinstance(one, Admitted) and one.entry[0] == payer
        )
        ours, theirs = PROMPTS[owner], PROMPTS[payer]  # a token is a byte
        same = next(
            (at for at, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]),
            min(len(ours), len(theirs)),
        )
        assert count == same - admitted.cached
    assert found


def test_who_is_preempted_waits_and_computes_what_is_no_longer_there(timeline):
    for loss in timeline.losses:
        event = timeline.events[loss.event]
        if not isinstance(event, Preempted):
            continue
        rounds, kept = 0, None
        for later in timeline.events[loss.event :]:
            rounds += isinstance(later, Scheduled)
            if isinstance(later, Admitted | Resumed) and later.entry == event.entry:
                kept = later.cached if isinstance(later, Admitted) else later.restored
                break
        assert kept is not None
        waits, again, had = map(
            int, re.search(r"waits (\d+) rounds?, and computes (\d+) of (\d+)", loss.text).groups()
        )
        assert (waits, again, had) == (rounds, max(0, event.computed - kept), event.computed)


def test_the_text_tells_what_was_given_up_so_far(timeline):
    first = timeline.losses[0]
    assert f"event {first.event}: {first.text}" in render_pool(timeline, first.event + 1)
    assert "given up" not in render_pool(timeline, first.event)
    assert PoolTimeline.of(story()).losses == ()
