"""A compiled language model with a paged cache, as a serving engine wants it.

One object joins the executable, the weights and the cache: `PagedLlama.run` is a round from
``begin_forward`` to ``end_forward`` for any batch. Keys and values can leave for the host and come
back, exactly as they were: slots are reserved as for rows from another machine, then filled.
Counterpart: MLC's ``Model``.

Examples
--------
>>> from relaxlab.models.language_model import open_model
>>> llama = PagedLlama(open_model("tiny"), page_size=8, capacity=64)
>>> llama.add_sequence(0)
>>> llama.run([0], [3], [104, 101, 121], rows=[2]).shape, llama.available_pages()
((1, 256), 8)
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxlab import relax, runtime
from relaxlab.ir import Target
from relaxlab.models.language_model import LanguageModel
from relaxlab.models.paged_decoder import paged_decoder
from relaxlab.runtime.kv.attention import KernelSpec
from relaxlab.runtime.kv.attention.tables import kernel_arguments
from relaxlab.runtime.kv.observer import RemovalCause
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.runtime.kv.rope import Rope, RopeMode

__all__ = ["PagedLlama", "paged_cache"]

Floats = NDArray[np.float32]


def paged_cache(
    model: LanguageModel,
    *,
    page_size: int = 16,
    capacity: int = 4096,
    chunk: int = 512,
    sequences: int = 64,
    family: str | None = None,
    transfer: bool = False,
) -> PagedAttentionKVCache:
    """Make a cache that fits a model.

    Parameters
    ----------
    model
        Whose layers, heads and rotation it gets.
    page_size
        Tokens in a page.
    capacity
        Tokens that all sequences together may hold.
    chunk
        Most tokens of one round.
    sequences
        How many to expect.
    family
        Who makes the kernels; the best there is when None.
    transfer
        Whether rows can be sent to a cache in another process.
    """
    c = model.config
    rope = Rope(c.head_dim, c.rope_theta)
    spec = KernelSpec(c.heads, c.kv_heads, c.head_dim, page_size=page_size, rope=rope)
    create = runtime.get_global_func("vm.builtin.paged_attention_kv_cache_create")
    cache = create(
        runtime.ShapeTuple([sequences, capacity, chunk, page_size, 0]),
        runtime.ShapeTuple([0, c.layers]),
        c.heads,
        c.kv_heads,
        c.head_dim,
        c.head_dim,
        runtime.ShapeTuple([0] * c.layers),
        transfer,
        int(RopeMode.NORMAL),
        1.0,
        c.rope_theta,
        None,
        runtime.tensor(np.zeros((), np.float32)),
        *kernel_arguments(spec, family),
    )
    assert isinstance(cache, PagedAttentionKVCache)
    return cache


class PagedLlama:
    """A model and its cache; implements `relaxlab.serve.served_model.ServedModel`.

    Parameters
    ----------
    model
        What :func:`relaxlab.models.language_model.open_model` returned.
    target
        As for :func:`relaxlab.relax.build`.
    page_size, capacity, chunk, family, transfer
        As for :func:`paged_cache`.

    Attributes
    ----------
    executable, vm
        The compiled module and its machine.
    cache
        The paged cache.
    """

    def __init__(
        self,
        model: LanguageModel,
        target: str | Target | None = None,
        *,
        page_size: int = 16,
        capacity: int = 4096,
        chunk: int = 512,
        family: str | None = None,
        transfer: bool = False,
    ) -> None:
        self.model = model
        self.executable = relax.build(paged_decoder(model.config), target)
        # the executable is bytecode, and runs as such while somebody watches
        self.vm = relax.VirtualMachine(self.executable, runtime.cpu(), exec_mode="compiled")
        self.cache = paged_cache(
            model,
            page_size=page_size,
            capacity=capacity,
            chunk=chunk,
            family=family,
            transfer=transfer,
        )

    @cached_property
    def params(self) -> tuple[Any, ...]:
        """The weights in the module's order, decoded when they are first needed."""
        return tuple(runtime.tensor(array) for array in dict(self.model.weights).values())

    @property
    def vocab(self) -> int:
        """Number of tokens in the vocabulary."""
        return self.model.config.vocab

    @property
    def context(self) -> int:
        """Longest sequence in tokens."""
        return self.model.config.context

    @property
    def page_size(self) -> int:
        """Tokens in a page."""
        return self.cache.config.page_size

    @property
    def total_pages(self) -> int:
        """Pages in the pool."""
        return self.cache.config.num_total_pages

    @property
    def chunk(self) -> int:
        """Most tokens of one round."""
        return self.cache.config.prefill_chunk_size

    def available_pages(self) -> int:
        """Return the number of free pages."""
        return self.cache.get_num_available_pages()

    def add_sequence(self, sequence: int) -> None:
        """Begin an empty sequence."""
        self.cache.add_sequence(sequence)

    def remove_sequence(
        self, sequence: int, *, cause: RemovalCause = "removed", reason: str = ""
    ) -> None:
        """Drop a sequence and give back what nobody else uses."""
        self.cache.remove_sequence(sequence, cause=cause, reason=reason)

    def retain_sequence(self, sequence: int) -> None:
        """Note that a sequence is kept for its contents only."""
        self.cache.retain_sequence(sequence)

    def fork_sequence(self, parent: int, child: int, position: int) -> None:
        """Begin a sequence with the first ``position`` tokens of another."""
        self.cache.fork_sequence(parent, child, position)

    def popn(self, sequence: int, tokens: int) -> None:
        """Forget the last tokens of a sequence."""
        self.cache.popn(sequence, tokens)

    def run(
        self,
        sequences: Sequence[int],
        counts: Sequence[int],
        tokens: Sequence[int],
        rows: Sequence[int],
        parents: Sequence[int] | None = None,
    ) -> Floats:
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
            For a round of token trees: parent of each token within its sequence, or -1.

        Raises
        ------
        InternalError
            The cache refused the batch; nothing has changed.
        """
        ids = np.array(tokens, np.int64)
        self.cache.begin_forward(sequences, counts, parents)
        try:
            if len(rows) == len(tokens):
                logits = self.vm["decode"](ids, self.cache, self.params)
            else:
                wanted = np.array(rows, np.int64)
                logits = self.vm["prefill"](ids, wanted, self.cache, self.params)
        finally:
            self.cache.end_forward()
        found: Floats = logits.numpy()
        return found

    def commit(self, sequences: Sequence[int], leaves: Sequence[int]) -> None:
        """Keep of each tree of the last round the path from the root to a node."""
        self.cache.commit_accepted_token_tree_nodes(sequences, leaves)

    def save(self, sequence: int, tokens: int) -> tuple[Floats, Floats]:
        """Copy keys and values of the first tokens to the host, each ``[layers, tokens, H, D]``."""
        c = self.cache.config
        shape = (c.num_layers, tokens, c.num_kv_heads, c.qk_head_dim)
        k, v = np.empty(shape, np.float32), np.empty(shape, np.float32)
        self.cache.debug_get_kv(sequence, 0, tokens, k, v)
        return k, v

    def restore(self, sequence: int, saved: tuple[Floats, Floats], start: int) -> None:
        """Append saved keys and values, from token ``start`` on, to a sequence of that length."""
        k, v = saved
        store = self.cache.kernels.transpose_append_mha
        assert store is not None
        end = k.shape[1]
        for first in range(start, end, self.chunk):
            last = min(first + self.chunk, end)
            self.cache.begin_forward([sequence], [last - first])
            slots = runtime.tensor(np.array(self.cache.slots_of(sequence)[first:last], np.int32))
            for layer, pages in enumerate(self.cache.pages):
                rows = (runtime.tensor(part[layer, first:last].copy()) for part in (k, v))
                store(pages, *rows, slots)
            self.cache.end_forward()

    def __repr__(self) -> str:
        return f"PagedLlama({self.model.name}, {self.cache!r})"
