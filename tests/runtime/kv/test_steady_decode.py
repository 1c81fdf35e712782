"""The short way of beginning the same decode round is the long way, only cheaper."""

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime.kv import KVCacheWarning
from relaxlab.runtime.kv.invariants import check
from relaxlab.runtime.kv.snapshot import snapshot
from tests.runtime.kv.modelled_cache import Modelled, small_config

ARRAYS = (
    *("q_rope_position_map", "append_position_map", "cur_append_length_indptr"),
    *("page_indptr.0", "page_indices.0", "length_info.0", "k_rope_pos_offset.0"),
)


def pair(lengths, capacity=60):
    """Return two caches in one state; the first has nobody watching, so it may be short."""
    caches = [
        Modelled(small_config(total_token_capacity=capacity), observed=observed).cache
        for observed in (False, True)
    ]
    for cache in caches:
        for seq_id, length in enumerate(lengths):
            cache.add_sequence(seq_id)
            cache.begin_forward([seq_id], [length])
            cache.end_forward()
    return caches


def arrays(cache):
    return {name: cache.current_round.arrays.tensor(name).array.tolist() for name in ARRAYS}


def both(caches, ids):
    for cache in caches:
        cache.begin_forward(ids, (1,) * len(ids))
    assert arrays(caches[0]) == arrays(caches[1])
    for cache in caches:
        cache.end_forward()
        check(cache)
    assert snapshot(caches[0]) == snapshot(caches[1])


def is_short(cache, ids):
    """Whether the next round goes the short way: it leaves its arrays for later."""
    cache.begin_forward(ids, (1,) * len(ids))
    short = not cache._round.settled
    cache.end_forward()
    return short


def test_it_is_taken_from_the_second_round_on():
    short, long = pair([3, 5])
    assert not is_short(short, (0, 1))
    assert is_short(short, (0, 1))
    assert not is_short(short, (1, 0))
    assert not is_short(short, (1,))
    assert not is_short(long, (0, 1))
    assert not is_short(long, (0, 1))
    for change in (
        lambda: short.add_sequence(7),
        lambda: short.fork_sequence(0, 8, 3),
        lambda: short.popn(8, 1),
        lambda: short.remove_sequence(7),
        lambda: short.begin_forward([8], [2]),
    ):
        is_short(short, (0, 1))
        change()
        short.end_forward()
        assert not is_short(short, (0, 1))


def test_states_and_arrays_are_the_same_over_pages():
    caches = pair([1, 2, 3, 5])
    for _ in range(4):
        both(caches, (2, 0, 3, 1))
    for cache in caches:
        cache.fork_sequence(2, 9)
    for _ in range(2):
        both(caches, (2, 9, 0))


def test_a_full_pool_is_refused_as_always_and_changes_nothing():
    short, long = pair([8, 8], capacity=27)
    for _ in range(7):
        both((short, long), (0, 1))
    for cache in (short, long):
        before = snapshot(cache)
        with pytest.raises(InternalError, match="needs 2 pages, 0 of 10 are free"):
            cache.begin_forward((0, 1), (1, 1))
        assert snapshot(cache) == before


def test_a_round_that_was_not_finished_warns_as_always():
    short, _ = pair([2, 2])
    short.begin_forward((0, 1), (1, 1))
    with pytest.warns(KVCacheWarning, match="not finished"):
        short.begin_forward((0, 1), (1, 1))


def test_the_arrays_are_those_of_the_beginning_whatever_follows():
    caches = pair([4, 2])
    both(caches, (0, 1))
    for cache in caches:
        cache.begin_forward((0, 1), (1, 1))
        cache.fork_sequence(0, 5, 2)
        cache.popn(1, 1)
    assert arrays(caches[0]) == arrays(caches[1])
    assert arrays(caches[0])["q_rope_position_map"] == [5, 3]
    assert np.shares_memory(
        caches[0].get_query_positions().array,
        caches[0].current_round.arrays.tensor("q_rope_position_map").array,
    )
