"""Memory operators. Counterpart: ``tvm.relax.op.memory``."""

from relaxlab.relax.op.memory.memory import alloc_storage, alloc_tensor, kill_storage, kill_tensor
from relaxlab.relax.op.memory.view import ensure_zero_offset, view

__all__ = [
    "alloc_storage",
    "alloc_tensor",
    "ensure_zero_offset",
    "kill_storage",
    "kill_tensor",
    "view",
]
