"""Chapter 01, bytecode by hand.

Examples
--------
>>> from relaxlab.exercises import WrongAnswer, check
>>> try:
...     check("01.q1", None)
... except WrongAnswer as wrong:
...     print(wrong.found.expected)
a machine: relax.VirtualMachine(ib.get(), runtime.cpu())
"""

from typing import Any, Final

from relaxlab.exercises.exercise import Wrong, exercise, shown
from relaxlab.runtime.vm import VirtualMachine
from relaxlab.runtime.vm.bytecode import VMFuncKind
from relaxlab.trace import DebugSession

_MOST_STEPS: Final = 10_000


@exercise("01.q1")
def sum_to(answer: Any) -> None:
    """Judge a machine whose ``sum_to(n)`` is ``1 + 2 + … + n``, by a loop."""
    if not isinstance(answer, VirtualMachine):
        raise Wrong(
            "a machine: relax.VirtualMachine(ib.get(), runtime.cpu())",
            shown(answer),
            "the machine is the answer, not its function or its result",
        )
    names = [info.name for info in answer.executable.func_table if info.kind == VMFuncKind.VM_FUNC]
    if "sum_to" not in names:
        raise Wrong("a function sum_to", f"the functions {', '.join(names)}", "keep its name")
    lengths = []
    for n in (0, 1, 4, 10):
        result, steps = _stepped(answer, n)
        expected = n * (n + 1) // 2
        if result != expected or isinstance(result, bool):
            raise Wrong(
                f"sum_to({n}) = {expected}",
                shown(result),
                "step through it: after each turn of the loop, %1 should be the sum so far",
            )
        lengths.append(steps)
    if lengths[-1] <= lengths[0]:
        raise Wrong(
            "a loop: more instructions run for sum_to(10) than for sum_to(0)",
            f"{lengths[0]} and {lengths[-1]} instructions",
            "a goto with a negative offset goes back",
        )


def _stepped(vm: VirtualMachine, n: int) -> tuple[Any, int]:
    """Return the result, and how many instructions ran; an endless loop is told, not run."""
    with DebugSession(vm, "sum_to", n) as session:
        while not session.finished:
            session.step()
            if session.position > _MOST_STEPS:
                raise Wrong(
                    f"an end: sum_to({n}) returns",
                    f"still running after {_MOST_STEPS} instructions",
                    "which register does the `if` look at, and does the loop change it?",
                )
        if session.error is not None:
            raise session.error
        return session.result, session.position
