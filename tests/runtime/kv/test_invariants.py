"""A broken state is noticed, rule by rule, and events that do not follow are refused."""

from dataclasses import replace

import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime.kv.invariants import check, page_counts, violations
from relaxlab.runtime.kv.observer import (
    BlockCreated,
    BlockFreed,
    PagesAllocated,
    PlacesFilled,
    SequenceAdded,
)
from relaxlab.runtime.kv.snapshot import CacheState, fold, snapshot
from tests.runtime.kv.modelled_cache import Modelled, small_config


@pytest.fixture
def m():
    found = Modelled(small_config())
    found.add(0)
    found.round([(0, 7)])
    found.fork(0, 1, 6)
    found.round([(1, 2)])
    return found


def changed_block(state, number, **changes):
    blocks = [replace(b, **changes) if b.index == number else b for b in state.blocks]
    return replace(state, blocks=tuple(blocks))


def changed_sequence(state, **changes):
    return replace(state, sequences=(replace(state.sequences[0], **changes), *state.sequences[1:]))


def test_a_sound_state_has_no_violations(m):
    assert violations(snapshot(m.cache)) == []
    assert page_counts(snapshot(m.cache)) == {"free": 6, "owned": 4, "evictable": 0}


@pytest.mark.parametrize(
    ("breaks", "words"),
    [
        (lambda s: replace(s, freed=(0,)), "pages [0] are free and belong to a block"),
        (lambda s: replace(s, freed=(9, 9)), "pages [9] are on the free stack more than once"),
        (lambda s: replace(s, fresh=s.fresh - 1), "never taken"),
        (lambda s: replace(s, fresh=s.fresh + 1), "together not 10"),
        (lambda s: changed_block(s, 1, pages=(0,)), "pages [0] belong to more than one block"),
        (lambda s: changed_block(s, 0, references=2), "block 0 counts 2 references, there are 1"),
        (lambda s: changed_block(s, 0, length=4), "its blocks hold 10"),
        (lambda s: changed_block(s, 2, length=5), "is shared and has 5 tokens: no full pages"),
        (lambda s: changed_block(s, 2, length=3), "block 2 has 2 pages, its 3 tokens need 1"),
        (lambda s: changed_block(s, 0, start=5), "block 0 starts at 5, but sequence 0 has 6"),
        (lambda s: changed_block(s, 0, parent=8), "follows block 8, which does not exist"),
        (lambda s: changed_block(s, 0, sink=2), "less than its sink of 2"),
        (lambda s: changed_sequence(s, length=8), "sequence 0 says 8 tokens"),
        (lambda s: changed_sequence(s, last_block=2), "block 0 is referred to by nothing"),
        (lambda s: changed_sequence(s, last_block=7), "ends in block 7, which does not exist"),
        (lambda s: changed_sequence(s, tree=(-1, 0)), "a tree of 2 nodes in a block of 1"),
        (lambda s: changed_sequence(s, window=9, sink=8), "0 sink tokens in its last block"),
        (lambda s: replace(s, free_blocks=(0,)), "the number of a block that exists is free"),
    ],
)
def test_each_rule_is_noticed(m, breaks, words):
    found = violations(breaks(snapshot(m.cache)))
    assert any(words in sentence for sentence in found), found


def test_check_looks_at_the_real_object(m):
    check(m.cache)
    next(iter(m.cache.blocks)).length += 1
    with pytest.raises(InternalError, match=r"a paged cache is broken: .*tokens"):
        check(m.cache)


def test_check_compares_the_owners_of_pages(m):
    m.cache.blocks.pool.hand_over(0, 9)
    with pytest.raises(InternalError, match="the pool does not say that block"):
        check(m.cache)


@pytest.mark.parametrize(
    "events",
    [
        [BlockCreated(0, 0), PagesAllocated(0, (1,))],
        [BlockCreated(0, 0), PagesAllocated(0, (0,)), BlockFreed(0)],
        [BlockCreated(0, 0), BlockCreated(0, 0)],
        [BlockCreated(0, 0), PagesAllocated(0, (0, 1, 2))],
        [BlockCreated(0, 0), SequenceAdded(0, 0), SequenceAdded(0, 0)],
        [BlockCreated(0, 0), PlacesFilled(0, (0,))],
    ],
)
def test_events_that_do_not_follow_are_refused(events):
    with pytest.raises(ValueError):  # noqa: PT011  # Python's own, for a place that is not there
        fold(events, CacheState(num_pages=2, page_size=4))
