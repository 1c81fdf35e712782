"""Prefix trees and the cache over them: hits, splits, collisions, pins, near misses."""

import random

import pytest

from relaxlab.errors import InternalError
from relaxlab.serve.block_hash_cache import BlockHashTree
from relaxlab.serve.events import Evicted, Missed, PrefixHit, fold
from relaxlab.serve.eviction import POLICIES
from relaxlab.serve.prefix_cache import PrefixCache
from relaxlab.serve.radix_tree import RadixTree
from tests.serve.paper_model import PaperModel

COLLIDING = [
    lambda size, **k: RadixTree(size, page_hash=lambda page: 7, **k),
    lambda size, **k: BlockHashTree(size, chain=lambda before, page: b"x", **k),
]
TREES = [RadixTree, BlockHashTree, *COLLIDING]
tree_kinds = pytest.mark.parametrize("make", TREES, ids=["radix", "hash", "radix0", "hash0"])


def _cache(make, *, pages=64, page_size=2, policy="lru"):
    model, events = PaperModel(page_size=page_size, total_pages=pages), []
    tree = make(page_size, policy=POLICIES.get(policy), emit=events.append)
    return PrefixCache(model, tree), model, events


def _through(cache, model, sequence, tokens):
    """Open, compute the rest, close; return how much was cached."""
    cached = cache.open(sequence, tokens)
    assert model.tokens[sequence] == list(tokens[:cached])
    if cached < len(tokens):
        model.run([sequence], [len(tokens) - cached], tokens[cached:], [])
    cache.keep(sequence, tokens)
    return cached


@tree_kinds
def test_random_prefixes_are_found_as_a_list_of_all_would(make):
    cache, model, events = _cache(make, pages=640)
    draw = random.Random(3)
    kept = []
    for sequence in range(120):
        tokens = [draw.randrange(2) for _ in range(draw.randrange(1, 12))]
        whole = (len(tokens) - 1) // 2 * 2
        common = max(
            (
                n
                for past in kept
                for n in range(0, whole + 1, 2)
                if past[:n] == tokens[:n] and n <= len(past)
            ),
            default=0,
        )
        assert _through(cache, model, sequence, tokens) == common
        kept.append(tokens[: len(tokens) // 2 * 2])
        cache.tree.check()
        model.check()
        model.check_tree(cache.tree)
        assert fold(events).nodes == cache.tree.snapshot()
    cache.clear()
    assert not model.tokens
    assert not cache.tree.nodes
    assert fold(events).nodes == {}


@tree_kinds
def test_a_full_hit_leaves_one_page_to_run(make):
    cache, model, _ = _cache(make)
    tokens = [1, 2, 3, 4, 5, 6]
    assert _through(cache, model, 0, tokens) == 0
    assert _through(cache, model, 1, tokens) == 4  # a multiple of the page: the last one runs
    assert _through(cache, model, 2, [*tokens, 7]) == 6
    assert list(model.tokens) == [0]  # what brought nothing new was removed


@tree_kinds
def test_what_parts_in_the_middle_of_a_page_shares_the_pages_before(make):
    cache, model, events = _cache(make, page_size=4)
    _through(cache, model, 0, [1, 2, 3, 4, 5, 6, 7, 8])
    assert cache.open(1, [1, 2, 3, 4, 5, 6, 9, 9, 9]) == 4
    (missed,) = [e for e in events if isinstance(e, Missed) and e.sequence == 1]
    assert missed.report.startswith("token 6 differs: cached 7, wanted 9")
    assert [e.tokens for e in events if isinstance(e, PrefixHit)] == [4]


@tree_kinds
def test_a_near_miss_tells_the_first_difference(make):
    cache, model, _ = _cache(make, page_size=2)
    _through(cache, model, 0, [1, 2, 3, 4, 5, 6])
    _through(cache, model, 1, [1, 2, 3, 9, 5, 6])
    near = cache.tree.explain([1, 2, 3, 7, 5, 6])
    assert (near.matched, near.position, near.wanted) == (2, 3, 7)
    assert near.cached in (4, 9)
    assert cache.tree.explain([1, 2, 3, 4, 5, 6]) is None
    far = cache.tree.explain([8, 8])
    assert (far.matched, far.position, far.cached, far.wanted) == (0, 0, 1, 8)


@tree_kinds
def test_pages_in_use_are_not_evicted(make):
    cache, model, events = _cache(make)
    _through(cache, model, 0, [1, 2, 3, 4, 5, 6, 7, 8])
    assert cache.open(1, [1, 2, 3, 4, 9]) == 4
    assert cache.evictable_pages == 2
    while cache.evict():
        cache.tree.check()
    assert sum(e.pages for e in events if isinstance(e, Evicted)) == 2
    assert model.tokens[0] == [1, 2, 3, 4]  # cut, not removed
    assert model.tokens[1] == [1, 2, 3, 4]
    cache.drop(1)
    assert cache.evictable_pages == 2
    cache.clear()
    assert model.available_pages() == model.total_pages


@tree_kinds
def test_a_prefix_outlives_the_longer_sequence_that_held_it(make):
    cache, model, _ = _cache(make)
    _through(cache, model, 0, [1, 2, 3, 4])
    _through(cache, model, 1, [1, 2, 3, 4, 5, 6])
    assert list(model.tokens) == [1]  # the longer one holds it all
    assert cache.evict()
    assert model.tokens == {1: [1, 2, 3, 4]}
    assert cache.open(2, [1, 2, 3, 4, 7]) == 4


@tree_kinds
def test_what_two_computed_at_the_same_time_is_kept_once(make):
    cache, model, _ = _cache(make)
    for sequence in (0, 1):
        cache.open(sequence, [1, 2, 3, 4, 9 + sequence])
        model.run([sequence], [5], [1, 2, 3, 4, 9 + sequence], [])
    assert cache.open(2, [5, 6, 7]) == 0
    model.run([2], [3], [5, 6, 7], [])
    cache.keep(0, [1, 2, 3, 4, 9])
    assert not cache.share(1, [1, 2, 3, 4])
    cache.keep(1, [1, 2, 3, 4, 10])
    assert sorted(model.tokens) == [0, 2]
    cache.drop(2)
    assert model.available_pages() == model.total_pages - 2


def test_leaves_go_before_what_they_hang_on_and_tails_before_heads():
    cache, model, events = _cache(BlockHashTree)
    _through(cache, model, 0, [1, 2, 3, 4, 5, 6])
    _through(cache, model, 1, [7, 8])
    starts = {n.number: n.start for n in cache.tree.nodes.values()}
    cache.clear()
    order = [starts[e.node] for e in events if isinstance(e, Evicted)]
    assert order == [4, 2, 0, 0]


def test_one_run_of_pages_is_one_node_of_the_radix_tree_and_three_hashed_blocks():
    for make, count in ((RadixTree, 1), (BlockHashTree, 3)):
        cache, model, _ = _cache(make)
        _through(cache, model, 0, [1, 2, 3, 4, 5, 6])
        assert len(cache.tree.nodes) == count


def test_users_with_different_seeds_share_no_block():
    first, second = BlockHashTree(2, seed=b"a"), BlockHashTree(2, seed=b"b")
    leaves = [tree.extend(tree.root, [1, 2], holder=0) for tree in (first, second)]
    assert first.hash_of(leaves[0]) != second.hash_of(leaves[1])


def test_a_refused_fork_changes_nothing():
    cache, model, _ = _cache(RadixTree)
    _through(cache, model, 0, [1, 2, 3, 4, 5, 6])
    before = cache.tree.snapshot()
    model.fail_at = frozenset([model.operations + 1])
    with pytest.raises(InternalError, match="injected"):
        cache.open(1, [1, 2, 3, 4, 9])
    assert cache.tree.snapshot() == before
    assert cache.open(1, [1, 2, 3, 4, 9]) == 4


def test_a_refused_eviction_changes_nothing():
    cache, model, _ = _cache(RadixTree)
    _through(cache, model, 0, [1, 2, 3, 4])
    before = cache.tree.snapshot()
    model.fail_at = frozenset([model.operations + 1])
    with pytest.raises(InternalError, match="injected"):
        cache.evict()
    assert cache.tree.snapshot() == before
    assert cache.evict()


def test_what_cannot_be_removed_is_removed_later():
    cache, model, _ = _cache(RadixTree)
    cache.open(0, [1, 2, 3])
    model.fail_at = frozenset([model.operations + 1, model.operations + 2])
    cache.drop(0)
    cache.sweep()
    assert cache.leftover == (0,)
    cache.sweep()
    assert cache.leftover == ()
    assert not model.tokens


def test_whole_pages_are_asked_for():
    tree = RadixTree(4)
    with pytest.raises(ValueError, match="whole pages of 4"):
        tree.extend(tree.root, [1, 2, 3], holder=0)
    with pytest.raises(ValueError, match="page_size"):
        RadixTree(0)
