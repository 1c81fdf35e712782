"""The Relax virtual machine: executables, the loop that runs them, and what it tells observers.

Counterpart: ``tvm.runtime.vm``.
"""

from relaxlab.runtime.vm.executable import VMExecutable
from relaxlab.runtime.vm.execution import Execution
from relaxlab.runtime.vm.frame import Closure
from relaxlab.runtime.vm.instrument import VMInstrumentReturnKind
from relaxlab.runtime.vm.observer import Event, MachineState, Observer
from relaxlab.runtime.vm.profile_report import Report
from relaxlab.runtime.vm.virtual_machine import BenchmarkResult, VirtualMachine, VMFunction

__all__ = [
    "BenchmarkResult",
    "Closure",
    "Event",
    "Execution",
    "MachineState",
    "Observer",
    "Report",
    "VMExecutable",
    "VMFunction",
    "VMInstrumentReturnKind",
    "VirtualMachine",
]
