"""``I``: what a module is written with.

::

    from relaxlab.script import ir as I

Counterpart: ``tvm.script.ir``.

Examples
--------
>>> vdevice("llvm").vdevice_id
0
"""

from collections.abc import Mapping
from typing import Any

from relaxlab.ir.expr import GlobalVar
from relaxlab.ir.global_info import DummyGlobalInfo, VDevice
from relaxlab.ir.target import Target
from relaxlab.script.parser.attributes import attributes
from relaxlab.script.parser.decorator import ModuleDecorator
from relaxlab.script.parser.entry import parse_module

__all__ = [
    "GlobalVar",
    "dummy_global_info",
    "ir_module",
    "module_attrs",
    "module_global_infos",
    "vdevice",
]

#: ``@I.ir_module`` and ``@I.ir_module(check_well_formed=False)``: make a module from a class.
ir_module = ModuleDecorator("I.ir_module", parse_module)


def module_attrs(attrs: Mapping[str, Any]) -> None:
    """Set attributes of the module; a statement of its class."""


def module_global_infos(infos: Mapping[str, Any]) -> None:
    """Set what the module knows besides its functions; a statement of its class."""


def vdevice(target: Any = None, vdevice_id: Any = 0, memory_scope: Any = "global") -> VDevice:
    """Return a virtual device.

    Parameters
    ----------
    target
        A kind such as ``"llvm"``, a dictionary of a target's fields, or a target.
    vdevice_id
        Number of the device among those of the target.
    memory_scope
        Which of its memories.

    Raises
    ------
    TypeError
        If the number or the name is something else.
    """
    if not isinstance(vdevice_id, int) or not isinstance(memory_scope, str):
        raise TypeError(
            "I.vdevice expects a target, a number and the name of a memory scope, got "
            f"{vdevice_id!r} and {memory_scope!r}"
        )
    fields = attributes(target) if isinstance(target, Mapping) else target
    return VDevice(Target(fields), vdevice_id, memory_scope)


def dummy_global_info() -> DummyGlobalInfo:
    """Return an entry without content."""
    return DummyGlobalInfo()
