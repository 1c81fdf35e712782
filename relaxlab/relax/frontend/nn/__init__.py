"""Tensors and objects of a model under construction.

Counterpart: the part of ``tvm.relax.frontend.nn`` that caches need.

Examples
--------
>>> from relaxlab.relax.frontend import nn
>>> nn.llm.PagedKVCache.__name__
'PagedKVCache'
"""

from relaxlab.relax.frontend.nn import llm
from relaxlab.relax.frontend.nn.values import Object, Tensor, wrap_nested

__all__ = ["Object", "Tensor", "llm", "wrap_nested"]
