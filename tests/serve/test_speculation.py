"""Drafts from the text itself, and the walk that checks them."""

from hypothesis import given
from hypothesis import strategies as st

from relaxlab.serve.speculation import Draft, draft, verify


def test_nothing_to_repeat_is_nothing_to_guess():
    assert len(draft([1, 2, 3])) == 1
    assert len(draft([5])) == 1


def test_what_followed_last_time_is_the_guess():
    tree = draft([1, 2, 3, 4, 5, 1, 2], tokens=3, width=1)
    assert tree.tokens == (2, 3, 4, 5)
    assert tree.parents == (-1, 0, 1, 2)


def test_two_pasts_make_a_branching_tree():
    tree = draft([1, 2, 3, 3, 1, 2, 4, 4, 1, 2], tokens=5, width=2)
    assert [t for t, p in zip(tree.tokens, tree.parents, strict=True) if p == 0] == [4, 3]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 8), st.integers(1, 4))
def test_a_draft_is_a_tree_of_wanted_size(history, tokens, width):
    tree = draft(history, tokens=tokens, width=width)
    assert 1 <= len(tree) <= tokens + 1
    assert tree.tokens[0] == history[-1]
    assert tree.parents[0] == -1
    assert all(0 <= p < i for i, p in enumerate(tree.parents) if i)
    pairs = list(zip(tree.parents, tree.tokens, strict=True))
    assert len(set(pairs)) == len(pairs)
    assert sum(p == 0 for p in tree.parents) <= width


def test_the_walk_ends_at_the_last_right_guess():
    tree = Draft((9, 1, 2, 3), (-1, 0, 0, 2))
    asked = []

    def accept(node):
        asked.append(node)
        return {0: 2, 2: 3, 3: 7}[node]

    assert verify(tree, accept) == 3
    assert asked == [0, 2, 3]
    assert verify(tree, lambda node: 5) == 0
    assert verify(tree, lambda node: 2 if node == 0 else None) == 2
    assert [tree.depth(i) for i in range(4)] == [0, 1, 1, 2]
    assert tree.trimmed(2) == Draft((9, 1), (-1, 0))
