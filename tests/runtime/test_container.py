"""Shapes and arrays."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.runtime import Array, ShapeTuple

SIZES = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6)


@given(SIZES)
def test_a_shape_is_a_tuple_of_its_sizes(sizes):
    shape = ShapeTuple(sizes)
    assert shape == tuple(sizes)
    assert hash(shape) == hash(tuple(sizes))
    assert list(shape) == sizes
    assert eval(repr(shape)) == shape  # noqa: S307  # our own text
    assert ShapeTuple(shape) is shape
    assert pickle.loads(pickle.dumps(shape)) == shape  # noqa: S301  # our own bytes
    assert type(pickle.loads(pickle.dumps(shape))) is ShapeTuple  # noqa: S301


@given(SIZES)
def test_numpy_sizes_become_python_integers(sizes):
    shape = ShapeTuple(np.array(sizes, "int64"))
    assert shape == tuple(sizes)
    assert all(type(size) is int for size in shape)


@given(st.lists(st.integers(0, 9), max_size=5))
def test_numel_is_the_product(sizes):
    assert ShapeTuple(sizes).numel() == np.prod(sizes, dtype=object)


@pytest.mark.parametrize("bad", [[1.5], ["2"], [None], [(1,)]])
def test_a_shape_refuses_what_is_no_integer(bad):
    with pytest.raises(TypeError, match="a shape holds integers only"):
        ShapeTuple(bad)


@given(st.lists(st.integers() | st.lists(st.integers(), max_size=3), max_size=4))
def test_an_array_equals_lists_and_tuples_of_equal_elements(items):
    array = Array(items)
    assert array == items
    assert array == tuple(items)
    assert tuple(items) == array
    assert array == Array(items)
    assert (array != items) is False
    assert array != [*items, 0]
    assert array != 5
    assert repr(array) == repr(tuple(items))


def test_an_array_is_mutable_and_has_no_hash():
    array = Array([1, 2])
    array[0] = None
    assert array == (None, 2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(array)


def test_a_very_deep_array_is_dropped_without_a_crash():
    array = Array()
    for _ in range(200_000):
        array = Array([array])
    del array
