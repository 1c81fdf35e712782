"""The stepper: run a function of the virtual machine once, then walk through it both ways.

Shows the code with the current line, the registers with what changed, the frames and one sentence
on the current step. Everything it draws is also in its text twin, ``print(stepper)``. There is no
TVM counterpart.

Examples
--------
>>> from relaxlab.relax.exec_builder import ExecBuilder
>>> ib = ExecBuilder()
>>> with ib.function("main", 1, ["x"]):
...     ib.emit_call("vm.builtin.make_tuple", [ib.r(0), ib.r(0)], dst=1)
...     ib.emit_ret(ib.r(1))
>>> stepper = VMStepper(ib.get(), "main", 7)
>>> stepper
VMStepper(main, step 0 of 2)
>>> stepper.step().step()
VMStepper(main, step 2 of 2)
"""

from typing import Any, ClassVar, Self

import traitlets

from relaxlab.runtime.device import cpu
from relaxlab.runtime.vm import VirtualMachine, VMExecutable
from relaxlab.trace import DebugSession
from relaxlab.widgets.view import STATIC, View

__all__ = ["VMStepper"]


class VMStepper(View):
    """A view of one call of a Relax function.

    Parameters
    ----------
    program
        A session to show as it is, a machine, or an executable (which then runs on the CPU).
    function
        Name of the function to call; not with a session.
    args
        Its arguments.
    limit
        How many of the last steps are kept.

    Attributes
    ----------
    position : int
        Number of the step that runs next; changing it moves the view.
    breakpoints : list of int
        Instructions that stop Over, Out, Continue and Reverse.
    session : DebugSession
        The recorded run; ``session.value(register)`` gives whole tensors.

    Raises
    ------
    TypeError
        If a function is given with a session, or none without.
    """

    _esm = STATIC / "vm_stepper.js"
    _css = STATIC / "vm_stepper.css"
    _file: ClassVar[str] = "vm_stepper"
    _exported: ClassVar[tuple[str, ...]] = ("trace", "position", "breakpoints")

    trace = traitlets.Dict().tag(sync=True)
    position = traitlets.Int().tag(sync=True)
    breakpoints = traitlets.List(traitlets.Int()).tag(sync=True)

    def __init__(
        self,
        program: DebugSession | VirtualMachine | VMExecutable,
        function: str | None = None,
        *args: Any,
        limit: int = 100_000,
    ) -> None:
        if isinstance(program, DebugSession):
            if function is not None:
                raise TypeError("a session already has its function: give VMStepper(session) only")
            session = program
        else:
            if function is None:
                raise TypeError("VMStepper(program, function, *args) needs the function's name")
            vm = VirtualMachine(program, cpu()) if isinstance(program, VMExecutable) else program
            session = DebugSession(vm, function, *args, limit=limit)
        self.session = session.record()
        if session.position < session.timeline.first_step:
            session.goto(session.timeline.first_step)
        stops = sorted({point.pc for point in session.breakpoints.values() if point.enabled})
        super().__init__(trace=session.trace(), position=session.position, breakpoints=stops)

    @traitlets.validate("position")
    def _inside(self, proposal: Any) -> int:
        timeline = self.session.timeline
        return int(min(max(proposal["value"], timeline.first_step), timeline.end))

    @traitlets.observe("position")
    def _follow(self, change: Any) -> None:
        if change["new"] != self.session.position:
            self.session.goto(change["new"])

    # ---- moving from Python, as the buttons do ------------------------------------------------

    def _move(self, command: str) -> Self:
        self._use_breakpoints()
        getattr(self.session, command)()
        self.position = self.session.position
        return self

    def _use_breakpoints(self) -> None:
        """Give the session the breakpoints that were set in the page."""
        wanted = set(self.breakpoints)
        for number, point in list(self.session.breakpoints.items()):
            if point.pc in wanted:
                wanted.discard(point.pc)
            else:
                self.session.remove(number)
        for pc in sorted(wanted):
            self.session.break_at(pc=pc)

    def step(self) -> Self:
        """Go one instruction forward, into calls of Relax functions."""
        return self._move("step")

    def back(self) -> Self:
        """Go one instruction back."""
        return self._move("back")

    def over(self) -> Self:
        """Go forward past a whole call."""
        return self._move("over")

    def out(self) -> Self:
        """Go forward until the current function has returned."""
        return self._move("out")

    def continue_(self) -> Self:
        """Go forward to the next breakpoint or the end."""
        return self._move("continue_")

    def reverse_continue(self) -> Self:
        """Go back to the last breakpoint or the start."""
        return self._move("reverse_continue")

    @property
    def heading(self) -> str:
        """What an exported page is called."""
        return f"{self.session.function}: {self.session.timeline.end} steps"

    def __str__(self) -> str:
        """Return what the view shows, as text."""
        return str(self.session)

    def __repr__(self) -> str:
        """Return function and position."""
        session = self.session
        return f"VMStepper({session.function}, step {self.position} of {session.timeline.end})"
