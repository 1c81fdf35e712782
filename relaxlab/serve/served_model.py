"""What the engine needs of a model with a paged cache.

`relaxlab.models.paged_llama.PagedLlama` is the real one; tests use small ones. A call that raises
``RuntimeError`` is one that the cache refused: the engine frees what it used and tries again.
Counterpart: MLC's ``Model`` class.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from relaxlab.serve.prefix_cache import Sequences

__all__ = ["Remote", "ServedModel"]


class Remote(Protocol):
    """Somebody else who computes prompts and writes their keys and values into our pages."""

    @property
    def least(self) -> int:
        """Tokens from which asking is worth it."""
        ...

    def start(self, sequence: int, tokens: Sequence[int], have: int) -> int:
        """Reserve slots for the tokens from number ``have`` on and ask for them.

        Returns a ticket. Until `poll` returns it the sequence must not be touched.
        """
        ...

    def poll(self) -> list[tuple[int, str | None]]:
        """Return the tickets that ended since the last call, with what went wrong or None."""
        ...


class ServedModel(Sequences, Protocol):
    """A model, its cache, and the sizes of both."""

    @property
    def vocab(self) -> int:
        """Number of tokens in the vocabulary."""
        ...

    @property
    def context(self) -> int:
        """Longest sequence in tokens."""
        ...

    @property
    def page_size(self) -> int:
        """Tokens in a page."""
        ...

    @property
    def total_pages(self) -> int:
        """Pages in the pool."""
        ...

    @property
    def chunk(self) -> int:
        """Most tokens of one round."""
        ...

    def available_pages(self) -> int:
        """Return the number of free pages."""
        ...

    def run(
        self,
        sequences: Sequence[int],
        counts: Sequence[int],
        tokens: Sequence[int],
        rows: Sequence[int],
        parents: Sequence[int] | None = None,
    ) -> NDArray[np.float32]:
        """Run one round and return logits ``(len(rows), vocab)``.

        Parameters
        ----------
        sequences, counts
            The batch, and how many tokens each gets.
        tokens
            All of them, one sequence after the other.
        rows
            After which of these tokens logits are wanted.
        parents
            For a round of token trees: parent of each token within its sequence, or -1. Such a
            round is followed by `commit`.
        """
        ...

    def commit(self, sequences: Sequence[int], leaves: Sequence[int]) -> None:
        """Keep of each tree of the last round the path from the root to a node."""
        ...

    def save(self, sequence: int, tokens: int) -> Any:
        """Copy keys and values of the first tokens of a sequence to the host."""
        ...

    def restore(self, sequence: int, saved: Any, start: int) -> None:
        """Append saved keys and values, from token ``start`` on, to a sequence of that length."""
        ...
