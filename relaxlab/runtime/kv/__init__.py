"""Caches of attention and recurrent state, and the kernels that read them.

A paged cache keeps keys and values of many sequences in pages, shares prefixes between them, and
tells an observer everything it does. Counterparts: TVM's ``relax.vm.PagedAttentionKVCache`` and
``relax.vm.RNNState``.

Reading order: ``page_pool``, ``block``, ``sequence``, ``sliding_window``, ``token_tree``,
``aux_data`` and ``forward_round`` (a round and its index arrays), ``attend`` (which kernels run),
``paged_kv_cache`` (all together); beside them ``observer``, ``snapshot`` and ``invariants``.

Examples
--------
>>> from relaxlab.runtime import kv
>>> config = kv.CacheConfig(
...     reserved_num_seqs=2, total_token_capacity=32, prefill_chunk_size=16, page_size=4,
...     num_qo_heads=2, num_kv_heads=1, qk_head_dim=4,
... )
>>> cache = kv.make_cache(config)
>>> cache.add_sequence(0)
>>> cache.begin_forward([0], [6])
>>> cache.fork_sequence(0, 1, 4)
>>> cache.pages_of(0), cache.pages_of(1)
([0, 1], [0])
>>> with kv.exact():  # behave as TVM does, defects included
...     kv.is_exact()
True
"""

from relaxlab.runtime.kv.cache_config import AttnKind, CacheConfig
from relaxlab.runtime.kv.exact import exact, is_exact
from relaxlab.runtime.kv.kernel_table import Backend, KernelTable
from relaxlab.runtime.kv.kv_state import AttentionKVCache, KVState
from relaxlab.runtime.kv.make_cache import make_cache
from relaxlab.runtime.kv.misuse import KVCacheWarning
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.runtime.kv.rope import RopeMode
from relaxlab.runtime.kv.swap import SavedSequence, restore_sequence, save_sequence

__all__ = [
    "AttentionKVCache",
    "AttnKind",
    "Backend",
    "CacheConfig",
    "KVCacheWarning",
    "KVState",
    "KernelTable",
    "PagedAttentionKVCache",
    "RopeMode",
    "SavedSequence",
    "exact",
    "is_exact",
    "make_cache",
    "restore_sequence",
    "save_sequence",
]
