"""What outlives a call and belongs to one machine, such as its captured graphs.

A builtin that remembers something keeps it in an extension of the machine: one object of its own
class per machine, made when first asked for. It survives every call, failed ones included. A
debugger's run has extensions of its own, as it has memory of its own: a second run of the same
program must find what the first one found. Counterpart: ``VMExtension`` of TVM.

Examples
--------
>>> from relaxlab.runtime.vm import VirtualMachine, VMExecutable
>>> vm = VirtualMachine(VMExecutable(), [])
>>> extension(vm, dict) is extension(vm, dict), extension(vm, list)
(True, [])
"""

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from relaxlab.runtime.vm.virtual_machine import VirtualMachine

__all__ = ["extension"]

T = TypeVar("T")


def extension(machine: "VirtualMachine", kind: type[T]) -> T:
    """Return the machine's object of class ``kind``; it is made without arguments if need be."""
    watch = None if machine.current is None else machine.current.watch
    kept = machine.extensions if watch is None or watch.extensions is None else watch.extensions
    found = kept.get(kind)
    if found is None:
        found = kept[kind] = kind()
    made: T = found
    return made
