"""A paged cache with our own kernels, from its configuration alone.

What a program compiled by TVM does with 28 creation arguments is one call here: the kernels are
picked from a family and made for the sizes and the rotation of the cache. Counterpart: TVM's
``TIRPagedKVCache`` (kv.md 2.5).

Examples
--------
>>> import numpy as np
>>> from relaxlab.runtime.kv.cache_config import CacheConfig
>>> cache = make_cache(
...     CacheConfig(
...         reserved_num_seqs=1, total_token_capacity=32, prefill_chunk_size=16, page_size=4,
...         num_qo_heads=2, num_kv_heads=1, qk_head_dim=4,
...     )
... )
>>> cache.add_sequence(0)
>>> cache.begin_forward([0], [3])
>>> output = np.zeros((3, 2, 4), "float32")
>>> cache.attention_with_fused_qkv(0, np.ones((3, 4, 4), "float32"), output, 0.5)
>>> cache.end_forward()
>>> bool((output == 1).all())
True
"""

from collections.abc import Mapping
from typing import Any

from relaxlab.runtime.device import Device
from relaxlab.runtime.kv.attention import KernelSpec, kernel_arguments, mla_kernel_arguments
from relaxlab.runtime.kv.cache_config import AttnKind, CacheConfig
from relaxlab.runtime.kv.kernel_table import KernelTable
from relaxlab.runtime.kv.observer import Observer
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.runtime.kv.rope import Rope

__all__ = ["make_cache"]


def make_cache(
    config: CacheConfig,
    *,
    family: str | None = None,
    rotary_dim: int | None = None,
    rope_scaling: Mapping[str, Any] | None = None,
    rope_ext_factors: Any = None,
    device: Device | None = None,
    observer: Observer | None = None,
) -> PagedAttentionKVCache:
    """Return a paged cache whose kernels come from one family.

    Parameters
    ----------
    config
        Sizes and modes; all its layers must be of one family of kinds, heads or latent.
    family
        Who makes the kernels (``"numpy"``, ``"llvm"``, ...); the best one there is when None.
    rotary_dim, rope_scaling
        Rotated features (all when None), and the variant of the rotation.
    rope_ext_factors
        Tensor of rotation factors, if ``config.has_rope_ext_factors``.
    device, observer
        As for the cache.
    """
    latent = AttnKind.MLA in config.attn_kinds
    spec = KernelSpec(
        config.num_qo_heads,
        config.num_kv_heads,
        config.qk_head_dim,
        config.v_head_dim,
        page_size=config.page_size,
        dtype=str(config.dtype),
        layer_window=config.layer_sliding_window_size if config.layer_sliding else 0,
        rope=None
        if latent
        else Rope(
            config.qk_head_dim,
            config.rotary_theta,
            config.rotary_scale,
            rotary_dim,
            dict(rope_scaling or {}),
        ),
    )
    arguments = (mla_kernel_arguments if latent else kernel_arguments)(spec, family)
    kernels = KernelTable.from_arguments(arguments, rope_ext_factors)
    return PagedAttentionKVCache(config, kernels, device, observer)
