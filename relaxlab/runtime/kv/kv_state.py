"""What every cache of a model's past can do, and what attention caches can do on top.

A serving engine speaks to all caches through these two interfaces; a compiled model reaches them
through ``vm.builtin.kv_state_*`` and ``vm.builtin.attention_kv_cache_*``. A paged cache is both, a
recurrent state is a ``KVState`` only. Counterparts: TVM's ``relax.vm.KVState`` and
``relax.vm.AttentionKVCache`` (kv.md sections 1 and 2).

Every method says whether it changes the cache. A call that raises has changed nothing (outside
``exact()``); errors are :class:`~relaxlab.errors.InternalError` unless the kind of an argument is
wrong (``TypeError``).

Examples
--------
A hybrid model keeps an attention cache and a recurrent state with the same sequence ids:

>>> def add_everywhere(states: list[KVState], seq_id: int) -> None:
...     for state in states:
...         state.add_sequence(seq_id)
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from relaxlab.runtime.tensor import Tensor

__all__ = ["AttentionKVCache", "KVState"]


class KVState(ABC):
    """State of a model's past for many sequences, each named by an integer id.

    A round is: ``begin_forward``, the model's calls (attention, or get and set), ``end_forward``.
    """

    @abstractmethod
    def clear(self) -> None:
        """Forget all sequences; everything is free again, in its first order. Data stays."""

    @abstractmethod
    def add_sequence(self, seq_id: int) -> None:
        """Begin an empty sequence; its id must be new."""

    @abstractmethod
    def remove_sequence(self, seq_id: int) -> None:
        """Drop a sequence and give back what no other sequence uses."""

    @abstractmethod
    def fork_sequence(self, parent: int, child: int, position: int = -1) -> None:
        """Begin ``child`` with the first ``position`` tokens of ``parent``; -1 means all."""

    @abstractmethod
    def popn(self, seq_id: int, count: int) -> None:
        """Forget the last ``count`` tokens of a sequence."""

    @abstractmethod
    def begin_forward(
        self,
        seq_ids: Sequence[int],
        append_lengths: Sequence[int],
        token_tree: Sequence[int] | None = None,
    ) -> None:
        """Fix the batch of the next round and reserve its memory.

        Parameters
        ----------
        seq_ids
            The sequences, in batch order.
        append_lengths
            Tokens that each of them gets.
        token_tree
            One parent index per appended token, all sequences one after the other; an index
            counts within the sequence's uncommitted tree, -1 marks a root. None: no trees.
        """

    @abstractmethod
    def end_forward(self) -> None:
        """Finish the round."""


class AttentionKVCache(KVState):
    """A KV state that attention layers read and write.

    Shapes below: ``T`` is the number of tokens appended in this round, ``H_q`` and ``H`` the
    numbers of query and of key heads, ``D`` the head size. Logarithms (``lse``) are base 2.
    """

    @abstractmethod
    def empty(self) -> bool:
        """Whether no sequence exists and every page is free."""

    @abstractmethod
    def get_num_available_pages(self) -> int:
        """Return the number of free pages."""

    @abstractmethod
    def get_total_sequence_length(self) -> int:
        """Return the sum of all lengths; a shared prefix counts once per sequence."""

    @abstractmethod
    def get_sequence_length(self, seq_id: int) -> int:
        """Return the current length of a sequence in tokens."""

    @abstractmethod
    def enable_sliding_window_for_seq(self, seq_id: int, window: int, sink: int) -> None:
        """Let a sequence keep its first ``sink`` tokens and the last ones, ``window`` in all."""

    @abstractmethod
    def commit_accepted_token_tree_nodes(
        self, seq_ids: Sequence[int], leaf_indices: Sequence[int]
    ) -> None:
        """Keep, of each sequence's tree, the path from its root to the leaf; -1 keeps nothing."""

    @abstractmethod
    def attention_with_fused_qkv(self, layer: int, qkv: Any, o: Any, sm_scale: float) -> None:
        """Split, rotate, append and attend.

        Parameters
        ----------
        layer
            Global number of the layer.
        qkv
            ``[N, H_q + 2 H, D]`` with ``N >= T``; rows from ``T`` on are not read.
        o
            ``[N, H_q, D]``, filled up to row ``T``.
        sm_scale
            Factor on the scores.
        """

    @abstractmethod
    def self_attention(
        self, layer: int, q: Any, k: Any, v: Any, o: Any, lse: Any, sm_scale: float
    ) -> None:
        """Attend to this round's tokens only: q ``[T, H_q, D]`` → o, lse ``[T, H_q]``."""

    @abstractmethod
    def cross_attention(self, layer: int, q: Any, o: Any, lse: Any, sm_scale: float) -> None:
        """Attend to the pages only: q ``[T, H_q, D]`` → o, lse ``[T, H_q]``."""

    @abstractmethod
    def attention_with_shared_kv(
        self, source_layer: int, q: Any, current_k: Any, current_v: Any, o: Any, sm_scale: float
    ) -> None:
        """Attend to another layer's pages and this round's k, v; nothing is stored."""

    @abstractmethod
    def append_mla_kv(self, layer: int, kv: Any) -> None:
        """Store latent rows ``[M, D]``, ``M <= T``, of an MLA layer."""

    @abstractmethod
    def merge_attn_output_inplace(self, o1: Any, lse1: Any, o2: Any, lse2: Any) -> None:
        """Combine two partial results into ``o1`` and ``lse1``."""

    @abstractmethod
    def get_query_positions(self) -> Tensor:
        """Return the positions of this round's tokens, int32 ``[T]``."""

    @abstractmethod
    def debug_get_kv(self, seq_id: int, start: int, end: int, k: Any, v: Any) -> None:
        """Copy K and V of positions ``start`` … ``end - 1`` of all layers to k, v."""

    @abstractmethod
    def debug_get_kv_mla(self, seq_id: int, start: int, end: int, kv: Any) -> None:
        """Copy the latent rows of positions ``start`` … ``end - 1`` of all layers to kv."""
