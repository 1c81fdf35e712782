"""Sequences leave a cache and come back: by page groups with a layout hash, and by swapping."""

import json

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.kv.cache_config import AttnKind, CacheConfig, RopeMode
from relaxlab.runtime.kv.checkpoint import layout_hash
from relaxlab.runtime.kv.snapshot import snapshot
from relaxlab.runtime.kv.swap import SavedSequence, restore_sequence, save_sequence
from tests.runtime.kv.modelled_cache import SIZE, TABLE, Modelled, small_config


def config(**changes):
    given = {
        "reserved_num_seqs": 8,
        "total_token_capacity": 64,
        "prefill_chunk_size": 64,
        "page_size": 4,
        "num_qo_heads": 4,
        "num_kv_heads": 2,
        "qk_head_dim": 8,
        "layer_end": 2,
        "rope_mode": RopeMode.NORMAL,
    }
    return CacheConfig(**given | changes)


@pytest.mark.parametrize(
    ("changes", "recorded"),  # by the real TVM
    [
        ({}, "33e96a3e6ca99d94"),
        ({"rotary_scale": 0.5, "rotary_theta": 500.0}, "f7aba1ef8b661a82"),
        ({"rotary_scale": 0.1, "rotary_theta": 1e6}, "7e12b191f1b8051d"),
        ({"dtype": DataType("float16")}, "252aa24e538dc766"),
        ({"dtype": DataType("bfloat16")}, "df50a52ca03f1a4c"),
        ({"rope_mode": RopeMode.INLINE}, "6ecf2fd4728c5b82"),
        ({"rope_mode": RopeMode.NONE}, "8059b8bb6d8ea1f3"),
    ],
)
def test_the_layout_hash_is_tvms(changes, recorded):
    assert layout_hash(config(**changes)) == recorded


def two(lengths=(7,), **changes):
    source, target = Modelled(small_config(**changes)), Modelled(small_config(**changes))
    for seq_id, length in enumerate(lengths):
        source.add(seq_id)
        source.round([(seq_id, length)])
    return source, target


def exported(cache):
    metadata = cache.get_checkpoint_metadata(0)
    groups = []
    for group in json.loads(metadata)["groups"]:
        target = np.full(group["shape"], np.nan, "float32")
        cache.export_page_group(0, group["group_index"], target)
        groups.append(target)
    return metadata, groups


@pytest.mark.parametrize("length", [1, 3, 4, 7])
def test_a_sequence_with_a_shared_prefix_comes_back_as_its_own(length):
    source, target = two([length], layer_end=2)
    source.fork(0, 1, length // 3 * 3)
    source.round([(0, 2), (1, 1)])
    metadata, groups = exported(source.cache)
    assert all(np.isfinite(group).all() for group in groups)
    used = (length + 2) % 3
    assert not used or all((group[0, -1, :, :, used:] == 0).all() for group in groups)
    target.add(3)
    target.round([(3, 4)])
    target.cache.prepare_import(0, metadata)
    for number in (1, 0):
        target.cache.import_page_group(0, number, groups[number])
    target.cache.finish_import(0)
    target.held = {0: source.held[0]}
    target.next_token = source.next_token
    target.verify()
    target.round([(0, 1)])


def test_while_an_import_is_running_most_calls_wait():
    source, target = two()
    metadata, groups = exported(source.cache)
    cache = target.cache
    for call in (lambda: cache.finish_import(0), lambda: cache.import_page_group(0, 0, groups[0])):
        assert "prepare_import" in target.refused(call)
    cache.prepare_import(0, metadata)
    assert cache.get_total_sequence_length() == 7
    target.held = {}  # contents come later
    before = snapshot(cache)
    for call in (
        lambda: cache.begin_forward([0], [1]),
        lambda: cache.get_sequence_length(0),
        lambda: cache.get_checkpoint_metadata(0),
        lambda: cache.export_page_group(0, 0, groups[0]),
        lambda: cache.add_sequence(1),
        lambda: cache.remove_sequence(0),
        lambda: cache.fork_sequence(0, 1),
        lambda: cache.popn(0, 1),
        lambda: cache.finish_import(0),
        lambda: cache.import_page_group(0, 1, groups[0]),
        lambda: cache.import_page_group(0, 0, groups[0][:, :1]),
        lambda: cache.import_page_group(1, 0, groups[0]),
    ):
        with pytest.raises(InternalError):
            call()
        assert snapshot(cache) == before == target.folded.state()
    cache.clear()
    target.verify()
    assert cache.empty()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"page_size": 8}, "field 'page_size': expected 3, got 8"),
        ({"page_size": True}, "field 'page_size'"),
        ({"dtype": "float16"}, "field 'dtype': expected 'float32', got 'float16'"),
        ({"rotary_theta": 1.0}, "field 'rotary_theta'"),
        ({"num_total_pages": 0}, "field 'num_total_pages': expected a number above 0, got 0"),
        ({"layout_hash": "x"}, "layout hash: expected [0-9a-f]{16}, got x"),
        ({"attn_kinds": ["mla"]}, "field 'attn_kinds'"),
        ({"seq_id": 1}, "field 'seq_id': expected 0, got 1"),
        ({"seq_length": -1}, "field 'seq_length': expected at least 0, got -1"),
        ({"seq_length": 90}, "90 tokens need 30 pages, but the source has 10 in all"),
        ({"seq_length": 90, "num_total_pages": 99}, "but this cache has 10 in all"),
        ({"seq_length": 3}, "field 'logical_pages': expected 1 entries"),
        ({"groups": []}, "field 'groups': expected 1 entries"),
        ({"logical_pages": [1, 2, 3]}, "entry 0 of 'logical_pages'"),
    ],
)
def test_metadata_that_do_not_fit_are_refused_before_anything_is_cleared(change, words):
    source, target = two()
    target.add(3)
    target.round([(3, 4)])
    metadata = json.loads(source.cache.get_checkpoint_metadata(0)) | change
    before = snapshot(target.cache)
    with pytest.raises(InternalError, match=words):
        target.cache.prepare_import(0, json.dumps(metadata))
    assert snapshot(target.cache) == before
    for text in ("", "[]", "{", "null"):
        target.refused(target.cache.prepare_import, 0, text)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attn_kinds": (AttnKind.MHA_SLIDING,)}, "MHA_SLIDING"),
        ({"support_sliding_window": True}, "sliding windows are not supported"),
        ({"v_head_dim": 1}, "got 2 and 1"),
    ],
)
def test_caches_that_cannot_be_exported_say_so(changes, words):
    m = Modelled(small_config(**changes))
    with pytest.raises(InternalError, match=words):
        m.cache.get_layout_hash()


def test_only_the_first_sequence_and_no_open_tree_is_exported():
    source, _ = two([4, 4])
    with pytest.raises(InternalError, match="expected sequence id 0, got 1"):
        source.cache.get_checkpoint_metadata(1)
    source.round([(0, 2)], {0: [-1, 0]})
    with pytest.raises(InternalError, match="has not been committed"):
        source.cache.get_checkpoint_metadata(0)
    source.commit({0: 1})
    source.round([(0, 3)], {0: [-1, 0, 0]})
    source.commit({0: 2})
    source.cache.get_checkpoint_metadata(0)


# ---- swapping ----------------------------------------------------------------------------------


def test_a_slid_sequence_is_swapped_out_and_in():
    m = Modelled(small_config(support_sliding_window=True, total_token_capacity=40))
    m.add(0)
    m.window(0, 8, 3)
    for count in (7, 5, 1):
        m.round([(0, count)])
    m.save(0)
    assert m.cache.empty()
    m.add(1)
    m.round([(1, 5)])
    m.restore(0)
    for count in (1, 4, 9):
        m.round([(0, count), (1, 1)])


def test_latent_rows_are_swapped_too():
    cache = Modelled(small_config(attn_kinds=(AttnKind.MLA,))).cache
    cache.add_sequence(0)
    cache.begin_forward([0], [5])
    rows = TABLE[0, :5].reshape(5, SIZE)
    slots = np.array(cache.slots_of(0))
    cache.pages[0].array[slots // 3, slots % 3] = rows
    saved = save_sequence(cache, 0)
    cache.clear()
    restore_sequence(cache, 4, saved)
    slots = np.array(cache.slots_of(4))
    assert (cache.pages[0].array[slots // 3, slots % 3] == rows).all()


def test_rows_that_do_not_fit_are_refused():
    m = Modelled(small_config())
    m.add(0)
    m.round([(0, 4)])
    saved = save_sequence(m.cache, 0)
    for wrong, words in (
        (SavedSequence(4, (), -1, 0), "expected rows of 1 layers, got 0"),
        (SavedSequence(5, saved.rows, -1, 0), r"expected shape \(5, 2, 1, 2\)"),
        (SavedSequence(4, (saved.rows[0].astype("float64"),), -1, 0), "dtype float32"),
    ):
        before = snapshot(m.cache)
        with pytest.raises(InternalError, match=words):
            restore_sequence(m.cache, 1, wrong)
        assert snapshot(m.cache) == before
    assert "already in the KV cache" in m.refused(restore_sequence, m.cache, 0, saved)
    m.round([(0, 1)], {0: [-1]})
    assert "has not been committed" in m.refused(save_sequence, m.cache, 0)
