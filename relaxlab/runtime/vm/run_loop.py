"""The loop that runs linked instructions, and the execution that drives it.

This is the living definition of what bytecode means: everything else that runs Relax functions
must agree with it. A call of a Relax function pushes a frame and goes on in the same loop, so
recursion costs memory and never Python's stack. The loop is a generator: when somebody steps, it
stops before every instruction, and when nobody does it never stops and runs at full speed.
Counterpart: ``VirtualMachineImpl::RunLoop`` of TVM.

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

from collections.abc import Generator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from relaxlab.errors import InternalError
from relaxlab.runtime.container import Array
from relaxlab.runtime.describe import Describer
from relaxlab.runtime.vm.builtin.table import shown
from relaxlab.runtime.vm.disassemble import instruction_text
from relaxlab.runtime.vm.frame import Closure, Frame, LinkedFunction
from relaxlab.runtime.vm.instrument import Hooks
from relaxlab.runtime.vm.linker import CALL, ENTER, GOTO, IF, INVOKE, RET
from relaxlab.runtime.vm.observer import FrameState, MachineState, Observer
from relaxlab.runtime.vm.watch import Watch

if TYPE_CHECKING:
    from relaxlab.runtime.vm.virtual_machine import VirtualMachine

__all__ = ["Execution", "new_frame", "run_loop"]

_MAX_NOTES = 8


def run_loop(
    machine: "VirtualMachine", frames: list[Frame], watch: Watch | None, hooks: Hooks | None
) -> Generator[None]:
    """Run until the only frame of ``frames`` returns, and leave its value in ``frame.result``.

    With a ``watch`` it stops before every instruction; ``hooks`` are told and asked at the points
    that they define. On an error all frames are popped and the error passes through.
    """
    limit = machine.recursion_limit
    frame = frames[-1]
    code, registers, pc = frame.function.code, frame.registers, frame.pc
    try:
        while True:
            if watch is not None:
                frame.pc = pc
                watch.instruction(frame)
                yield
            operation, target, read, slot = code[pc]

            if operation == CALL:
                arguments = read(registers)
                if hooks is None:
                    result = target(*arguments)
                else:
                    frame.pc = pc
                    result = hooks.call(frame, target, arguments)
                if slot is not None:
                    registers[slot] = result
                pc += 1
                if hooks is not None:
                    hooks.finished(frame, result, slot, pc)

            elif operation == IF:
                condition = registers[slot]
                if not isinstance(condition, int):  # a bool is an int
                    raise _bad_condition(condition, slot)
                if hooks is not None:
                    hooks.branched(frame, slot, condition, target)
                pc = pc + 1 if condition else target

            elif operation == GOTO:
                if hooks is not None:
                    hooks.jumped(frame, target)
                pc = target

            elif operation == RET:
                result = registers[slot]
                if hooks is not None:
                    frame.pc = pc
                    hooks.returned(frame, result)
                callee = frames.pop()
                if not frames:
                    frame.result = result
                    return
                frame, slot = frames[-1], callee.return_slot
                code, registers, pc = frame.function.code, frame.registers, frame.pc
                if slot is not None:
                    registers[slot] = result
                elif result is not None and not _is_unit(result):
                    raise _lost_result(callee.function, result)
                if hooks is not None:
                    hooks.left(result)
                    hooks.finished(frame, result, slot, pc + 1)
                pc += 1

            elif operation in {ENTER, INVOKE}:
                frame.pc = pc
                arguments = read(registers)
                if hooks is not None:
                    entered = hooks.entering(frame, target, arguments)
                    if entered is None:  # an instrument asked not to run it
                        if slot is not None:
                            registers[slot] = None
                        pc += 1
                        hooks.finished(frame, None, slot, pc, skipped=True)
                        continue
                    arguments = entered
                if operation == INVOKE:
                    closure = arguments[1]
                    if type(closure) is not Closure:
                        result = target(*arguments)  # a host function, or an error
                        if slot is not None:
                            registers[slot] = result
                        pc += 1
                        if hooks is not None:
                            hooks.left(result)
                            hooks.finished(frame, result, slot, pc)
                        continue
                    target, arguments = closure.function, (*arguments[2:], *closure.bound)
                if len(frames) >= limit:
                    raise _too_deep(limit, target)
                frame = new_frame(machine, target, arguments, slot)
                frames.append(frame)
                code, registers, pc = target.code, frame.registers, frame.pc
                if hooks is not None:
                    hooks.entered(frame)

            else:
                error, message = target  # a trap: what is wrong was found when linking
                raise error(message)
    except GeneratorExit:
        unwind(frames, watch, None)
        raise
    except BaseException as raised:
        frame.pc = pc
        unwind(frames, watch, raised)
        raise


def new_frame(
    machine: "VirtualMachine",
    function: LinkedFunction,
    arguments: Sequence[Any],
    return_slot: int | None,
) -> Frame:
    """Return a frame with the arguments in the first registers."""
    if len(arguments) != function.num_args:
        raise _wrong_arity(function, len(arguments))
    registers = function.template.copy()
    registers[: function.num_args] = arguments
    registers[function.machine_slot] = machine
    return Frame(function, registers, return_slot)


def unwind(frames: list[Frame], watch: Watch | None, error: BaseException | None) -> None:
    """Pop every frame; ``error`` gets notes on where it passes through."""
    if error is not None:
        for frame in frames[: -_MAX_NOTES - 1 : -1]:
            error.add_note(_location(frame))
        if len(frames) > _MAX_NOTES:
            error.add_note(f"  … and {len(frames) - _MAX_NOTES} frames below")
        if watch is not None:
            watch.error_raised(frames[-1], error)
    while frames:
        frame = frames.pop()
        if watch is not None:
            watch.popped(frame, unwound=True)


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
        """What the function returned; an execution that is not over has none."""
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


def _is_unit(value: Any) -> bool:
    return isinstance(value, Array) and not value


def _location(frame: Frame) -> str:
    return f"  in @{frame.function.name}, instruction {frame.instruction}{_text(frame)}"


def _text(frame: Frame) -> str:
    executable = frame.function.executable
    if executable is None or not 0 <= frame.instruction < executable.num_instructions:
        return ""
    try:
        instruction = executable.instruction(frame.instruction)
    except InternalError:  # it cannot be decoded, which the error says already
        return ""
    return f": {instruction_text(executable, instruction)}"


def _wrong_arity(function: LinkedFunction, given: int) -> InternalError:
    names = f" ({', '.join(function.param_names)})" if function.param_names else ""
    return InternalError(
        f"function {function.name!r} expects {function.num_args} arguments{names}, got {given}"
    )


def _too_deep(limit: int, function: LinkedFunction) -> RecursionError:
    return RecursionError(
        f"calling {function.name!r} would make more than {limit} frames; if the recursion is "
        "meant to be that deep, raise vm.recursion_limit"
    )


def _bad_condition(condition: Any, slot: int) -> TypeError:
    from_kind = shown(condition)
    return TypeError(f"If: register %{slot}: expected an int or a bool, got {from_kind}")


def _lost_result(function: LinkedFunction, result: Any) -> InternalError:
    return InternalError(
        f"function {function.name!r} returned {shown(result)}, but the call has destination %void: "
        "expected None or an empty tuple; give the call a destination register"
    )
