"""The pool is a stack over one run of fresh pages, whatever its size."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.runtime.kv.page_pool import PagePool


@given(st.integers(1, 6), st.lists(st.integers(0, 9), max_size=60))
def test_it_is_the_stack_that_it_stands_for(pages, choices):
    pool, stack, taken = PagePool(pages), list(range(pages - 1, -1, -1)), []
    for choice in choices:
        if choice < 6 and stack:
            assert pool.peek() == stack[-1]
            page = pool.take(owner=choice)
            assert page == stack.pop()
            assert pool.owner(page) == choice
            taken.append(page)
        elif choice < 6:
            assert pool.peek() is None
            with pytest.raises(InternalError, match=f"all {pages} pages are taken"):
                pool.take(owner=0)
        elif choice == 9:
            pool.clear()
            stack, taken = list(range(pages - 1, -1, -1)), []
        elif taken:
            page = taken.pop(choice % len(taken))
            pool.give_back(page)
            assert pool.owner(page) is None
            stack.append(page)
        assert pool.available == len(stack)
        assert sorted(pool.owned()) == sorted(taken)


def test_a_page_that_is_free_belongs_to_nobody():
    pool = PagePool(2)
    with pytest.raises(InternalError, match="page 1 is free"):
        pool.hand_over(1, 3)
    assert repr(pool) == "PagePool(2 of 2 pages free)"


def test_a_pool_of_any_size_is_made_and_cleared_at_once():
    best = 1.0
    for _ in range(3):
        start = time.perf_counter()
        pool = PagePool(10**12)
        pool.take(owner=0)
        pool.clear()
        best = min(best, time.perf_counter() - start)
    assert best < 1e-3
