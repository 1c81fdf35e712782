"""Token trees: several continuations of one sequence in a single round.

Speculation proposes a tree of tokens; each node must see its ancestors and nothing else of the
tree. Visiting the tree depth first gives every node a number ``a``, and its subtree the numbers
up to ``e``: node q sees node k exactly if ``a_k <= a_q < e_k``. Counterpart: kv.md 3.8.

Examples
--------
>>> tree_mask([-1, 0, 0, 1])  # 0 has children 1 and 2, and 1 has 3
[(0, 4), (1, 3), (3, 4), (2, 3)]
>>> node_depths([-1, 0, 0, 1]), path_to([-1, 0, 0, 1], 3)
([0, 1, 1, 2], [0, 1, 3])
"""

from collections.abc import Sequence

from relaxlab.errors import InternalError

__all__ = [
    "LARGEST_TREE",
    "check_tree",
    "is_chain",
    "node_depths",
    "path_to",
    "tree_mask",
    "window_mask",
]

LARGEST_TREE = 256
"""Most nodes of one sequence's tree."""


def check_tree(parents: Sequence[int], index: int) -> None:
    """Refuse a tree that is none; ``index`` is its number in the batch.

    Raises
    ------
    InternalError
        If it is too large, or a parent is not an earlier node.
    """
    if len(parents) > LARGEST_TREE:
        raise InternalError(
            f"Invalid token tree. Tree {index} has {len(parents)} nodes, the most is {LARGEST_TREE}"
        )
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise InternalError(
                f"Invalid token tree. The parent of node {node} in tree {index} is {parent}, "
                f"expected -1 (a root) or a node before {node}"
            )


def is_chain(parents: Sequence[int]) -> bool:
    """Whether every node follows the node before it."""
    return all(parent == node - 1 for node, parent in enumerate(parents))


def node_depths(parents: Sequence[int]) -> list[int]:
    """Return how many ancestors each node has."""
    depths: list[int] = []
    for parent in parents:
        depths.append(0 if parent == -1 else depths[parent] + 1)
    return depths


def path_to(parents: Sequence[int], leaf: int) -> list[int]:
    """Return the nodes from the root to a leaf; leaf -1 gives none."""
    path = []
    while leaf != -1:
        path.append(leaf)
        leaf = parents[leaf]
    path.reverse()
    return path


def tree_mask(parents: Sequence[int]) -> list[tuple[int, int]]:
    """Return for each node its visit number and one past the last of its subtree."""
    sizes = [1] * len(parents)
    for node in range(len(parents) - 1, -1, -1):
        if parents[node] != -1:
            sizes[parents[node]] += sizes[node]
    # children are visited in the order of their numbers, so each starts where the last one ended
    next_visit = {-1: 0}
    mask: list[tuple[int, int]] = []
    for node, parent in enumerate(parents):
        visit = next_visit[parent]
        next_visit[parent] = visit + sizes[node]
        next_visit[node] = visit + 1
        mask.append((visit, visit + sizes[node]))
    return mask


def window_mask(nodes: int, window: int) -> list[tuple[int, int]]:
    """Return the mask of a chain whose nodes see only the last ``window`` nodes, themselves too.

    The intervals overlap, which no tree's do, and mean the same to a kernel.
    """
    return [(node, min(node + window, nodes)) for node in range(nodes)]
