"""What language models keep between tokens, as models see it.

Counterpart: ``tvm.relax.frontend.nn.llm``.

Examples
--------
>>> from relaxlab.relax.frontend.nn.llm import RopeMode
>>> int(RopeMode.INLINE)
2
"""

from relaxlab.relax.frontend.nn.llm import kv_cache, rnn_state
from relaxlab.relax.frontend.nn.llm.kv_cache import (
    AttnKind,
    PagedKVCache,
    RopeMode,
    TIRPagedKVCache,
)
from relaxlab.relax.frontend.nn.llm.rnn_state import RNNState

__all__ = [
    "AttnKind",
    "PagedKVCache",
    "RNNState",
    "RopeMode",
    "TIRPagedKVCache",
    "kv_cache",
    "rnn_state",
]
