"""Reserving and sliding: what is planned is what happens, and the newest tokens stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.runtime.kv.block import BlockTree
from relaxlab.runtime.kv.sequence import SequenceTable
from relaxlab.runtime.kv.sliding_window import (
    check_window,
    layer_offset,
    layer_pages,
    plan,
    reserve,
)


@given(
    pages=st.integers(1, 9),
    size=st.integers(1, 4),
    window=st.integers(1, 12),
    sink=st.integers(0, 11),
    others=st.integers(0, 4),
    appends=st.lists(st.integers(1, 17), min_size=1, max_size=8),
)
def test_what_is_planned_is_what_happens(pages, size, window, sink, others, appends):
    table = SequenceTable(BlockTree(pages, size))
    tree = table.tree
    for seq_id in (0, 1):
        table.add(seq_id)
    sequence, other = table.find(0), table.find(1)
    tree.allocate(other.last, min(others, pages))
    table.set_window(sequence, window, min(sink, window - 1))
    kept: list[int] = []
    count = 0
    for tokens in appends:
        available = tree.pool.available
        would = plan(sequence, tokens, available, sliding=True)
        table.count(sequence, tokens)
        if would.missing:
            with pytest.raises(InternalError, match="The KV cache is full"):
                reserve(table, sequence, tokens, sliding=True)
            return
        reserve(table, sequence, tokens, sliding=True)
        assert tree.pool.available == available - would.net
        kept += range(count, count + tokens)
        count += tokens
        if len(kept) > window:
            first = sequence.sink
            del kept[first : len(kept) - window + first]
        assert sequence.length == len(kept) == sequence.last.length
        slots = sequence.last.slots()
        assert len(set(slots)) == len(slots)
        assert len(sequence.last.pages) == sequence.last.places_for(sequence.length)
        assert set(sequence.last.pages) <= set(range(pages))


@given(pages=st.integers(1, 6), size=st.integers(1, 4), appends=st.lists(st.integers(1, 9)))
def test_without_a_window_nothing_is_given_back(pages, size, appends):
    table = SequenceTable(BlockTree(pages, size))
    table.add(0)
    sequence = table.find(0)
    for tokens in appends:
        would = plan(sequence, tokens, table.tree.pool.available, sliding=True)
        needed = -(-(sequence.length + tokens) // size)
        assert would.missing == max(needed - pages, 0)
        if would.missing:
            return
        table.count(sequence, tokens)
        reserve(table, sequence, tokens, sliding=True)
        assert len(sequence.last.pages) == needed


def test_a_shared_block_and_no_tokens_are_refused():
    table = SequenceTable(BlockTree(4, 2))
    table.add(0)
    sequence = table.find(0)
    with pytest.raises(InternalError, match="Append with length 0"):
        reserve(table, sequence, 0, sliding=False)
    sequence.last.references += 1
    with pytest.raises(InternalError, match="shared and cannot be written"):
        reserve(table, sequence, 1, sliding=False)


@pytest.mark.parametrize(
    ("window", "sink", "words"),
    [
        (0, 0, "window size should be positive, got 0"),
        (4, -1, "sink size should be non-negative, got -1"),
        (4, 4, "less than the sliding window size, got 4 and 4"),
    ],
)
def test_sizes_that_cannot_be(window, sink, words):
    table = SequenceTable(BlockTree(4, 2))
    table.add(0)
    with pytest.raises(InternalError, match=words):
        check_window(table.find(0), window, sink)
    table.set_window(table.find(0), 4, 1)
    with pytest.raises(InternalError, match="4 is already enabled"):
        check_window(table.find(0), 5, 1)


@given(length=st.integers(0, 40), window=st.integers(1, 12), size=st.integers(1, 5))
def test_a_layer_sees_the_last_tokens(length, window, size):
    seen = min(length, window)
    pages = layer_pages(length, window=window, page_size=size)
    offset = layer_offset(length, window=window, page_size=size)
    all_pages = -(-length // size)
    first = (all_pages - pages) * size + offset
    assert list(range(length))[first:] == list(range(length))[length - seen :]
