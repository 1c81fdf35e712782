"""What a kernel is made for: the sizes, the element type and the rotation of one model's cache.

A kernel is asked for by kind and made from a :class:`KernelSpec`. Portable families look at the
arrays they get and need only the rotation and the window; compiled families turn the numbers into
constants. Counterpart: the arguments of TVM's kernel factories.

Examples
--------
>>> spec = KernelSpec(num_qo_heads=9, num_kv_heads=3, qk_head_dim=64)
>>> spec.group_size, spec.v_head_dim
(3, 64)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from relaxlab.runtime.kv.rope import Rope

__all__ = ["KINDS", "Kernel", "KernelSpec", "Kind"]

Kernel = Callable[..., None]

Kind = Literal[
    "compact_copy",
    "copy_single_page",
    "copy_single_page_mla",
    "debug_get_kv",
    "debug_get_kv_mla",
    "merge_state_inplace",
    "mla_prefill",
    "paged_decode",
    "paged_decode_sliding",
    "paged_prefill",
    "paged_prefill_sliding",
    "paged_prefill_tree",
    "ragged_prefill",
    "ragged_prefill_tree",
    "split_rotary",
    "transpose_append",
    "transpose_append_mla",
]

KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class KernelSpec:
    """Sizes and rotation that kernels are made for.

    Parameters
    ----------
    num_qo_heads, num_kv_heads
        Heads of queries, and of keys and values; the former a multiple of the latter.
    qk_head_dim
        Features of a query or key; of a latent cache, of its rows.
    v_head_dim
        Features of a value; those of a key when 0.
    page_size
        Tokens of a page.
    dtype
        Element type of queries, pages and outputs; sums are float32 always.
    layer_window
        Of ``paged_prefill_sliding``: how many tokens a layer with its own window sees, including
        the newest; 0 if only sequences have windows.
    rope
        The rotation; plain rotary frequencies over the whole head when None.

    Raises
    ------
    ValueError
        If the heads do not group.
    """

    num_qo_heads: int
    num_kv_heads: int
    qk_head_dim: int
    v_head_dim: int = 0
    page_size: int = 16
    dtype: str = "float32"
    layer_window: int = 0
    rope: Rope | None = None

    def __post_init__(self) -> None:
        if self.num_kv_heads < 1 or self.num_qo_heads % self.num_kv_heads:
            raise ValueError(
                f"expected a multiple of the {self.num_kv_heads} key/value heads as number of "
                f"query heads, got {self.num_qo_heads}"
            )
        if not self.v_head_dim:
            object.__setattr__(self, "v_head_dim", self.qk_head_dim)
        if self.rope is None and self.qk_head_dim % 2 == 0:
            object.__setattr__(self, "rope", Rope(self.qk_head_dim))

    @property
    def group_size(self) -> int:
        """Query heads that share a key/value head."""
        return self.num_qo_heads // self.num_kv_heads

    @property
    def inline_rope(self) -> Rope | None:
        """The rotation inside attention kernels: the same frequencies over the whole head."""
        if self.rope is None:
            return None
        return Rope(self.qk_head_dim, self.rope.theta, self.rope.scale, None, self.rope.scaling)


def array(value: Any) -> Any:
    """Return the NumPy array behind a kernel argument, without a copy."""
    return getattr(value, "array", value)
