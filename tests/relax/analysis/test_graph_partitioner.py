"""Grouping against a slow and obvious version of the same rules, and its speed."""

import time

from hypothesis import given
from hypothesis import strategies as st

from relaxlab.relax.analysis.graph_partitioner import ForwardGraph, partition
from relaxlab.relax.analysis.op_pattern import OpPatternKind

ELEM_WISE, BROADCAST, INJECTIVE, REDUCE, MATMUL, _, OPAQUE = OpPatternKind
KINDS = [ELEM_WISE, BROADCAST, INJECTIVE, REDUCE, MATMUL, OPAQUE]


def make(kinds, edges, outputs=()):
    graph = ForwardGraph()
    for i, kind in enumerate(kinds):
        graph.add(kind, i in outputs or i == len(kinds) - 1)
    for producer, reader in edges:
        graph.connect(producer, reader, kinds[reader])
    return graph


def post_dominator(graph, node):
    """Return the first node on all ways from ``node`` to the end, and the worst kind up to it."""
    if graph.is_output[node] or not graph.readers[node]:
        return None, None

    def ways(start):
        """Yield the nodes after ``start`` on each way to the end; None where one leaves."""
        if graph.is_output[start] or not graph.readers[start]:
            yield []
            return
        for reader, _ in graph.readers[start]:
            for rest in ways(reader):
                yield [reader, *rest]

    common = None
    for way in ways(node):
        common = way if common is None else [n for n in common if n in way]
    if not common:
        return None, None
    sink = common[0]
    kinds = [kind for start in between(graph, node, sink) for reader, kind in graph.readers[start]]
    return sink, max(kinds)


def between(graph, node, sink):
    found, stack = [], [node]
    while stack:
        current = stack.pop()
        if current not in found and current != sink:
            found.append(current)
            stack.extend(reader for reader, _ in graph.readers[current])
    return found


def slow_partition(graph, max_depth=256):
    """The rules of compiler.md, 6.5, without any cleverness."""
    count = len(graph)
    group = list(range(count))
    kind, size = list(graph.kinds), [1] * count

    for phase in (0, 1):
        for node in range(count):
            sink, passed = post_dominator(graph, node)
            if kind[node] is OPAQUE or sink is None:
                continue
            nodes = between(graph, node, sink)
            if size[group[sink]] + sum(size[n] for n in nodes) > max_depth:
                continue
            if group[node] == group[sink]:
                continue
            inner = [kind[group[n]] for n in nodes if n != node]
            last = kind[group[sink]]
            if kind[node] is MATMUL:
                fuse = phase == 0 and passed is ELEM_WISE and max([last, *inner]) <= BROADCAST
            elif kind[node] <= BROADCAST:
                fuse = (passed <= INJECTIVE or passed is REDUCE) and last <= MATMUL
                fuse = fuse and all(k <= INJECTIVE for k in inner)
            else:
                fuse = kind[node] is INJECTIVE and phase == 1 and max([last, *inner]) <= INJECTIVE
            if not fuse:
                continue
            for n in nodes:
                child, parent = group[n], group[sink]
                if child != parent:
                    if kind[child] is MATMUL:
                        kind[parent] = MATMUL
                    size[parent] += size[child]
                    group = [parent if g == child else g for g in group]
    return group


@st.composite
def graphs(draw):
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=9))
    edges = [
        (producer, reader)
        for reader in range(1, len(kinds))
        for producer in draw(
            st.lists(st.integers(max(0, reader - 4), reader - 1), max_size=3, unique=True)
        )
    ]
    outputs = draw(st.sets(st.integers(0, len(kinds) - 1), max_size=2))
    return make(kinds, edges, outputs)


@given(graphs(), st.sampled_from([2, 3, 256]))
def test_groups_are_those_of_the_slow_rules(graph, max_depth):
    assert partition(graph, max_depth) == slow_partition(graph, max_depth)


@given(graphs())
def test_only_the_last_node_of_a_group_is_read_outside(graph):
    groups = partition(graph)
    for node, leader in enumerate(groups):
        assert leader >= node
        if node != leader:
            assert not graph.is_output[node]
            assert {groups[reader] for reader, _ in graph.readers[node]} == {leader}
    matmuls = [g for g, kind in zip(groups, graph.kinds, strict=True) if kind is MATMUL]
    assert len(matmuls) == len(set(matmuls)), "a group has two anchors"


def test_a_value_that_is_used_everywhere_costs_nothing_extra():
    """A chain of 20 000 nodes, of which ten are read by all others."""

    def seconds(length):
        edges = [(i, i + 1) for i in range(length - 1)]
        edges += [(i, j) for i in range(10) for j in range(i + 2, length)]
        graph = make([OPAQUE] * length, edges)
        start = time.process_time()
        partition(graph)
        return time.process_time() - start

    seconds(1000)
    assert seconds(20_000) < 40 * seconds(2_000)
