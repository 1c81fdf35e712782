"""What a paged cache is made for: sizes, kinds of layers, rotation, windows.

One frozen value holds the creation arguments and what follows from them, so that no rule about
sizes is written twice. Counterpart: arguments 0 to 12 of
``vm.builtin.paged_attention_kv_cache_create`` (kv.md 2.3 and 3.1).

Examples
--------
>>> config = CacheConfig(
...     reserved_num_seqs=4, total_token_capacity=64, prefill_chunk_size=32, page_size=4,
...     num_qo_heads=4, num_kv_heads=2, qk_head_dim=8,
... )
>>> config.num_total_pages, config.num_layers, config.pages_shape(0)
(17, 1, (17, 2, 2, 4, 8))
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from relaxlab.errors import InternalError
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.kv.rope import RopeMode

__all__ = ["AttnKind", "CacheConfig", "RopeMode"]

_POSITIVE: Final = (
    "reserved_num_seqs",
    "prefill_chunk_size",
    "page_size",
    "num_qo_heads",
    "num_kv_heads",
    "qk_head_dim",
    "v_head_dim",
    "layer_sliding_window_size",
)


class AttnKind(IntEnum):
    """How a layer attends."""

    MHA = 0
    MLA = 1
    LINEAR = 2
    MHA_SLIDING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """Sizes and modes of a paged cache.

    Attributes
    ----------
    reserved_num_seqs
        Sequences to expect; a hint.
    total_token_capacity
        Tokens that all sequences together may hold.
    prefill_chunk_size
        Most tokens of one round.
    page_size
        Tokens of a page.
    support_sliding_window
        Whether sequences may get a window.
    layer_sliding_window_size
        Window of the layers of kind ``MHA_SLIDING``, in tokens.
    layer_begin, layer_end
        The part of the model's layers that this cache holds.
    num_qo_heads, num_kv_heads, qk_head_dim, v_head_dim
        Head counts and sizes; ``v_head_dim`` 0 means the same as ``qk_head_dim``.
    attn_kinds
        One kind per layer of the whole model; empty means ``MHA`` everywhere.
    enable_kv_transfer
        Whether rows can be sent to another cache while they are computed.
    rope_mode, rotary_scale, rotary_theta
        Rotation. With sequence windows ``NORMAL`` becomes ``INLINE``.
    has_rope_ext_factors
        Whether rotation uses a tensor of factors per feature.
    dtype
        Element type of the pages.
    """

    reserved_num_seqs: int
    total_token_capacity: int
    prefill_chunk_size: int
    page_size: int
    num_qo_heads: int
    num_kv_heads: int
    qk_head_dim: int
    v_head_dim: int = 0
    support_sliding_window: bool = False
    layer_sliding_window_size: int = 1024
    layer_begin: int = 0
    layer_end: int = 1
    attn_kinds: tuple[AttnKind, ...] = ()
    enable_kv_transfer: bool = False
    rope_mode: RopeMode = RopeMode.NONE
    rotary_scale: float = 1.0
    rotary_theta: float = 10000.0
    has_rope_ext_factors: bool = False
    dtype: DataType = field(default_factory=lambda: DataType("float32"))

    def __post_init__(self) -> None:
        if not self.v_head_dim:
            object.__setattr__(self, "v_head_dim", self.qk_head_dim)
        if not self.attn_kinds:
            object.__setattr__(self, "attn_kinds", (AttnKind.MHA,) * self.layer_end)
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise InternalError(
                    f"paged cache: {name}: expected more than 0, got {getattr(self, name)}"
                )
        if self.total_token_capacity < 0:
            raise InternalError(
                f"paged cache: total_token_capacity: expected at least 0, "
                f"got {self.total_token_capacity}"
            )
        if not 0 <= self.layer_begin < self.layer_end <= len(self.attn_kinds):
            raise InternalError(
                f"paged cache: expected layers begin < end within the {len(self.attn_kinds)} "
                f"attention kinds given, got {self.layer_begin} and {self.layer_end}"
            )
        if self.num_qo_heads % self.num_kv_heads:
            raise InternalError(
                f"paged cache: expected a number of query heads that {self.num_kv_heads} key "
                f"heads divide, got {self.num_qo_heads}"
            )
        if AttnKind.MLA in self.attn_kinds and self.support_sliding_window:
            raise InternalError("paged cache: MLA layers cannot have a sequence sliding window")
        if self.enable_kv_transfer and any(self.attn_kinds):
            raise InternalError("paged cache: KV transfer needs layers of kind MHA (0) only")
        if self.has_rope_ext_factors and self.effective_rope_mode is not RopeMode.NORMAL:
            raise InternalError(
                "paged cache: rotation factors (rope_ext_factors) need rope mode normal, got "
                f"{self.effective_rope_mode.name.lower()}"
            )

    @property
    def num_layers(self) -> int:
        """Layers held here."""
        return self.layer_end - self.layer_begin

    @property
    def num_total_pages(self) -> int:
        """Pages in the pool: capacity, one more, and two per sequence for windows."""
        pages = -(-self.total_token_capacity // self.page_size) + 1
        return pages + 2 * self.reserved_num_seqs if self.support_sliding_window else pages

    @property
    def layer_sliding(self) -> bool:
        """Whether some layer of the model has a window of its own."""
        return AttnKind.MHA_SLIDING in self.attn_kinds

    @property
    def sequence_sliding(self) -> bool:
        """Whether windows of sequences take effect."""
        return self.support_sliding_window and not self.layer_sliding

    @property
    def effective_rope_mode(self) -> RopeMode:
        """The rotation in use: windows move tokens, so they need rotation at read time."""
        if self.support_sliding_window and self.rope_mode is not RopeMode.NONE:
            return RopeMode.INLINE
        return self.rope_mode

    def kind(self, local_layer: int) -> AttnKind:
        """Kind of a layer held here, by its local number."""
        return self.attn_kinds[self.layer_begin + local_layer]

    def pages_shape(self, local_layer: int) -> tuple[int, ...]:
        """Shape of one layer's pages.

        ``[pages, 2, H, P, D]`` (K, then V), for MLA ``[pages, P, D]``, for linear layers
        ``[sequences, H, D, Dv]``.
        """
        match self.kind(local_layer):
            case AttnKind.MLA:
                return (self.num_total_pages, self.page_size, self.qk_head_dim)
            case AttnKind.LINEAR:
                return (
                    self.reserved_num_seqs,
                    self.num_kv_heads,
                    self.qk_head_dim,
                    self.v_head_dim,
                )
            case _:
                return (
                    self.num_total_pages,
                    2,
                    self.num_kv_heads,
                    self.page_size,
                    self.qk_head_dim,
                )
