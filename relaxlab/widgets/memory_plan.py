"""Storages against time: which tensors live where, from when to when, and what sharing saved.

Each row is a storage, each bar a tensor in it; the line above says how many bytes are needed at
each step. A plan can stand beside a stepper: they then move together. The text twin is the table of
:func:`relaxlab.relax.analysis.storage_liveness`. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.relax import build
>>> from relaxlab.script import from_source
>>> mod = from_source('''
... @I.ir_module
... class Module:
...     @R.function
...     def main(x: R.Tensor((4,), "float32")):
...         y = R.add(x, x)
...         z = R.multiply(y, y)
...         return R.subtract(z, y)
... ''')
>>> plan = MemoryPlan(build(mod, target="numpy"))
>>> plan
MemoryPlan(main, step 0 of 17)
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import traitlets

from relaxlab.ir import IRModule
from relaxlab.relax.analysis import storage_liveness
from relaxlab.relax.analysis.lifetimes import FunctionMemory
from relaxlab.runtime.vm import VirtualMachine, VMExecutable
from relaxlab.widgets.bundle import bundle, stylesheet
from relaxlab.widgets.view import STATIC, View
from relaxlab.widgets.vm_stepper import VMStepper

__all__ = ["MemoryPlan"]


class MemoryPlan(View):
    """A view of the memory of a program's functions.

    Parameters
    ----------
    program
        An executable, a machine, a module with explicit allocations, or a stepper, whose position
        the plan then follows, and leads.
    sizes
        What symbolic sizes are, by name; for modules only.

    Attributes
    ----------
    function : str
        The function that is shown.
    position : int
        The step (binding or instruction) that is marked; changing it moves the view.

    Raises
    ------
    TypeError
        If ``program`` is something else.
    ValueError
        If it has no function.
    """

    _esm = bundle(STATIC / "memory_plan.js")
    _css = stylesheet(STATIC / "view.css", STATIC / "memory_plan.css")
    _exported: ClassVar[tuple[str, ...]] = ("plan", "function", "position")
    _frame_height: ClassVar[int] = 520

    plan: traitlets.List[Any] = traitlets.List().tag(sync=True)
    function = traitlets.Unicode().tag(sync=True)
    position = traitlets.Int().tag(sync=True)

    def __init__(
        self,
        program: VMExecutable | VirtualMachine | IRModule | VMStepper,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        stepper = program if isinstance(program, VMStepper) else None
        self._stepper: VMStepper | None = None
        self.liveness = storage_liveness(_program(program), sizes)
        if not self.liveness.functions:
            raise ValueError("the program has no Relax function, so there is no memory to show")
        names = [memory.function for memory in self.liveness.functions]
        function = stepper.session.function if stepper is not None else names[0]
        function = "main" if stepper is None and "main" in names else function
        super().__init__(
            plan=self.liveness.to_data(),
            function=function,
            position=self.liveness[function].first_step,
        )
        self._stepper = stepper
        if stepper is not None:
            self._follow_stepper()
            stepper.observe(lambda _: self._follow_stepper(), "position")

    @property
    def memory(self) -> FunctionMemory:
        """The lifetimes in the function that is shown."""
        return self.liveness[self.function]

    @traitlets.validate("function")
    def _known(self, proposal: Any) -> str:
        name: str = proposal["value"]
        if name not in [memory.function for memory in self.liveness.functions]:
            known = ", ".join(memory.function for memory in self.liveness.functions)
            raise traitlets.TraitError(f"there is no function {name!r}; there are: {known}")
        return name

    @traitlets.validate("position")
    def _inside(self, proposal: Any) -> int:
        # of whichever function it is: function and position may change together
        position: int = proposal["value"]
        ends = [(m.first_step, m.first_step + len(m.steps)) for m in self.liveness.functions]
        if not any(first <= position <= end for first, end in ends):
            raise traitlets.TraitError(f"no step {position} in any function")
        return position

    @traitlets.observe("function")
    def _enter(self, change: Any) -> None:
        memory = self.memory
        if not memory.first_step <= self.position <= memory.first_step + len(memory.steps):
            self.position = memory.first_step

    def _follow_stepper(self) -> None:
        """Go to the instruction that the stepper stands at."""
        if self._stepper is None:
            return
        frame = self._stepper.session.frame
        if frame is None:
            return
        with self.hold_trait_notifications():
            self.function = frame.function
            self.position = frame.pc

    @traitlets.observe("position")
    def _lead_stepper(self, change: Any) -> None:
        """Let the stepper go to the next visit of the instruction, if it stands elsewhere."""
        if self._stepper is None:
            return
        session = self._stepper.session
        if session.frame is not None and session.frame.pc == self.position:
            return
        visits = session.timeline.visits(self.position)
        later = [step for step in visits if step >= session.position]
        if visits:
            self._stepper.goto(later[0] if later else visits[-1])

    def goto(self, position: int) -> Self:
        """Go to a step of the function that is shown; another one is a ``TraitError``."""
        self.position = position
        return self

    @property
    def heading(self) -> str:
        """What an exported page is called."""
        return f"Memory of {self.function}"

    def __str__(self) -> str:
        """Return the table of the function, and what is needed at the marked step."""
        memory = self.memory
        lines = [str(memory), "", self.sentence]
        return "\n".join(lines)

    @property
    def sentence(self) -> str:
        """What is needed at the marked step, in words."""
        memory = self.memory
        index = self.position - memory.first_step
        text = memory.steps[index] if index < len(memory.steps) else "the end"
        live = memory.live(self.position)
        total = sum(storage.nbytes or 0 for storage in live)
        held = []
        for storage in live:
            inside = [t.name for t in storage.tensors if t.first <= self.position <= t.last]
            held.append(f"{storage.name} ({', '.join(inside) or 'nothing yet, or no longer'})")
        needed = f"{total} bytes in {'; '.join(held)}" if live else "no storage"
        return f"Step {self.position}: {text}. Needed: {needed}."

    def __repr__(self) -> str:
        """Return function and step."""
        memory = self.memory
        end = memory.first_step + len(memory.steps)
        return f"MemoryPlan({self.function}, step {self.position} of {end})"


def _program(program: Any) -> VMExecutable | IRModule:
    match program:
        case VMExecutable() | IRModule():
            return program
        case VirtualMachine():
            return program.executable
        case VMStepper():
            return program.session.vm.executable
        case _:
            raise TypeError(
                "expected a VMExecutable, a VirtualMachine, an IRModule or a VMStepper, "
                f"got {type(program).__name__}"
            )
