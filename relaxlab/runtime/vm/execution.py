"""One call from the host that can be stopped, stepped and looked at.

The machine runs ordinary calls without one; an execution exists for whoever wants to see the
frames: a debugger that steps, an observer that is told, an instrument that is asked. There is no
TVM counterpart.

Examples
--------
>>> from relaxlab.runtime.device import cpu
>>> from relaxlab.runtime.vm.bytecode import VMFuncInfo
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> from relaxlab.runtime.vm.virtual_machine import VirtualMachine
>>> identity = VMExecutable([VMFuncInfo(1, "f", 0, 1, 1, 1)], (), {}, [0], [2, 0])
>>> with VirtualMachine(identity, cpu()).start("f", 7) as run:
...     print(run)
...     run.step(), run.finished, run.result
<execution of f: step 0, before instruction 0 of f>
(False, True, 7)
"""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from relaxlab.errors import InternalError
from relaxlab.runtime.describe import Describer
from relaxlab.runtime.vm.frame import Frame, LinkedFunction
from relaxlab.runtime.vm.instrument import Hooks
from relaxlab.runtime.vm.observer import FrameState, MachineState, Observer
from relaxlab.runtime.vm.run_loop import new_frame, run_loop, unwind
from relaxlab.runtime.vm.watch import Watch

if TYPE_CHECKING:
    from relaxlab.runtime.vm.virtual_machine import VirtualMachine

__all__ = ["Execution"]


class Execution:
    """One call of a Relax function that can be stopped or looked at.

    Made by ``vm.start(...)``, which stops before the first instruction, and for every call while
    the machine has an observer or an instrument. An execution that is not run to its end must be
    closed; ``with`` does that.

    Attributes
    ----------
    machine
        The machine that runs it.
    function
        The function that was called.
    frames
        The frames, outermost first; empty when it is over.
    error
        What it raised, if it did.
    parent
        The execution in which a host function called the machine again, if it is that call.
    """

    watch: Watch | None

    def __init__(
        self,
        machine: "VirtualMachine",
        function: LinkedFunction,
        arguments: Sequence[Any],
        stepping: bool = False,
        observer: Observer | None = None,
    ) -> None:
        self.machine = machine
        self.function = function
        self.frames: list[Frame] = []
        self.error: BaseException | None = None
        self.parent: Execution | None = machine.current
        self._depth = 0
        self._describer: Describer | None = None
        observer = observer or machine.observer
        watch: Watch | None = None
        if self.parent is not None:
            watch = self.parent.watch
            self._depth = self.parent._depth + len(self.parent.frames)
        if watch is None and (stepping or observer is not None):
            watch = Watch(observer)
        self.watch = watch
        hooks: Hooks | None = None
        if machine.instrument is not None or (watch is not None and watch.observer is not None):
            hooks = Hooks(watch, machine.instrument)
        if watch is not None:
            watch.run_started(function.name, arguments, self._depth)
        try:
            self._first = new_frame(machine, function, arguments, None)
        except InternalError as error:
            self._over(error)
            raise
        self.frames.append(self._first)
        if watch is not None:
            watch.pushed(self._first)
        self._loop = run_loop(machine, self.frames, watch, hooks)

    # ---- running ----------------------------------------------------------------------------

    def run(self) -> Any:
        """Run to the end and return the result; errors pass through, with all frames gone."""
        while self.step():
            pass
        return self.result

    def step(self) -> bool:
        """Run one instruction; return whether there is another.

        A call of a Relax function is one instruction and ends before the callee's first one. A
        host function is run as a whole, with everything that it calls. On an error the
        execution is over, its frames are gone, and the error passes through.
        """
        if not self.frames:
            return False
        machine = self.machine
        previous, machine.current = machine.current, self
        try:
            next(self._loop)
        except StopIteration:
            self._over(None)
            return False
        except BaseException as error:
            self._over(error)
            raise
        finally:
            machine.current = previous
        return True

    def close(self) -> None:
        """Give the execution up: pop its frames. Does nothing when it is over."""
        if self.frames:
            # run_loop unwinds if it had begun
            self._loop.close()
            unwind(self.frames, self.watch, None)
            self._over(GeneratorExit("the execution was given up"))

    def _over(self, error: BaseException | None) -> None:
        self.error = error
        if self.watch is not None:
            if error is None:
                self.watch.run_finished(self.function.name, self._first.result, self._depth)
            else:
                self.watch.run_failed(self.function.name, error, self._depth)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # ---- looking ----------------------------------------------------------------------------

    @property
    def result(self) -> Any:
        """What the function returned; an execution that is not over has none.

        Raises
        ------
        ValueError
            If it is not over, or ended with an error.
        """
        if self.frames or self.error is not None:
            raise ValueError(f"no result: {self!r}")
        return self._first.result

    @property
    def finished(self) -> bool:
        """Whether it is over, with a result or an error."""
        return not self.frames

    @property
    def step_count(self) -> int:
        """Number of the instruction that runs next; needs an execution made by ``vm.start``."""
        return 0 if self.watch is None else self.watch.step

    def snapshot(self) -> MachineState:
        """Return the state of the machine: all frames, with descriptions of all registers.

        It is made from the real registers. If an observer has been told of everything since the
        start, storages have the numbers that the events used.
        """
        watch = self.watch
        if watch is not None:
            describer = watch.describer
        else:
            describer = self._describer = self._describer or Describer()
        chain: list[Execution] = []
        run: Execution | None = self
        while run is not None:
            chain.append(run)
            run = run.parent
        frames = [
            FrameState(
                frame.function.name,
                frame.instruction,
                frame.return_slot,
                tuple(map(describer.describe, frame.registers[: frame.function.num_registers])),
            )
            for run in reversed(chain)
            for frame in run.frames
        ]
        return MachineState(self.step_count, tuple(frames))

    def __repr__(self) -> str:
        if self.error is not None:
            state = f"failed with {type(self.error).__name__}"
        elif not self.frames:
            state = "finished"
        else:
            frame = self.frames[-1]
            state = (
                f"step {self.step_count}, "
                f"before instruction {frame.instruction} of {frame.function.name}"
            )
        return f"<execution of {self.function.name}: {state}>"
