"""Caches of attention and recurrent state, and the kernels that read them.

A paged cache keeps keys and values of many sequences in pages, shares prefixes between them, and
tells an observer everything it does. Counterparts: TVM's ``relax.vm.PagedAttentionKVCache`` and
``relax.vm.RNNState``.

Examples
--------
>>> from relaxlab.runtime import kv
>>> with kv.exact():  # behave as TVM does, defects included
...     kv.is_exact()
True
"""

from relaxlab.runtime.kv.exact import exact, is_exact
from relaxlab.runtime.kv.misuse import KVCacheWarning

__all__ = ["KVCacheWarning", "exact", "is_exact"]
