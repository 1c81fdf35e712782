"""Orders of eviction, and the queue that keeps them cheap."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.serve.eviction import POLICIES, Usage, VictimQueue

# node, pages, created, last_used, hits
A, B, C = Usage(1, 2, 0, 9, 5), Usage(2, 1, 3, 4, 7), Usage(3, 4, 5, 6, 1)


@pytest.mark.parametrize(
    ("name", "order"), [("lru", [2, 3, 1]), ("lfu", [3, 1, 2]), ("fifo", [1, 2, 3])]
)
def test_each_policy_has_its_order_and_says_why(name, order):
    policy, queue = POLICIES.get(name), VictimQueue(POLICIES.get(name))
    for usage in (A, B, C):
        queue.put(usage)
    seen = []
    while (victim := queue.peek()) is not None:
        seen.append(victim.node)
        reason = policy.reason(victim, 10)
        assert reason.startswith(f"{name}: ")
        assert any(str(n) in reason for n in (victim.last_used, victim.created, victim.hits))
        queue.discard(victim.node)
    assert seen == order


def test_an_unknown_policy_names_the_known_ones():
    with pytest.raises(ValueError, match="eviction policy"):
        POLICIES.get("lruu")


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9), st.booleans())))
def test_the_queue_equals_a_sorted_list(actions):
    queue, known = VictimQueue(POLICIES.get("lru")), {}
    for node, used, keep in actions:
        if keep:
            known[node] = Usage(node, 1, 0, used, 0)
            queue.put(known[node])
        else:
            known.pop(node, None)
            queue.discard(node)
        assert len(queue) == len(known)
        expected = min(known.values(), key=lambda u: (u.last_used, u.node), default=None)
        assert queue.peek() == expected


def test_a_victim_is_found_without_a_walk_over_all():
    def seconds(count):
        queue = VictimQueue(POLICIES.get("lru"))
        for node in range(count):
            queue.put(Usage(node, 1, node, node, 0))
        start = time.process_time()
        for node in range(2000):
            assert queue.peek().node == node
            queue.put(Usage(node, 1, node, count + node, 1))
        return time.process_time() - start

    seconds(2000)
    assert seconds(200_000) < 10 * seconds(4000) + 0.05
