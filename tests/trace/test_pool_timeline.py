"""The recording of a cache tells what the cache was, at every moment."""

import re
from itertools import pairwise

import pytest

from relaxlab.runtime.kv import observer
from relaxlab.runtime.kv.invariants import violations
from relaxlab.runtime.kv.snapshot import snapshot
from relaxlab.serve.events import Evicted
from relaxlab.trace.pool_events import CLASSES, WORDS, Called, explain_pool_event
from relaxlab.trace.pool_recorder import PoolRecorder
from relaxlab.trace.pool_text import counters, entry_words, render_pool, users_of
from relaxlab.trace.pool_timeline import PoolTimeline, page_of
from tests.trace.engine_runs import crowded
from tests.trace.pool_runs import new_cache, random_run, story

SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_end_of_a_recording_is_the_cache(seed):
    cache, recorder = random_run(seed)
    timeline = PoolTimeline.of(recorder)
    assert timeline.state(len(timeline)) == snapshot(cache)
    ends = [*timeline.calls[1:], len(timeline)]
    for at in ends:  # between calls, also after refused ones
        assert violations(timeline.state(at)) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_token_keeps_its_name_wherever_its_row_goes(seed):
    _, recorder = random_run(seed)
    timeline = PoolTimeline.of(recorder)
    state, names = timeline.state(len(timeline)), timeline.names(len(timeline))
    for block in state.blocks:
        assert len(names[block.index]) == block.length
        assert "?" not in names[block.index]
    # a name stands for one token of one moment: sequences that share it share its page or a copy
    for sequence in state.sequences:
        chain, at = [], sequence.last_block
        while at != -1:
            block = next(one for one in state.blocks if one.index == at)
            chain, at = [*names[block.index], *chain], block.parent
        assert len(chain) == sequence.length
        assert len(set(chain)) == len(chain)


def everything(timeline, position):
    """Return all that a timeline tells of a position."""
    return (
        timeline.state(position),
        timeline.names(position),
        timeline.engine(position),
        timeline.copies(position),
    )


@pytest.mark.parametrize("seed", range(10))
def test_what_was_dropped_changes_nothing_that_is_told_of_the_rest(seed):
    recorder = random_run(seed)[1] if seed else crowded(48, "lru")[1]
    full = PoolTimeline.of(recorder)

    def cut(timeline, position):
        events = timeline.since(position)
        return PoolTimeline(events, full.num_pages, full.page_size, tokens=full.tokens)

    for first in range(0, len(full), 1 + len(full) // 7):
        rest = cut(full, first)
        assert rest.dropped == first
        for position in range(first, len(full) + 1, 1 + len(full) // 20):
            assert everything(rest, position - first + 1) == everything(full, position)
        again = cut(rest, len(rest) // 2 + 1)
        assert again.dropped + len(again) - 1 == len(full)
        assert everything(again, len(again)) == everything(full, len(full))


@pytest.mark.parametrize("limit", [1, 7, 40])
def test_a_recorder_keeps_so_many_events_and_says_how_many_it_dropped(limit):
    cache, recorder = random_run(3, operations=300, limit=limit)
    timeline = PoolTimeline.of(recorder)
    # a call in progress is kept whole
    longest = max(b - a for a, b in pairwise([*timeline.calls, len(timeline)]))
    assert limit <= len(recorder.events) <= 2 * limit + max(longest, 40)
    assert recorder.dropped > 300
    assert f", the first {recorder.dropped} dropped)" in repr(recorder)
    assert f", the first {recorder.dropped} dropped)" in repr(timeline)
    assert timeline.state(len(timeline)) == snapshot(cache)
    assert f"The first {recorder.dropped} events were dropped" in render_pool(timeline, 1)


def test_a_recorder_keeps_something():
    with pytest.raises(ValueError, match="at least one event, got limit=0"):
        PoolRecorder(4, 4, limit=0)


def test_every_event_has_words_over_its_own_fields():
    assert set(WORDS) == {cls.__name__ for cls in CLASSES}
    for cls in CLASSES:
        fields = re.findall(r"\{(\w+)\}", WORDS[cls.__name__])
        assert set(fields) <= set(cls.__dataclass_fields__)
    event = observer.RowsStored(0, tuple(range(20)))
    assert explain_pool_event(event).endswith("slots 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … (20).")
    assert explain_pool_event(observer.TokensCompacted(((5, 3), (7, 4)))).endswith(
        "5 to 3, 7 to 4."
    )
    assert explain_pool_event(observer.RowsStored(0, ())).endswith("slots none.")


def test_calls_are_noted_with_their_refusals_and_once():
    recorder = story()
    calls = [event for event in recorder.events if isinstance(event, Called)]
    assert [event.call for event in calls][:4] == [
        "add_sequence(0)",
        "begin_forward([0], [9])",
        "end_forward()",
        "fork_sequence(0, 1, 6)",
    ]
    refused = [event for event in calls if event.refusal]
    assert [event.call for event in refused] == ["fork_sequence(77, 3)"]
    assert "77" in refused[0].refusal
    assert repr(recorder) == f"PoolRecorder({len(recorder.events)} events, {len(calls)} calls)"


def test_a_cache_in_use_cannot_be_recorded():
    cache = new_cache()
    cache.add_sequence(0)
    with pytest.raises(ValueError, match="new or cleared"):
        PoolRecorder.of(cache)


def test_the_text_shows_the_state():
    timeline = PoolTimeline.of(story())
    for position in range(len(timeline) + 1):
        text = render_pool(timeline, position)
        state = timeline.state(position)
        assert counters(state) in text
        users = users_of(state)
        for block in state.blocks:
            for page in block.pages:
                held = page_of(block, page, state.page_size)
                marks = "#" * len(held) + "." * (state.page_size - len(held))
                using = users[block.index]
                badge = f"×{len(using)}" if len(using) > 1 else f"s{using[0]}" if using else "–"
                assert re.search(rf"\b{page} {badge} +{re.escape(marks)}", text)
    assert "  page 1: 'is' 'Paris' ',' 'and'" in text
    assert "done: Sequence 2 is kept for its contents only" in text
    assert "next: nothing: the end" in text


@pytest.mark.parametrize("seed", range(8))
def test_every_moment_can_be_told_also_in_the_middle_of_a_call(seed):
    timeline = PoolTimeline.of(random_run(seed, operations=20)[1])
    for position in range(len(timeline) + 1):
        text = render_pool(timeline, position)
        used = timeline.num_pages - timeline.state(position).available
        assert f"\n{used} of {timeline.num_pages} pages in use" in text


def test_the_engine_is_recorded_with_its_cache():
    engine, recorder = crowded(48)
    timeline = PoolTimeline.of(recorder)
    end = len(timeline)
    assert timeline.engine(end) == engine.snapshot()
    assert timeline.engine(end).evictions > 0
    assert timeline.engine(end).preemptions > 0
    text = render_pool(timeline, end)
    for (request, index), entry in timeline.engine(end).entries.items():
        assert f"  {request}.{index}  {entry_words(entry)}" in text
    evicted = [explain_pool_event(e) for e in recorder.events if isinstance(e, Evicted)]
    assert all("is evicted: lru: " in words for words in evicted)
    # what a round appends is named: the prompts can be read in the pages
    moments = [timeline.names(at) for at in range(0, end, 25)]
    texts = ["".join(name for names in moment.values() for name in names) for moment in moments]
    assert any("the capital of france" in text for text in texts)
    assert PoolTimeline.of(story()).engine(0) is None


def test_positions_outside_are_refused():
    timeline = PoolTimeline.of(story())
    for position in (-1, len(timeline) + 1):
        with pytest.raises(IndexError, match="outside the recording"):
            timeline.state(position)
