"""Guessing ahead: drafts from the text itself, checked in one round by tree attention.

Text repeats itself. Where the last few tokens occurred before, what followed then is a guess at
what follows now; several guesses make a tree with the last certain token as its root. One round
gives the logits after every node. The walk from the root then chooses each token exactly as
without speculation (the random number depends on the position only), and goes on as long as the
choice is a child. So the output is the same tokens, only sooner. Counterpart: MLC's speculative
modes with TVM's token trees (kv.md 3.8); the draft is prompt lookup.

Examples
--------
>>> tree = draft([1, 2, 3, 9, 1, 2, 4, 9, 1, 2], tokens=4, width=2)
>>> tree.tokens, tree.parents
((2, 4, 9, 1, 3), (-1, 0, 1, 2, 0))
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Draft", "draft", "verify"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A tree of tokens; node 0 is the last certain token.

    Attributes
    ----------
    tokens
        The token of each node.
    parents
        Number of each node's parent, always smaller than its own; -1 for the root.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    def trimmed(self, nodes: int) -> "Draft":
        """Return the first nodes, the root at least."""
        nodes = max(nodes, 1)
        return self if nodes >= len(self) else Draft(self.tokens[:nodes], self.parents[:nodes])

    def depth(self, node: int) -> int:
        """Return the number of nodes above a node."""
        depth = 0
        while self.parents[node] >= 0:
            node, depth = self.parents[node], depth + 1
        return depth


def draft(
    history: Sequence[int], *, tokens: int = 4, width: int = 2, longest: int = 3, window: int = 1024
) -> Draft:
    """Guess what follows a history.

    Parameters
    ----------
    history
        All tokens so far.
    tokens
        Most nodes besides the root.
    width
        Most continuations to follow.
    longest
        The last ``longest`` tokens are looked up first, then fewer, down to one.
    window
        How many of the last tokens are searched.
    """
    text = tuple(history[-window:])
    nodes, parents = [history[-1]], [-1]
    children: dict[tuple[int, int], int] = {}
    followed: set[tuple[int, ...]] = set()
    for size in range(min(longest, len(text) - 1), 0, -1):
        ending = text[-size:]
        for at in range(len(text) - size - 1, -1, -1):  # the latest occurrence first
            if len(followed) == width or len(nodes) > tokens:
                return Draft(tuple(nodes), tuple(parents))
            if text[at : at + size] != ending:
                continue
            # each further guess may use what the earlier ones left
            share = tokens - (len(nodes) - 1) - (1 if not followed and width > 1 else 0)
            guess = text[at + size : at + size + max(share, 1)]
            if guess[:1] in {path[:1] for path in followed}:
                continue  # it begins like a guess from a longer or later match
            followed.add(guess)
            node = 0
            for token in guess:
                if len(nodes) > tokens:
                    break
                if (node, token) not in children:
                    children[node, token] = len(nodes)
                    nodes.append(token)
                    parents.append(node)
                node = children[node, token]
    return Draft(tuple(nodes), tuple(parents))


def verify(tree: Draft, accept: Callable[[int], int | None]) -> int:
    """Walk down the tree as long as it guessed right; return the last node that did.

    Parameters
    ----------
    tree
        The draft.
    accept
        Given a node, chooses and keeps the token that follows it and returns it; None when the
        output has ended.
    """
    children = {
        (parent, token): node
        for node, (parent, token) in enumerate(zip(tree.parents, tree.tokens, strict=True))
    }
    node = 0
    while (token := accept(node)) is not None and (node, token) in children:
        node = children[node, token]
    return node
