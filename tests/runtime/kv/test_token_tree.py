"""Tree masks say who sees whom."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.runtime.kv.token_tree import (
    check_tree,
    is_chain,
    node_depths,
    path_to,
    tree_mask,
    window_mask,
)
from tests.runtime.kv.modelled_cache import ancestors


@st.composite
def trees(draw):
    return [draw(st.integers(-1, node - 1)) for node in range(draw(st.integers(1, 20)))]


@given(trees())
def test_the_mask_shows_ancestors_and_oneself(parents):
    mask = np.array(tree_mask(parents))
    visits, ends = mask[:, 0], mask[:, 1]
    sees = (visits[None] <= visits[:, None]) & (visits[:, None] < ends[None])
    np.testing.assert_array_equal(sees, ancestors(parents))
    assert sorted(visits) == list(range(len(parents)))


@given(trees())
def test_depths_and_paths(parents):
    depths = node_depths(parents)
    for node in range(len(parents)):
        path = path_to(parents, node)
        assert len(path) == depths[node] + 1
        assert path[-1] == node
        assert [parents[n] for n in path] == [-1, *path[:-1]]
    assert is_chain(parents) == (depths == list(range(len(parents))))
    assert path_to(parents, -1) == []


@given(nodes=st.integers(1, 12), window=st.integers(1, 12))
def test_a_window_is_a_mask_too(nodes, window):
    mask = np.array(window_mask(nodes, window))
    row, key = np.arange(nodes)[:, None], np.arange(nodes)[None]
    sees = (mask[:, 0][None] <= row) & (row < mask[:, 1][None])
    np.testing.assert_array_equal(sees, (key <= row) & (key > row - window))


@pytest.mark.parametrize("parents", [[0], [-1, 1], [-1, 0, 2], [-2], [-1] * 257])
def test_what_is_no_tree_is_refused(parents):
    with pytest.raises(InternalError, match="Invalid token tree"):
        check_tree(parents, 0)
