"""The functions that bytecode calls by name, one file per family.

Importing this package registers them all, each also as a global function, with the argument
lists of TVM's ``vm.builtin.*``.

Examples
--------
>>> from relaxlab.runtime.packed_func import get_global_func
>>> get_global_func("vm.builtin.make_tuple")(1, 2)
(1, 2)
"""

from relaxlab.runtime.vm.builtin import (
    attention_kv_cache,
    checks,
    control,
    cuda_graph,
    hexagon,
    kv_state,
    legacy_kv_cache,
    memory,
    operators,
    paged_kv_cache,
    rnn_state,
    sampling,
    shapes,
    tensor_cache,
    tensors,
)
from relaxlab.runtime.vm.builtin.shapes import MakeShapeCode, MatchShapeCode
from relaxlab.runtime.vm.builtin.table import BUILTINS

__all__ = [
    "BUILTINS",
    "MakeShapeCode",
    "MatchShapeCode",
    "attention_kv_cache",
    "checks",
    "control",
    "cuda_graph",
    "hexagon",
    "kv_state",
    "legacy_kv_cache",
    "memory",
    "operators",
    "paged_kv_cache",
    "rnn_state",
    "sampling",
    "shapes",
    "tensor_cache",
    "tensors",
]
