"""What a module knows beside its functions: virtual devices.

Counterpart: ``tvm.relax.VDevice`` and ``tvm.ir.GlobalInfo``.

Examples
--------
>>> from relaxlab.ir.target import Target
>>> VDevice(Target("llvm")).memory_scope
'global'
"""

from dataclasses import dataclass

from relaxlab.ir.node import Node
from relaxlab.ir.target import Target

__all__ = ["DummyGlobalInfo", "GlobalInfo", "VDevice"]


@dataclass(frozen=True, eq=False, slots=True)
class GlobalInfo(Node):
    """Base of module-level information."""


@dataclass(frozen=True, eq=False, slots=True)
class VDevice(GlobalInfo):
    """A device that tensors may be annotated with: a target, a number, a memory scope."""

    target: Target
    vdevice_id: int = 0
    memory_scope: str = "global"


@dataclass(frozen=True, eq=False, slots=True)
class DummyGlobalInfo(GlobalInfo):
    """An entry without content, for tests."""
