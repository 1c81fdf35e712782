"""The paged cache, call by call: refusals are atomic, misuse warns, TVM's defects are not ours."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.kv import KVCacheWarning, exact
from relaxlab.runtime.kv.cache_config import AttnKind, CacheConfig, RopeMode
from relaxlab.runtime.kv.observer import SequenceRemoved
from relaxlab.runtime.kv.snapshot import snapshot
from tests.runtime.kv.modelled_cache import (
    HEADS,
    SCALE,
    SIZE,
    TABLE,
    Modelled,
    dense,
    small_config,
)

SLIDING = {"support_sliding_window": True, "total_token_capacity": 60}
WINDOWED = (AttnKind.MHA_SLIDING, AttnKind.MHA)


def model(**changes):
    return Modelled(small_config(**changes))


def started(lengths, **changes):
    """Return a model with sequences 0, 1, ... of the given lengths."""
    m = model(**changes)
    for seq_id, length in enumerate(lengths):
        m.add(seq_id)
        if length:
            assert m.round([(seq_id, length)])
    return m


# ---- refusals ----------------------------------------------------------------------------------


def test_a_full_pool_says_what_is_needed_what_is_free_and_who_has_it():
    m = started([12, 12])  # 8 of 10 pages
    m.fork(0, 2, 6)
    m.cache.retain_sequence(1)
    message = m.refused(m.cache.begin_forward, [0, 2], [4, 5])
    assert "appending tokens, 4 to sequence 0 (12 so far), 5 to sequence 2 (6 so far)" in message
    assert "needs 4 pages, 2 of 10 are free; 2 more must be given back first" in message
    assert "sequence 1: 4 (retained, may be evicted); sequence 0: 2 and 2 shared" in message
    assert m.cache.pages_needed([0, 2], [4, 5]) == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([9], [1]), 'sequence "9" cannot be found'),
        (([0], [1, 1]), "sizes of seq_ids and append_lengths differ: 1 and 2"),
        (([0, 1], [1, 0]), "Append with length 0 is not allowed"),
        (([0, 1], [2, -1]), "Append with length -1 is not allowed"),
        (([0], [3], [-1, 1, 0]), "The parent of node 1 in tree 0 is 1"),
        (([0], [3], [-1, 0]), "is 3 while there are 2"),
        (([0, 1], [1, 2], [-1, -1, -2]), "The parent of node 1 in tree 1 is -2"),
        (([0], [257], [-1] * 257), "Tree 0 has 257 nodes, the most is 256"),
    ],
)
def test_a_refused_round_changes_nothing(arguments, words):
    m = started([4, 2])
    batch = m.cache.current_round
    assert words in m.refused(m.cache.begin_forward, *arguments)
    assert m.cache.current_round is batch


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (SLIDING, "does not support sliding windows"),
        ({"rope_mode": RopeMode.INLINE}, "does not support inline RoPE"),
        ({"attn_kinds": (AttnKind.MLA,)}, "not supported yet for MLA"),
    ],
)
def test_caches_that_cannot_have_trees_say_so(changes, words):
    cache = model(**changes).cache
    cache.add_sequence(0)
    before = snapshot(cache)
    with pytest.raises(InternalError, match=words):
        cache.begin_forward([0], [2], [-1, 0])
    assert snapshot(cache) == before


def test_the_second_sequence_of_a_batch_may_be_the_one_that_does_not_fit():
    m = started([12, 12])
    m.add(2)
    m.refused(m.cache.begin_forward, [2, 0], [5, 4])
    assert m.round([(2, 6)])


def test_within_exact_a_failed_round_leaves_what_it_did():
    m = started([12, 12])
    m.add(2)
    before = snapshot(m.cache)
    with exact(), pytest.raises(InternalError, match="The KV cache is full"):
        m.cache.begin_forward([2, 0], [5, 4])
    after = snapshot(m.cache)
    assert after.available == 0 < before.available
    assert [s.length for s in after.sequences] == [16, 12, 5]
    assert m.folded.state() == after


def test_other_refusals_change_nothing():
    m = started([5])
    cache = m.cache
    m.round([(0, 3)], {0: [-1, 0, 0]})
    for call, words in (
        (lambda: cache.add_sequence(0), "already in the KV cache"),
        (lambda: cache.remove_sequence(4), 'sequence "4" cannot be found'),
        (lambda: cache.fork_sequence(0, 1), "has not been committed"),
        (lambda: cache.fork_sequence(3, 1), 'parent sequence "3" cannot be found'),
        (lambda: cache.fork_sequence(0, 0), 'child sequence "0" is already'),
        (lambda: cache.fork_sequence(0, 1, 9), "has 8 tokens, got position 9"),
        (lambda: cache.fork_sequence(0, 1, -2), "got -2"),
        (lambda: cache.popn(0, 9), "only has length 8"),
        (lambda: cache.popn(0, -1), "-1 cannot be negative"),
        (lambda: cache.begin_forward([0], [1]), "not been committed"),
        (lambda: cache.commit_accepted_token_tree_nodes([0], [3]), "Invalid tree index 3"),
        (lambda: cache.commit_accepted_token_tree_nodes([0], [-2]), "Invalid tree index -2"),
        (lambda: cache.commit_accepted_token_tree_nodes([0], [0, 0]), "differ: 1 and 2"),
        (lambda: cache.commit_accepted_token_tree_nodes([0, 0], [0, 0]), "more than once"),
        (lambda: cache.enable_sliding_window_for_seq(0, 4, 1), "does not support sliding"),
        (lambda: cache.get_sequence_length(8), 'sequence "8" cannot be found'),
        (lambda: cache.retain_sequence(8), 'sequence "8" cannot be found'),
        (lambda: cache.disagg_mark_send(0, 0, [1, 0, 9], 1), "made without KV transfer"),
    ):
        assert words in m.refused(call)


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (0, 9), (3, 3)])
def test_looking_outside_a_sequence_is_refused(start, end):
    m = started([5])
    rows = np.zeros((1, max(end - start, 1), 1, SIZE), "float32")
    with pytest.raises(InternalError, match="expected 0 <= start < end <= 5"):
        m.cache.debug_get_kv(0, start, end, rows, rows)


def test_attention_refuses_what_does_not_fit():
    m = started([5])
    m.cache.begin_forward([0], [2])
    o = np.zeros((2, HEADS, SIZE), "float32")
    for layer, qkv, words in (
        (1, np.zeros((2, 4, SIZE), "float32"), "layer: expected 0 to 0, got 1"),
        (-1, np.zeros((2, 4, SIZE), "float32"), "layer: expected 0 to 0, got -1"),
        (0, np.zeros((2, 4, SIZE), "float16"), "expected dtype 'float32', got 'float16'"),
        (0, np.zeros((2, 3, SIZE), "float32"), r"expected shape \(any, 4, 2\), got \(2, 3, 2\)"),
        (0, np.zeros((1, 4, SIZE), "float32"), "expected shape"),
    ):
        with pytest.raises(InternalError, match=words):
            m.cache.attention_with_fused_qkv(layer, qkv, o, SCALE)
    with pytest.raises(TypeError, match="qkv: expected Tensor, got str"):
        m.cache.attention_with_fused_qkv(0, "x", o, SCALE)


def test_attention_needs_a_batch():
    m = started([])
    with pytest.raises(InternalError, match="call begin_forward first"):
        m.cache.get_query_positions()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"page_size": 0}, "page_size: expected more than 0, got 0"),
        ({"layer_sliding_window_size": 0}, "layer_sliding_window_size"),
        ({"num_qo_heads": 3, "num_kv_heads": 2}, "query heads that 2 key heads divide, got 3"),
        ({"layer_begin": 1, "layer_end": 1}, "layers begin < end"),
        ({"attn_kinds": (AttnKind.MLA,), "support_sliding_window": True}, "MLA layers"),
        ({"attn_kinds": (AttnKind.MLA,), "enable_kv_transfer": True}, "KV transfer needs"),
        ({"has_rope_ext_factors": True}, "need rope mode normal, got none"),
        (
            {
                "has_rope_ext_factors": True,
                "rope_mode": RopeMode.NORMAL,
                "support_sliding_window": True,
            },
            "need rope mode normal, got inline",
        ),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(changes, words):
    with pytest.raises(InternalError, match=words):
        small_config(**changes)


@pytest.mark.parametrize(
    ("capacity", "sliding", "pages"),
    [(63, False, 17), (64, False, 17), (65, False, 18), (64, True, 33)],
)
def test_the_pool_has_one_page_more_and_two_per_window(capacity, sliding, pages):
    config = CacheConfig(
        reserved_num_seqs=8,
        total_token_capacity=capacity,
        prefill_chunk_size=64,
        page_size=4,
        num_qo_heads=1,
        num_kv_heads=1,
        qk_head_dim=2,
        support_sliding_window=sliding,
    )
    assert config.num_total_pages == pages


# ---- misuse ------------------------------------------------------------------------------------


def test_beginning_twice_warns():
    m = started([3])
    m.cache.begin_forward([0], [1])
    with pytest.warns(KVCacheWarning, match="the round before was not finished"):
        m.cache.begin_forward([0], [1])
    assert m.cache.get_sequence_length(0) == 5


def test_a_warning_that_is_an_error_comes_before_any_change():
    m = started([3])
    m.cache.begin_forward([0], [1])
    before = snapshot(m.cache)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KVCacheWarning):
            m.cache.begin_forward([0], [1])
    assert snapshot(m.cache) == before


def test_neighbours_of_one_id_are_one_sequence_with_a_warning():
    m, twin = started([3, 4]), started([3, 4])
    with pytest.warns(KVCacheWarning, match="more than once"):
        m.cache.begin_forward([0, 0, 1], [2, 1, 1])
    twin.cache.begin_forward([0, 1], [3, 1])
    assert snapshot(m.cache) == snapshot(twin.cache)
    assert m.cache.get_query_positions().array.tolist() == [3, 4, 5, 4]


def test_one_id_with_others_between_is_refused_after_the_warning():
    m = started([3, 4])
    before = snapshot(m.cache)
    with (
        pytest.warns(KVCacheWarning, match="more than once"),
        pytest.raises(InternalError, match=r"sequences \[0\] more than once"),
    ):
        m.cache.begin_forward([0, 1, 0], [1, 1, 1])
    assert snapshot(m.cache) == before


def test_removal_within_a_round_warns_and_spares_the_next_owner_of_the_pages():
    m = started([3, 4])
    m.cache.begin_forward([0, 1], [1, 1])
    with pytest.warns(KVCacheWarning, match="sequence 0 belongs to the round"):
        m.cache.remove_sequence(0)
    m.cache.add_sequence(5)
    with pytest.warns(KVCacheWarning, match="not finished"):
        m.cache.begin_forward([5], [3])
    m.cache.end_forward()
    # again: now the rows are really computed after the pages have gone to another sequence
    m.cache.begin_forward([5, 1], [1, 1])
    slot = m.cache.slots_of(5)[-1]
    with pytest.warns(KVCacheWarning):
        m.cache.remove_sequence(5)
    pages = m.cache.pages[0].array
    pages[:] = 7
    o = np.zeros((2, HEADS, SIZE), "float32")
    m.cache.attention_with_fused_qkv(0, np.ones((2, 4, SIZE), "float32"), o, SCALE)
    assert (pages[slot // 3, :, :, slot % 3] == 7).all()
    written = m.cache.slots_of(1)[-1]
    assert (pages[written // 3, :, :, written % 3] == 1).all()


def test_a_prefill_longer_than_the_chunk_warns_and_is_right():
    m = started([], prefill_chunk_size=4)
    m.add(0)
    with pytest.warns(KVCacheWarning, match="7 tokens exceeds the prefill chunk size 4"):
        assert m.round([(0, 7)])
    with exact():
        m.cache.begin_forward([0], [5])
        with pytest.raises(ValueError, match="exceeds the prefill chunk size"):
            m.cache.get_query_positions()


def test_rows_beyond_the_batch_warn_and_are_left_alone():
    m = started([3])
    m.cache.begin_forward([0], [1])
    qkv = np.full((3, 4, SIZE), np.nan, "float32")
    qkv[0] = 1
    o = np.full((3, HEADS, SIZE), 5, "float32")
    with pytest.warns(KVCacheWarning, match="got 3 rows for a batch of 1"):
        m.cache.attention_with_fused_qkv(0, qkv, o, SCALE)
    assert np.isfinite(o[0]).all()
    assert (o[1:] == 5).all()


def test_within_exact_misuse_is_silent():
    m = started([3, 3])
    with warnings.catch_warnings(), exact():
        warnings.simplefilter("error")
        m.cache.begin_forward([0, 1], [1, 1])
        m.cache.begin_forward([0, 1], [1, 1])
        m.cache.remove_sequence(0)


def test_an_empty_batch_attends_to_nothing():
    m = started([3])
    m.cache.begin_forward([], [])
    assert m.cache.get_query_positions().shape == (0,)
    o = np.full((0, HEADS, SIZE), 5, "float32")
    m.cache.attention_with_fused_qkv(0, np.zeros((0, 4, SIZE), "float32"), o, SCALE)


# ---- where TVM is wrong ------------------------------------------------------------------------


def test_a_slid_sequence_can_be_forked_anywhere_in_its_sink():
    for position in range(6):
        m = started([0], **SLIDING)
        m.window(0, 8, 5)
        m.round([(0, 7)])
        m.round([(0, 6)])
        assert m.fork(0, 1, position)
        m.round([(0, 4), (1, 3)])
        m.round([(1, 1), (0, 1)])


def test_a_window_must_leave_room_beside_the_shared_prefix():
    m = started([6], **SLIDING)
    m.fork(0, 1, 6)
    message = m.refused(m.cache.enable_sliding_window_for_seq, 1, 6, 0)
    assert "first 6 tokens" in message
    assert m.window(1, 7, 0)
    for _ in range(5):
        m.round([(1, 2)])


@pytest.mark.parametrize("count", range(9))
def test_a_slid_sequence_can_lose_any_number_of_tokens(count):
    m = started([0], **SLIDING)
    m.window(0, 8, 4)
    for tokens in (7, 6, 3):
        m.round([(0, tokens)])
    m.popn(0, count)
    for tokens in (1, 2, 7, 1):
        m.round([(0, tokens)])


@pytest.mark.parametrize("count", [3, 5, 7, 9, 10])
def test_popn_of_a_windowed_sequence_into_a_shared_block_keeps_the_window(count):
    m = started([6], **SLIDING)
    m.fork(0, 1, 6)
    m.window(1, 9, 2)
    m.cache.retain_sequence(1)
    m.round([(1, 4)])
    m.popn(1, min(count, len(m.held[1])))
    sequence = m.cache.sequences.find(1)
    assert (sequence.window, sequence.sink, sequence.retained) == (9, 2, True)
    for _ in range(4):
        m.round([(1, 3), (0, 1)])


def test_a_fork_at_the_end_of_a_sink_does_not_pin_it_twice():
    m = started([0], **SLIDING)
    m.window(0, 9, 7)
    m.round([(0, 6)])
    assert m.fork(0, 1, 6)
    assert m.cache.sequences.find(0).last_block_sink == 1
    for _ in range(6):
        m.round([(0, 2), (1, 1)])


def test_a_slid_block_behind_two_others_is_read_rightly():
    m = started([6], **SLIDING)
    m.fork(0, 1, 6)
    m.round([(1, 3)])
    m.fork(1, 2, 9)
    m.window(2, 12, 10)
    for _ in range(6):
        m.round([(2, 2), (1, 1)])


def test_commit_compacts_every_sequence_whatever_the_last_one_is():
    m = started([5, 4])
    m.round([(0, 4), (1, 3)], {0: [-1, 0, 0, 1], 1: [-1, 0, 1]})
    m.commit({0: 2, 1: 1})
    m.round([(0, 1), (1, 1)])


def test_commit_goes_by_id_in_any_order_and_after_several_rounds():
    m = started([5, 4, 3])
    m.round([(0, 2), (1, 3), (2, 1)], {0: [-1, -1], 1: [-1, 0, 0], 2: [-1]})
    m.round([(1, 2), (0, 3)], {1: [2, 3], 0: [1, 2, 2]})
    m.commit({2: 0})
    m.commit({0: 4, 1: 4})
    m.round([(0, 1), (1, 1), (2, 1)])


def test_new_tokens_of_a_second_round_of_chains_do_not_see_later_ones():
    m = started([5, 4])
    m.round([(0, 2), (1, 1)], {0: [-1, 0], 1: [-1]})
    m.round([(0, 3), (1, 2)], {0: [1, 2, 3], 1: [0, 1]})
    m.round([(0, 1), (1, 1)], {0: [4], 1: [2]})
    m.commit({0: 5, 1: 3})


def test_uncommitted_trees_of_sequences_that_end_at_different_depths():
    m = started([6, 4, 2])
    m.fork(0, 3, 6)
    m.round([(3, 3), (1, 3), (2, 2)], {3: [-1, 0, 0], 1: [-1, 0, 0], 2: [-1, 0]})
    m.round([(1, 2), (3, 2), (2, 2)], {1: [1, 2], 3: [0, 3], 2: [1, 2]})
    m.round([(2, 1), (3, 1)], {2: [3], 3: [4]})
    m.commit({3: 5, 1: 3, 2: -1})


def test_popn_takes_the_last_nodes_of_a_tree():
    m = started([5])
    m.round([(0, 4)], {0: [-1, 0, 0, 2]})
    m.popn(0, 1)
    m.round([(0, 2)], {0: [1, 2]})
    m.commit({0: 4})
    m.round([(0, 2)], {0: [-1, 0]})
    m.popn(0, 3)
    m.round([(0, 1)])


def test_a_layer_window_reaches_into_the_chunk_and_over_blocks():
    for window in (1, 2, 3, 4, 5, 7, 8):
        m = started(
            [0],
            layer_end=2,
            attn_kinds=WINDOWED,
            layer_sliding_window_size=window,
            total_token_capacity=120,
        )
        for count in (window, 1, 2 * window, max(window - 1, 1), window + 1, 1, 1):
            m.round([(0, count)])
        m.fork(0, 1, len(m.held[0]) // 3 * 3)
        m.fork(0, 2, 4)
        for count in (3, 1, 1, window + 2):
            m.round([(0, 1), (1, count), (2, count)])


def test_a_tree_within_the_window_of_a_layer_is_right_and_beyond_it_refused():
    m = started(
        [3, 12],
        layer_end=2,
        attn_kinds=WINDOWED,
        layer_sliding_window_size=9,
        total_token_capacity=90,
    )
    m.round([(0, 4), (1, 5)], {0: [-1, 0, 0, 1], 1: [-1, 0, 1, 2, 3]})
    m.commit({1: 4})
    m.round([(0, 2)], {0: [3, 4]})
    message = m.refused(m.cache.begin_forward, [0], [1], [5])
    assert "has 7 nodes after 3 tokens, more than the window of 9" in message
    m.remove(0)
    m.add(0)
    # a chain may be longer than the window, but not beside a tree
    chain = list(range(-1, 9))
    message = m.refused(m.cache.begin_forward, [0, 1], [2, 10], [-1, -1, *chain])
    assert "has 10 nodes after 0 tokens" in message
    m.round([(1, 10), (0, 2)], {0: [-1, 0], 1: chain})


def test_a_model_whose_layers_all_have_windows():
    m = started([0], attn_kinds=(AttnKind.MHA_SLIDING,), layer_sliding_window_size=4)
    for count in (5, 1, 3):
        m.round([(0, count)])
    k, v = (np.zeros((1, 9, 1, SIZE), "float32") for _ in range(2))
    m.cache.debug_get_kv(0, 0, 9, k, v)
    slots = m.cache.slots_of(0)
    pages = m.cache.pages[0].array
    assert (k[0] == np.stack([pages[s // 3, 0, :, s % 3] for s in slots])).all()
    with exact(), pytest.raises(InternalError, match="expected layers of kind MHA only"):
        m.cache.debug_get_kv(0, 0, 9, k, v)


def test_self_and_cross_attention_of_a_layer_with_a_window():
    m = started([5], attn_kinds=(AttnKind.MHA_SLIDING,), layer_sliding_window_size=3)
    q = np.random.default_rng(0).standard_normal((4, HEADS, SIZE)).astype("float32")
    m.cache.begin_forward([0], [4])
    new = list(range(100, 104))
    k, v = TABLE[0, new], TABLE[1, new]
    o1, o2 = np.zeros_like(q), np.zeros_like(q)
    lse1, lse2 = (np.zeros((4, HEADS), "float32") for _ in range(2))
    m.cache.self_attention(0, q, k, v, o1, lse1, SCALE)
    m.cache.cross_attention(0, q, o2, lse2, SCALE)
    m.cache.merge_attn_output_inplace(o1, lse1, o2, lse2)
    seen = m.held[0] + new
    last = np.arange(5, 9)[:, None]
    mask = (np.arange(9) <= last) & (np.arange(9) > last - 3)
    np.testing.assert_allclose(o1, dense(q, seen, mask), rtol=1e-4, atol=1e-5)


def test_cross_attention_without_pages_counts_for_nothing():
    m = started([0])
    m.cache.begin_forward([0], [2])
    q = np.ones((2, HEADS, SIZE), "float32")
    o, lse = np.full_like(q, np.nan), np.full((2, HEADS), np.nan, "float32")
    m.cache.cross_attention(0, q, o, lse, SCALE)
    assert (o == 0).all()
    assert (lse == -5e4).all()


# ---- and the rest --------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", [2, 3, 4, 6])  # around a page and two of them
@pytest.mark.parametrize("chunk", [1, 2, 3, 5])
def test_a_prompt_in_chunks_then_decoding(prompt, chunk):
    m = started([0, 2])
    left = prompt
    while left:
        m.round([(0, min(chunk, left)), (1, 1)])
        left -= min(chunk, left)
    for _ in range(4):
        m.round([(1, 1), (0, 1)])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype):
    m = started([], dtype=DataType(dtype))
    element = DataType(dtype).numpy()
    m.cache.add_sequence(0)
    rng = np.random.default_rng(1)
    kept = []
    for count in (5, 1, 3):
        qkv = rng.standard_normal((count, 4, SIZE)).astype(element)
        kept.append(qkv)
        o = np.zeros((count, HEADS, SIZE), element)
        m.cache.begin_forward([0], [count])
        m.cache.attention_with_fused_qkv(0, qkv, o, SCALE)
        m.cache.end_forward()
        rows = np.concatenate(kept).astype("float64")
        scores = np.einsum("qhd,kd->hqk", qkv[:, :2].astype("float64"), rows[:, 2]) * SCALE
        mask = np.tri(count, len(rows), len(rows) - count, dtype=bool)
        weights = np.exp(np.where(mask, scores, -np.inf))
        weights /= weights.sum(-1, keepdims=True)
        wanted = np.einsum("hqk,kd->qhd", weights, rows[:, 3])
        np.testing.assert_allclose(o.astype("float64"), wanted, rtol=2e-2, atol=2e-2)


def test_a_removal_carries_its_cause():
    m = started([3])
    events = []
    m.cache.observer = events.append
    m.cache.remove_sequence(0, cause="preempted", reason="it was admitted last")
    assert events[0] == SequenceRemoved(0, "preempted", "it was admitted last")


def test_evictable_pages_are_those_of_retained_sequences_only():
    m = started([9])
    m.fork(0, 1, 6)
    m.round([(1, 2)])
    assert m.cache.get_num_evictable_pages() == 0
    m.cache.retain_sequence(0)
    assert m.cache.get_num_evictable_pages() == 1  # two are shared with sequence 1
    m.cache.retain_sequence(1)
    assert m.cache.get_num_evictable_pages() == 4
    m.cache.revive_sequence(0)
    assert m.cache.get_num_evictable_pages() == 1
    m.verify()


def test_pages_of_a_million_cost_what_they_touch():
    few, many = (
        Modelled(small_config(total_token_capacity=tokens), observed=False).cache
        for tokens in (3_000, 3_000_000)
    )
    for cache in (few, many):
        cache.add_sequence(0)
        cache.begin_forward([0], [10])
        cache.end_forward()
        cache.fork_sequence(0, 1, 7)
        cache.popn(0, 3)
        cache.remove_sequence(0)
    assert many.config.num_total_pages > 1_000_000
    assert many.slots_of(1) == few.slots_of(1)
    # nothing in the pool grew with its size
    pool = many.blocks.pool
    assert len(pool.freed) + len(pool.owned()) == pool.fresh == few.blocks.pool.fresh


# ---- kernels that fail -------------------------------------------------------------------------


class Broken(Exception):
    """What a kernel raises."""


def broken_after(m, name, calls):
    """Let a kernel of a model do its work and fail in its last call."""
    kernel, left = getattr(m.cache.kernels, name), [calls]

    def breaking(*arguments):
        kernel(*arguments)
        left[0] -= 1
        if not left[0]:
            raise Broken

    m.cache.kernels = replace(m.cache.kernels, **{name: breaking})
    return kernel


@pytest.mark.parametrize("layer", [1, 2])
def test_a_copy_that_fails_leaves_a_fork_undone(layer):
    m = started([8], layer_end=2)
    kernel = broken_after(m, "copy_single_page", layer)
    before = snapshot(m.cache)
    with pytest.raises(Broken):
        m.cache.fork_sequence(0, 1, 4)
    assert snapshot(m.cache) == before
    m.cache.kernels = replace(m.cache.kernels, copy_single_page=kernel)
    m.verify()
    m.fork(0, 1, 4)


@pytest.mark.parametrize("layer", [1, 2])
@pytest.mark.parametrize("own", [0, 2, 5])
def test_a_copy_that_fails_leaves_a_pop_into_a_shared_block_undone(layer, own):
    m = started([6], layer_end=2)
    m.fork(0, 1, 6)
    if own:
        m.round([(1, own)])
    kernel = broken_after(m, "copy_single_page", layer)
    before = snapshot(m.cache)
    with pytest.raises(Broken):
        m.cache.popn(1, own + 2)
    assert snapshot(m.cache) == before
    m.verify()
    m.cache.kernels = replace(m.cache.kernels, copy_single_page=kernel)
    m.popn(1, own + 2)
    m.round([(0, 1), (1, 2)])


@pytest.mark.parametrize("layer", [1, 2])
def test_a_compaction_that_fails_leaves_the_tree_open(layer):
    m = started([5], layer_end=2)
    m.round([(0, 6)], {0: [-1, 0, 0, 2, 3, 4]})
    kernel = broken_after(m, "compact_copy", layer)
    before = snapshot(m.cache)
    with pytest.raises(Broken):
        m.cache.commit_accepted_token_tree_nodes([0], [5])
    assert snapshot(m.cache) == before
    m.verify()
    m.cache.kernels = replace(m.cache.kernels, compact_copy=kernel)
    m.commit({0: 5})


def test_after_a_kernel_that_fails_a_round_can_be_popped_and_repeated():
    m = started([5, 2])
    pages = m.cache.get_num_available_pages()
    kernels = m.cache.kernels
    m.cache.kernels = replace(kernels, transpose_append_mha=nothing_but_failure)
    m.cache.begin_forward([0, 1], [3, 4])
    o = np.zeros((7, HEADS, SIZE), "float32")
    with pytest.raises(Broken):
        m.cache.attention_with_fused_qkv(0, np.zeros((7, 4, SIZE), "float32"), o, SCALE)
    m.cache.end_forward()
    m.cache.kernels = kernels
    m.cache.popn(0, 3)
    m.cache.popn(1, 4)
    m.verify()
    assert m.cache.get_num_available_pages() == pages
    m.round([(0, 3), (1, 4)])


def nothing_but_failure(*_):
    raise Broken
