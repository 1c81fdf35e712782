"""What code is generated for, under TVM's name for it.

A door: the classes live in ``relaxlab.ir.target``. Counterpart: ``tvm.target``.

Examples
--------
>>> from relaxlab.target import Target
>>> Target("llvm").kind.name
'llvm'
"""

from relaxlab.ir.target import Target, TargetKind

__all__ = ["Target", "TargetKind"]
