"""Chapter 08, one program, three ways to run it.

Examples
--------
>>> from relaxlab.exercises import WrongAnswer, check
>>> try:
...     check("08.q1", [])
... except WrongAnswer as wrong:
...     print(wrong.found.expected)
an executable: ib.get()
"""

from typing import Any, Final

from relaxlab.exercises.exercise import Wrong, exercise, shown
from relaxlab.runtime.device import cpu
from relaxlab.runtime.vm import VirtualMachine, VMExecutable
from relaxlab.trace import DebugSession

_MOST_STEPS: Final = 20_000


@exercise("08.q1")
def collatz(answer: Any) -> None:
    """Judge an executable whose ``collatz(n)`` counts steps, in both modes."""
    if not isinstance(answer, VMExecutable):
        raise Wrong("an executable: ib.get()", shown(answer), "the executable is the answer")
    names = [info.name for info in answer.func_table]
    if "collatz" not in names:
        raise Wrong("a function collatz", f"the functions {', '.join(names)}", "keep its name")
    walked = VirtualMachine(answer, cpu(), exec_mode="bytecode")
    compiled = VirtualMachine(answer, cpu(), exec_mode="compiled")
    for n in (1, 2, 3, 6, 27):
        expected, value = 0, n
        while value > 1:
            value = value // 2 if value % 2 == 0 else 3 * value + 1
            expected += 1
        got = _stepped(walked, n)
        if got != expected or isinstance(got, bool):
            raise Wrong(
                f"collatz({n}) = {expected}",
                shown(got),
                "step through it: which way does the `if` go for an odd number?",
            )
        same = compiled["collatz"](n)
        if same != expected:
            raise Wrong(f"the same in compiled mode for {n}", shown(same), "vm.compiled_source")


def _stepped(vm: VirtualMachine, n: int) -> Any:
    with DebugSession(vm, "collatz", n) as session:
        while not session.finished:
            session.step()
            if session.position > _MOST_STEPS:
                raise Wrong(
                    f"an end: collatz({n}) returns",
                    f"still running after {_MOST_STEPS} instructions",
                    "does every way round the loop change n?",
                )
        if session.error is not None:
            raise session.error
        return session.result
