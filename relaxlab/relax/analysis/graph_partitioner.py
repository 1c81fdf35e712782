"""Which bindings of a dataflow block may run as one kernel.

A block is a graph: nodes are bindings, edges say how (as which :class:`OpPatternKind`) a value is
read. A node may join its *post-dominator*, the first binding through which everything computed
from it passes, when all nodes in between allow it. Groups grow in two rounds: what reads the
result of a matmul-like node, then injective chains. (TVM has one more, for tuple nodes, which its
Relax graphs do not contain.)
Counterpart: ``GraphPartitioner`` and ``DominatorTree`` of TVM (compiler.md, 6.5).

Dominators are found through jump pointers, so that a value that is used everywhere costs no walk
along the whole block: the time is linear but for a logarithm.

Examples
--------
>>> graph = ForwardGraph()
>>> a, b, c = (graph.add(OpPatternKind.ELEM_WISE, is_output=last) for last in (0, 0, 1))
>>> graph.connect(a, b, OpPatternKind.ELEM_WISE)
>>> graph.connect(b, c, OpPatternKind.ELEM_WISE)
>>> partition(graph)
[2, 2, 2]
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from relaxlab.relax.analysis.op_pattern import OpPatternKind

__all__ = ["ForwardGraph", "partition"]

_ELEM_WISE = OpPatternKind.ELEM_WISE
_BROADCAST = OpPatternKind.BROADCAST
_INJECTIVE = OpPatternKind.INJECTIVE
_REDUCE = OpPatternKind.COMM_REDUCE
_MATMUL = OpPatternKind.OUT_ELEM_WISE_FUSABLE
_OPAQUE = OpPatternKind.OPAQUE


@dataclass(slots=True)
class ForwardGraph:
    """Nodes in program order, each with its kind and its readers.

    Attributes
    ----------
    kinds
        What each node computes.
    is_output
        Whether a node is visible outside, so that it cannot disappear into another one.
    readers
        The nodes that read each node, and as what.
    """

    kinds: list[OpPatternKind] = field(default_factory=list)
    is_output: list[bool] = field(default_factory=list)
    readers: list[list[tuple[int, OpPatternKind]]] = field(default_factory=list)

    def add(self, kind: OpPatternKind, is_output: bool = False) -> int:
        """Add a node after all others and return its number."""
        self.kinds.append(kind)
        self.is_output.append(is_output)
        self.readers.append([])
        return len(self.kinds) - 1

    def connect(self, producer: int, reader: int, kind: OpPatternKind) -> None:
        """Note that ``reader`` reads ``producer``."""
        self.readers[producer].append((reader, kind))

    def __len__(self) -> int:
        return len(self.kinds)


def partition(graph: ForwardGraph, max_depth: int = 256) -> list[int]:
    """Return, for each node, the last node of its group: itself where it stays alone.

    Parameters
    ----------
    graph
        The block.
    max_depth
        Most nodes a group may have.
    """
    groups = _Groups(graph, max_depth)
    for fuse in (groups.fuse_outer, groups.fuse_injective):
        for node in range(len(graph)):
            groups.try_node(node, fuse)
    return [groups.root(node) for node in range(len(graph))]


class _PostDominators:
    """The tree of post-dominators; its root, which stands for "none", is number ``len(graph)``.

    Attributes
    ----------
    parent
        The post-dominator of each node.
    kind
        The most restrictive kind on any way from a node to its post-dominator.
    """

    def __init__(self, graph: ForwardGraph) -> None:
        count = len(graph)
        self.none = count
        self.parent = [count] * (count + 1)
        self.kind = [_ELEM_WISE] * (count + 1)
        self._depth = [0] * (count + 1)
        # an ancestor further up, and the kinds from a node up to, without, that ancestor
        self._jump = [count] * (count + 1)
        self._jump_kind = [_ELEM_WISE] * (count + 1)
        for node in reversed(range(count)):
            self._place(node, graph)

    def _place(self, node: int, graph: ForwardGraph) -> None:
        parent, kind = self.none, _OPAQUE
        if not graph.is_output[node]:
            readers = graph.readers[node]
            kind = max((kind for _, kind in readers), default=_ELEM_WISE)
            if readers:
                parent = readers[0][0]
            for reader, _ in readers[1:]:
                parent, passed = self._common_ancestor(parent, reader)
                kind = max(kind, passed)
        self.parent[node], self.kind[node] = parent, kind
        self._depth[node] = self._depth[parent] + 1
        jump = self._jump[parent]
        far = self._jump[jump]
        if self._depth[parent] - self._depth[jump] == self._depth[jump] - self._depth[far]:
            self._jump[node] = far
            self._jump_kind[node] = max(kind, self._jump_kind[parent], self._jump_kind[jump])
        else:
            self._jump[node], self._jump_kind[node] = parent, kind

    def _common_ancestor(self, a: int, b: int) -> tuple[int, OpPatternKind]:
        """Return where two nodes meet, and the most restrictive kind on the ways there."""
        kind = _ELEM_WISE
        if self._depth[a] < self._depth[b]:
            a, b = b, a
        while self._depth[a] > self._depth[b]:
            if self._depth[self._jump[a]] >= self._depth[b]:
                kind, a = max(kind, self._jump_kind[a]), self._jump[a]
            else:
                kind, a = max(kind, self.kind[a]), self.parent[a]
        while a != b:
            if self._jump[a] != self._jump[b]:
                kind = max(kind, self._jump_kind[a], self._jump_kind[b])
                a, b = self._jump[a], self._jump[b]
            else:
                kind = max(kind, self.kind[a], self.kind[b])
                a, b = self.parent[a], self.parent[b]
        return a, kind


Allows = Callable[[OpPatternKind, bool], bool]


class _Groups:
    """Groups as a union-find forest; the root of a group is its last node."""

    def __init__(self, graph: ForwardGraph, max_depth: int) -> None:
        self.graph = graph
        self.max_depth = max_depth
        self.dominators = _PostDominators(graph)
        self.leader = list(range(len(graph)))
        self.kind = list(graph.kinds)
        self.size = [1] * len(graph)
        #: Whether the group holds a matmul-like node; it may hold only one.
        self.anchored = [kind is _MATMUL for kind in graph.kinds]

    def root(self, node: int) -> int:
        """Return the node that stands for a group."""
        while self.leader[node] != node:
            self.leader[node] = self.leader[self.leader[node]]
            node = self.leader[node]
        return node

    def try_node(self, node: int, fuse: Callable[[int, int], None]) -> None:
        """Let ``fuse`` decide whether a node joins its post-dominator."""
        sink = self.dominators.parent[node]
        if self.kind[node] is _OPAQUE or sink == self.dominators.none:
            return
        if self.root(node) != self.root(sink):
            fuse(node, sink)

    def fuse_outer(self, node: int, sink: int) -> None:
        """First round: matmul-like nodes take in what follows, simple nodes join theirs."""
        if self.kind[node] is not _MATMUL:
            self.fuse_simple(node, sink)
        elif self.dominators.kind[node] is _ELEM_WISE and self.fits(node, sink):
            self.join(node, sink, lambda kind, last: kind <= _BROADCAST)

    def fuse_injective(self, node: int, sink: int) -> None:
        """Second round: injective nodes join injective ones, now that matmuls have theirs."""
        if self.kind[node] is not _INJECTIVE:
            self.fuse_simple(node, sink)
        elif self.fits(node, sink):
            self.join(node, sink, lambda kind, last: kind <= _INJECTIVE)

    def fuse_simple(self, node: int, sink: int) -> None:
        """Let an element-wise or broadcasting node join; a reduction may be where it ends."""
        passed = self.dominators.kind[node]
        if self.kind[node] > _BROADCAST or not (passed <= _INJECTIVE or passed is _REDUCE):
            return
        if self.fits(node, sink):
            self.join(node, sink, lambda kind, last: kind <= (_MATMUL if last else _INJECTIVE))

    def between(self, node: int, sink: int) -> Iterator[int]:
        """Yield every node on a way from ``node`` to ``sink``, the first and not the last."""
        seen, stack = {node, sink}, [node]
        while stack:
            current = stack.pop()
            yield current
            for reader, _ in self.graph.readers[current]:
                if reader not in seen:
                    seen.add(reader)
                    stack.append(reader)

    def fits(self, node: int, sink: int) -> bool:
        """Say whether the group would stay within the limit."""
        total = self.size[self.root(sink)]
        for current in self.between(node, sink):
            total += self.size[current]
            if total > self.max_depth:
                return False
        return True

    def join(self, node: int, sink: int, allows: Allows) -> None:
        """Merge all ways from ``node`` to ``sink`` into the group of ``sink``, if all may."""
        path = list(self.between(node, sink))
        inner = all(allows(self.kind[self.root(current)], False) for current in path[1:])
        if inner and allows(self.kind[self.root(sink)], True):
            for current in path:
                self.merge(current, sink)

    def merge(self, node: int, sink: int) -> None:
        """Merge one group into another."""
        child, parent = self.root(node), self.root(sink)
        if child == parent:
            return
        self.size[parent] += self.size[child]
        self.leader[child] = parent
        if self.anchored[child]:
            self.anchored[parent] = True
            self.kind[parent] = max(self.kind[child], self.kind[parent])
