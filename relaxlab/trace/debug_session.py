"""Step through a run, forwards and backwards; no terminal, no widget.

A session drives one execution and records it. Going back moves through the recording; going forward
runs the machine when the recording ends. So a step is always exactly one instruction, stepping to
the end equals running (a property that is tested), and looking back never changes what was there.
Full values of a past step come from a second, deterministic run. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.relax.exec_builder import ExecBuilder
>>> from relaxlab.runtime.device import cpu
>>> from relaxlab.runtime.vm import VirtualMachine
>>> ib = ExecBuilder()
>>> with ib.function("main", 1, ["x"]):
...     ib.emit_call("vm.builtin.make_tuple", [ib.r(0), ib.r(0)], dst=1)
...     ib.emit_ret(ib.r(1))
>>> session = DebugSession(VirtualMachine(ib.get(), cpu()), "main", 7)
>>> session.step().step()
<DebugSession of main: finished after 2 steps with (7, 7)>
>>> session.back()
<DebugSession of main: step 1, before instruction 1 of main>
>>> print(session.last_writer(1).step, session.value(1))
0 (7, 7)
"""

import contextlib
import io
from collections import deque
from typing import Any, NamedTuple, Self

from relaxlab.runtime.container import Array
from relaxlab.runtime.kv.kv_state import KVState
from relaxlab.runtime.tensor import Tensor, tensor
from relaxlab.runtime.vm import VirtualMachine
from relaxlab.runtime.vm.bytecode import VMFuncInfo, VMFuncKind
from relaxlab.runtime.vm.disassemble import instruction_text
from relaxlab.runtime.vm.execution import Execution
from relaxlab.runtime.vm.observer import (
    Event,
    InstructionStarted,
    MachineState,
    Observer,
    RunFailed,
    RunFinished,
    Value,
)
from relaxlab.trace.breakpoints import Breakpoint, LogText, Stop, Watch
from relaxlab.trace.compact import compact_trace
from relaxlab.trace.condition import Expression, ExpressionError
from relaxlab.trace.explain import explain_next
from relaxlab.trace.phases import Phase, is_builtin_call, phases_of
from relaxlab.trace.pool_clock import PoolClock
from relaxlab.trace.pool_recorder import PoolRecorder
from relaxlab.trace.recorder import Recorder
from relaxlab.trace.state_copy import copied_state
from relaxlab.trace.text import render
from relaxlab.trace.timeline import Frame, Timeline, Write

__all__ = ["DebugSession", "Edit", "ReplayError", "Visit"]

_VISITS_REMEMBERED = 256


class ReplayError(RuntimeError):
    """A second run of the program differed from the recorded one, or cannot reach the step."""


class Edit(NamedTuple):
    """A register that somebody gave another value before a step: what follows is a what-if.

    Attributes
    ----------
    position
        The step before which it happened.
    depth, register
        Which one.
    value
        What it was given.
    was
        What it held.
    """

    position: int
    depth: int
    register: int
    value: Any
    was: Value

    def __str__(self) -> str:
        return f"at step {self.position}, %{self.register} of #{self.depth} was {self.was.text}"


class Visit(NamedTuple):
    """A place that was looked at: what changed is told against it later.

    Attributes
    ----------
    position
        The step.
    selected
        Number of the frame that :meth:`DebugSession.select` chose; None for the top one.
    frame, registers
        ``Frame.number`` of the frame that was looked at, and what its registers held; -1 and
        empty where no frame was there.
    """

    position: int
    selected: int | None
    frame: int
    registers: tuple[Value, ...]


class DebugSession:
    """One call of a Relax function, with a cursor that moves both ways.

    Parameters
    ----------
    vm
        The machine.
    function
        Name of the function to call.
    args
        Its arguments. The run uses them as they are; tensors and caches are copied once more, so
        that a second run can start from the same values.
    limit
        How many of the last steps to keep; None keeps all.

    Attributes
    ----------
    position : int
        Number of the step that runs next, or the end.
    reason : str
        Why the session stands here: a sentence.
    error : BaseException or None
        What the program raised, once it has failed.
    breakpoints, watches : dict
        By number.
    displays : list of Expression
        Expressions shown at every stop.
    notes : list of (int, str)
        Remarks on steps, in order of step.
    edits : list of Edit
        Registers that were given other values, on the way here; see :meth:`fork`.
    skip_builtins : bool
        Whether :meth:`step` and :meth:`back` pass by calls of the machine's own functions.
    inside : bool
        Whether the text shows the phases of the instruction that runs next.
    pools : list of PoolClock
        For each cache among the arguments that a :class:`relaxlab.trace.PoolRecorder` records:
        which of its events happened before which step.
    visits : deque of Visit
        The last places that were looked at, the current one included.
    visited : int
        How many places were looked at since the start, those that are forgotten included.

    Notes
    -----
    Commands return the session itself, so they can be chained and a notebook shows where it is.
    """

    def __init__(
        self, vm: VirtualMachine, function: str, *args: Any, limit: int | None = 100_000
    ) -> None:
        self.vm = vm
        self.function = function
        self.breakpoints: dict[int, Breakpoint] = {}
        self.watches: dict[int, Watch] = {}
        self.displays: list[Expression] = []
        self.notes: list[tuple[int, str]] = []
        self.edits: list[Edit] = []
        self.skip_builtins = False
        self.inside = False
        self._limit = limit
        self._numbers = 0
        self._arguments = tuple(map(_copied, args))
        self._begin(args)

    def _begin(self, args: tuple[Any, ...]) -> None:
        recorder = Recorder(self._limit)
        self.pools = _clocks(args)
        execution = self.vm.start(self.function, *args, observer=self._noting(recorder))
        _begin_without_memories(execution)
        self._recorder, self._execution = recorder, execution
        self.error: BaseException | None = None
        self.position = self.timeline.end
        self.reason = "before the first instruction"
        self._selected: int | None = None
        self.visits: deque[Visit] = deque(maxlen=_VISITS_REMEMBERED)
        self.visited = 0
        self._visit()
        self._replica: tuple[Execution, Recorder, list[Edit]] | None = None
        for breakpoint_ in self.breakpoints.values():
            breakpoint_.forget()
        self._notice(self.position)

    def _noting(self, recorder: Recorder) -> Observer:
        """Return an observer that also tells the clocks of caches which step begins."""
        if not self.pools:
            return recorder

        def observe(event: Event) -> None:
            recorder(event)
            if isinstance(event, InstructionStarted):
                for clock in self.pools:
                    clock.note(event.step)

        return observe

    # ---- where it is ------------------------------------------------------------------------

    @property
    def timeline(self) -> Timeline:
        """What was recorded so far."""
        return self._recorder.timeline

    @property
    def finished(self) -> bool:
        """Whether the program is over; the cursor may be anywhere."""
        return not self._execution.frames

    @property
    def at_end(self) -> bool:
        """Whether the program is over and the cursor is at its end."""
        return self.finished and self.position == self.timeline.end

    @property
    def result(self) -> Any:
        """What the program returned; None before that."""
        return self._execution.result

    @property
    def state(self) -> MachineState:
        """All frames and registers at the cursor."""
        return self.timeline.state(self.position)

    @property
    def top(self) -> Frame | None:
        """The top frame at the cursor; None at the end."""
        return self.timeline.top(self.position)

    @property
    def depth(self) -> int:
        """Number of the selected frame: the top one, unless :meth:`select` chose another."""
        top = self.timeline.depth(self.position)
        return top if self._selected is None else min(self._selected, top)

    @property
    def frame(self) -> Frame | None:
        """The selected frame."""
        top = self.top
        return None if top is None else top.at(self.depth)

    def select(self, depth: int) -> Self:
        """Look at frame number ``depth``, counted from the bottom; moving selects the top again.

        Raises
        ------
        IndexError
            If there is no such frame.
        """
        top = self.timeline.depth(self.position)
        if not 0 <= depth <= top:
            raise IndexError(f"no frame {depth}: expected 0 to {top}")
        self._selected = depth
        self._visit()
        return self

    @property
    def previous_registers(self) -> tuple[Value, ...]:
        """The selected frame's registers when another step showed it last, or when it was entered.

        Looking at other frames of the same step, and back, does not count.
        """
        frame = self.frame
        if frame is None:
            return ()
        first = self.timeline.first_step
        for visit in reversed(self.visits):
            if visit.frame == frame.number and first <= visit.position != self.position:
                return visit.registers
        return frame.entry

    # ---- moving -----------------------------------------------------------------------------

    def step(self, times: int = 1) -> Self:
        """Run exactly one instruction; a call of a Relax function is one, and enters it.

        With :attr:`skip_builtins` it goes on past calls of the machine's own functions, to a
        breakpoint at most.
        """
        position, stop = self.position, None
        for _ in range(times):
            position = self._next(position)
            while self._skipped(position) and stop is None:
                before, position = position, self._next(position)
                stop = self._stop_between(before, position)
        reason = "one step" if times == 1 else f"{times} steps"
        return self._moved(position, stop.reason if stop is not None else reason)

    def into(self) -> Self:
        """Step; the name says that a Relax function is entered."""
        return self.step()

    def over(self, times: int = 1) -> Self:
        """Step, and run a Relax function that is entered to its end; breakpoints stop it."""
        stop = Stop(self.position, "")
        for _ in range(times):
            stop = self._run(stop.position, floor=self._depth(stop.position))
            if stop.reason:
                break
        return self._moved(stop.position, stop.reason or "step over")

    def out(self) -> Self:
        """Run until the current function has returned; breakpoints stop it."""
        stop = self._run(self.position, floor=self._depth(self.position) - 1)
        return self._moved(stop.position, stop.reason or "returned")

    def continue_(self, steps: int | None = None) -> Self:
        """Run to the next breakpoint or watch, to the end, or at most ``steps`` instructions."""
        last = None if steps is None else self.position + steps
        stop = self._run(self.position, last=last)
        return self._moved(stop.position, stop.reason or f"ran {steps} steps")

    def back(self, times: int = 1) -> Self:
        """Go back exactly one instruction."""
        first = self.timeline.first_step
        position, stop = self.position, None
        for _ in range(times):
            position = max(position - 1, first)
            while position > first and self._skipped(position) and stop is None:
                position -= 1
                stop = self._stop_at(position, backwards=True)
        if position == self.position:
            return self._moved(position, self._start_reason())
        reason = "one step back" if times == 1 else f"{times} steps back"
        return self._moved(position, stop.reason if stop is not None else reason)

    def back_over(self) -> Self:
        """Go back one instruction of this function, past whole calls."""
        # at the end there is no frame: what was left last is the outermost one
        return self._back_until(max(self._depth(self.position), 0), "back over")

    def back_out(self) -> Self:
        """Go back to the call that entered the current function."""
        return self._back_until(self._depth(self.position) - 1, "before the call")

    def reverse_continue(self) -> Self:
        """Go back to the last breakpoint or watched change, or to the start."""
        return self._back_until(None, "")

    def goto(self, position: int) -> Self:
        """Move to a step; one that has not run yet is run to, breakpoints or not.

        Raises
        ------
        IndexError
            If the step was dropped from the recording, or the program ends before it.
        """
        first = self.timeline.first_step
        if position < first:
            raise IndexError(f"step {position} is not recorded: the first is {first}")
        while position > self.timeline.end and not self.finished:
            self._advance()
        if position > self.timeline.end:
            raise IndexError(f"no step {position}: the program ended after {self.timeline.end}")
        return self._moved(position, f"went to step {position}")

    def find(self, text: str, *, backwards: bool = False) -> Self:
        """Go to the next step (or the last one) that has a text, in any case of its letters.

        Looked at are the instruction, as the code shows it, and the sentence on what it will do,
        which tells names and values.

        Raises
        ------
        ValueError
            If there is no such step; the cursor stays.
        """
        wanted = text.casefold()
        position = self.position
        while (position := position + (-1 if backwards else 1)) >= self.timeline.first_step:
            while position > self.timeline.end and not self.finished:
                self._advance()
            top = self.timeline.top(position) if position <= self.timeline.end else None
            if top is None:
                break
            instruction = self.vm.executable.instruction(top.pc)
            line = instruction_text(self.vm.executable, instruction)
            words = explain_next(self.vm.executable, top)
            if wanted in line.casefold() or wanted in words.casefold():
                return self._moved(position, f"found {text!r}")
        where = "before" if backwards else "after"
        raise ValueError(f"no step {where} {self.position} has {text!r}")

    def record(self) -> Self:
        """Run the program to its end; the cursor stays where it is."""
        while not self.finished:
            self._advance()
        return self

    def restart(self, *args: Any) -> Self:
        """Begin again, with the first arguments or with new ones; breakpoints stay, watches go."""
        if args:
            self._arguments = tuple(map(_copied, args))
        else:
            args = tuple(map(_copied, self._arguments))
        self.close()
        self.edits.clear()  # the program runs as it is written
        self._begin(args)
        self.watches.clear()
        return self

    def close(self) -> None:
        """Give the execution up, if it is not over; the recording stays."""
        if self._replica is not None:
            self._replica[0].close()
            self._replica = None
        self._execution.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def fork(self, register: int, value: Any, depth: int | None = None) -> "DebugSession":
        """Return another session, run up to here, in which a register holds another value.

        This session stays as it is. The other one has run the same steps from the same arguments
        and stands here, before the next instruction; what it runs from here on did not happen.

        Parameters
        ----------
        register, depth
            Which one: of the selected frame, or of frame ``depth``.
        value
            What to put there; an array becomes a tensor. Nothing checks that the program can take
            it: that is what one finds out.

        Raises
        ------
        IndexError
            If no frame, or no such register, is there.
        ReplayError
            If the second run does not reach this step as the first did.
        """
        frame = self._require(register, depth)
        other = DebugSession(
            self.vm, self.function, *map(_copied, self._arguments), limit=self._limit
        )
        wanted = Edit(
            self.position, frame.depth, register, _copied(value), frame.registers[register]
        )
        for edit in self.edits:
            if edit.position <= self.position:
                other.goto(edit.position)._edit(edit)
        other.goto(self.position)
        if other.state != self.state:
            raise ReplayError(
                f"a second run differs from the recorded one at step {self.position}: some host "
                "function depends on more than its arguments"
            )
        other._edit(wanted)
        other.displays = [*self.displays]
        other.reason = "a register was edited"
        return other

    def _edit(self, edit: Edit) -> None:
        """Give a register of the stopped machine another value."""
        _edit_register(self._execution, self._recorder, edit)
        self.edits.append(edit)
        # what was looked at before the edit is not what is there now
        self.visits.pop()
        self.visited -= 1
        self._visit()

    # ---- the machinery of moving ------------------------------------------------------------

    def _depth(self, position: int) -> int:
        return self.timeline.depth(position)

    def _advance(self) -> None:
        """Run one instruction of the machine, and note which breakpoints it reaches."""
        before = self.timeline.end
        try:
            with self._recorder.listening():
                self._execution.step()
        except BaseException as error:
            self.error = error  # whatever the program raised is its outcome
            if not isinstance(error, Exception):
                raise
        for clock in self.pools:
            clock.note(self.timeline.end)
        self._notice(before + 1)

    def _notice(self, first: int) -> None:
        """Evaluate breakpoints on the positions from ``first`` to the end."""
        if not self.breakpoints:
            return
        timeline = self.timeline
        for position in range(max(first, timeline.first_step), timeline.end + 1):
            if timeline.depth(position) < 0:
                continue
            pc = timeline.instruction(position).pc
            for breakpoint_ in self.breakpoints.values():
                if breakpoint_.pc == pc:
                    self._try(breakpoint_, position)

    def _try(self, breakpoint_: Breakpoint, position: int) -> None:
        top = self.timeline.top(position)
        if top is not None:
            breakpoint_.reach(position, top, self._names(top.function))

    def _skipped(self, position: int) -> bool:
        """Whether a step by hand does not stop here."""
        if not self.skip_builtins or self.timeline.depth(position) < 0:
            return False
        return is_builtin_call(self.vm.executable, self.timeline.instruction(position).pc)

    def _next(self, position: int) -> int:
        """Return the position after ``position``, running the machine if it must."""
        if position == self.timeline.end and not self.finished:
            self._advance()
        return min(position + 1, self.timeline.end)

    def _run(self, position: int, floor: int | None = None, last: int | None = None) -> Stop:
        """Go forward to a breakpoint, a watched change or the end; these have a reason.

        Or, without a reason, to a frame of depth ``floor`` or below, or to position ``last``.
        """
        try:
            while True:
                following = self._next(position)
                if following == position:
                    return Stop(position, self._end_reason())
                stop = self._stop_between(position, following)
                position = following
                if stop is not None:
                    return stop
                if floor is not None and self._depth(position) <= floor:
                    return Stop(position, "")
                if last is not None and position >= last:
                    return Stop(position, "")
        except KeyboardInterrupt:
            return Stop(min(position, self.timeline.end), "interrupted")

    def _back_until(self, floor: int | None, reason: str) -> Self:
        """Go back to a breakpoint, a watched change, a frame of depth ``floor``, or the start."""
        position = self.position
        while position > self.timeline.first_step:
            position -= 1
            stop = self._stop_at(position, backwards=True)
            if stop is not None:
                return self._moved(*stop)
            if floor is not None and self._depth(position) <= floor:
                return self._moved(position, reason)
        return self._moved(position, self._start_reason())

    def _stop_between(self, before: int, after: int) -> Stop | None:
        for watch in self.watches.values():
            if watch.fires(self.timeline, before):
                return Stop(after, f"watch {watch.number}: {watch.text} changed")
        return self._stop_at(after)

    def _stop_at(self, position: int, backwards: bool = False) -> Stop | None:
        if backwards:
            for watch in self.watches.values():
                if watch.fires(self.timeline, position):
                    return Stop(position, f"watch {watch.number}: {watch.text} changes here")
        for breakpoint_ in self.breakpoints.values():
            reason = breakpoint_.stops(position)
            if reason is not None:
                return Stop(position, reason)
        return None

    def _moved(self, position: int, reason: str) -> Self:
        position = max(position, self.timeline.first_step)
        if position != self.position:
            self.position = position
            self._selected = None
            self._visit()
        if self.at_end:
            reason = self._end_reason()
        self.reason = reason or self.reason
        return self

    def _visit(self) -> None:
        """Remember what is looked at: changes are marked against it at the frame's next stop."""
        frame = self.frame
        number, registers = (-1, ()) if frame is None else (frame.number, frame.registers)
        self.visits.append(Visit(self.position, self._selected, number, registers))
        self.visited += 1

    def _start_reason(self) -> str:
        if self.timeline.first_step:
            return f"the first step that is kept; {self.timeline.first_step} were dropped"
        return "before the first instruction"

    def _end_reason(self) -> str:
        match self.timeline.last_event:
            case RunFinished(result=result):
                return f"finished with {result.text}"
            case RunFailed(error_type=error_type, message=message):
                return f"failed: {error_type}: {message}"
            case _:
                return "given up"

    # ---- breakpoints and watches ------------------------------------------------------------

    def break_at(
        self,
        function: str | None = None,
        pc: int | None = None,
        *,
        condition: str | None = None,
        ignore: int = 0,
        log: str | None = None,
    ) -> Breakpoint:
        """Set a breakpoint; the program may have run already, or not at all.

        Parameters
        ----------
        function
            Where: its first instruction, or its instruction number ``pc`` (from 0).
        pc
            Without ``function``: an instruction index of the whole executable.
        condition
            Stop only where this expression is true; see ``condition.py``.
        ignore
            How many hits to pass by first.
        log
            Write this line instead of stopping; see :meth:`log_at`.

        Raises
        ------
        ValueError
            If there is no such function or instruction, or the condition cannot be read.
        """
        index = self._instruction(function, pc)
        self._numbers += 1
        made = Breakpoint(
            self._numbers,
            index,
            self._place(index),
            Expression(condition) if condition else None,
            ignore,
            log=None if log is None else LogText(log),
        )
        self.breakpoints[made.number] = made
        for position in self.timeline.visits(index):
            if position <= self.timeline.end:
                self._try(made, position)
        return made

    def log_at(
        self,
        text: str,
        function: str | None = None,
        pc: int | None = None,
        *,
        condition: str | None = None,
    ) -> Breakpoint:
        """Set a log point: where a breakpoint would stop, it writes a line and goes on.

        Parameters
        ----------
        text
            The line; an expression in braces stands for its value, as in ``"n is {r0}"``.
        function, pc, condition
            As for :meth:`break_at`.
        """
        return self.break_at(function, pc, condition=condition, log=text)

    @property
    def logs(self) -> list[tuple[int, str]]:
        """What log points wrote before the cursor, or at it, in order: step and line."""
        lines = [
            (position, point.number, line)
            for point in self.breakpoints.values()
            if point.enabled
            for position, line in point.logged.items()
            if position <= self.position
        ]
        return [(position, line) for position, _, line in sorted(lines)]

    def note(self, text: str, step: int | None = None) -> None:
        """Write a remark on a step, by default on the one at the cursor."""
        at = self.position if step is None else step
        self.timeline.depth(at)  # refuses what is not recorded
        self.notes.append((at, text))
        self.notes.sort(key=lambda one: one[0])

    def phases(self) -> list[Phase]:
        """Return what happens inside the instruction at the cursor; see ``phases.py``."""
        return phases_of(self.vm.executable, self.timeline, self.position)

    def watch(self, register: int, depth: int | None = None) -> Watch:
        """Stop when a register of the selected frame (or of frame ``depth``) changes."""
        frame = self._require(register, depth)
        self._numbers += 1
        made = Watch(
            self._numbers, f"%{register} of {frame.function}", frame=(frame.number, register)
        )
        self.watches[made.number] = made
        return made

    def watch_storage(self, storage: int) -> Watch:
        """Stop when a call writes memory number ``storage``."""
        self._numbers += 1
        made = Watch(self._numbers, f"storage s{storage}", storage=storage)
        self.watches[made.number] = made
        return made

    def remove(self, number: int) -> None:
        """Remove a breakpoint or a watch; an unknown number is a ``KeyError``."""
        if self.breakpoints.pop(number, None) is None and self.watches.pop(number, None) is None:
            known = ", ".join(map(str, sorted({*self.breakpoints, *self.watches}))) or "none"
            raise KeyError(f"no breakpoint or watch {number}; there are: {known}")

    def display(self, text: str) -> None:
        """Show the value of an expression at every stop."""
        self.displays.append(Expression(text))

    def _instruction(self, function: str | None, pc: int | None) -> int:
        ex = self.vm.executable
        if function is None:
            if pc is None:
                raise ValueError("a breakpoint needs a function, or an instruction index")
            if ex.function_at(pc) is None:
                raise ValueError(
                    f"no instruction {pc}: the executable has 0 to {ex.num_instructions - 1}"
                )
            return pc
        info = self._info(function)
        if info is None or info.kind != VMFuncKind.VM_FUNC:
            known = ", ".join(f.name for f in ex.func_table if f.kind == VMFuncKind.VM_FUNC)
            raise ValueError(f"no Relax function {function!r}: expected one of {known}")
        index = info.start_instr + (pc or 0)
        if not info.start_instr <= index < info.end_instr:
            last = info.end_instr - info.start_instr - 1
            raise ValueError(f"no instruction {pc} in {function!r}: expected 0 to {last}")
        return index

    def _place(self, index: int) -> str:
        info = self.vm.executable.function_at(index)
        assert info is not None
        return f"{info.name}+{index - info.start_instr}"

    def _info(self, function: str) -> VMFuncInfo | None:
        ex = self.vm.executable
        index = ex.func_map.get(function)
        return None if index is None else ex.func_table[index]

    def _names(self, function: str) -> tuple[str, ...]:
        info = self._info(function)
        return () if info is None else info.param_names

    # ---- questions --------------------------------------------------------------------------

    def evaluate(self, text: str) -> Any:
        """Return the value of an expression in the selected frame.

        Raises
        ------
        ExpressionError
            If it is no expression, or has no value here.
        """
        frame = self.frame
        if frame is None:
            raise ExpressionError(f"{text!r} has no value here: the program is over")
        return Expression(text)(
            frame.registers, self._names(frame.function), step=self.position, depth=frame.depth
        )

    def last_writer(self, register: int, depth: int | None = None) -> Write | None:
        """Return who wrote a register of the selected frame last; None if that was dropped."""
        frame = self._require(register, depth)
        return self.timeline.last_write(self.position, frame.depth, register)

    def last_storage_writer(self, storage: int) -> int | None:
        """Return the last step before the cursor that wrote memory number ``storage``."""
        return self.timeline.last_memory_write(self.position, storage)

    def value(self, register: int, depth: int | None = None) -> Any:
        """Return the full value of a register at the cursor; tensors are copies.

        Where the machine has gone on, the program is run a second time up to here, from copies of
        its first arguments.

        Raises
        ------
        ReplayError
            If the second run differs: a host function does not depend on its arguments alone.
        """
        frame = self._require(register, depth)
        if self.position == self.timeline.end and not self.finished:
            run = self._execution
        else:
            run = self._replayed()
        return _copied(run.frames[frame.depth].registers[register])

    def trace(self) -> dict[str, Any]:
        """Return what was recorded so far as plain data for a view; see ``compact.py``."""
        return compact_trace(self.vm.executable, self.timeline)

    def _require(self, register: int, depth: int | None) -> Frame:
        top = self.top
        if top is None:
            raise IndexError("no frame is there: the program is over; go back first")
        frame = top.at(self.depth if depth is None else depth)
        if not 0 <= register < len(frame.registers):
            raise IndexError(
                f"no register %{register} in {frame.function}: it has {len(frame.registers)}"
            )
        return frame

    def _replayed(self) -> Execution:
        """Return a second execution that stands at the cursor."""
        if self._replica is None or self._replica[1].timeline.end > self.position:
            if self._replica is not None:
                self._replica[0].close()
            recorder = Recorder(1)
            with contextlib.redirect_stdout(io.StringIO()):
                run = self.vm.start(
                    self.function, *map(_copied, self._arguments), observer=recorder
                )
                _begin_without_memories(run)
            self._replica = (run, recorder, [*self.edits])
        run, recorder, edits = self._replica
        while edits and edits[0].position <= self.position:
            edit = edits.pop(0)
            _run_to(run, recorder, edit.position)
            _edit_register(run, recorder, edit)
        _run_to(run, recorder, self.position)
        if recorder.timeline.end != self.position:
            raise ReplayError(
                f"cannot stop a second run at step {self.position}: it is inside a host function "
                f"that calls the machine, or the runs differ; it reached {recorder.timeline.end}"
            )
        if run.snapshot() != self.state:
            raise ReplayError(
                f"a second run differs from the recorded one at step {self.position}: some host "
                "function depends on more than its arguments"
            )
        return run

    def __str__(self) -> str:
        return render(self)

    def __repr__(self) -> str:
        if self.at_end:
            outcome = self._end_reason().removeprefix("finished ")
            verb = "finished" if isinstance(self.timeline.last_event, RunFinished) else "ended"
            return (
                f"<DebugSession of {self.function}: {verb} after {self.timeline.end} steps "
                f"{outcome}>"
            )
        begun = self.timeline.instruction(self.position)
        return (
            f"<DebugSession of {self.function}: step {self.position}, "
            f"before instruction {begun.pc} of {begun.function}>"
        )


def _clocks(args: tuple[Any, ...]) -> list[PoolClock]:
    """Return a clock for each cache among the arguments that somebody records."""
    observers = (getattr(value, "observer", None) for value in args if isinstance(value, KVState))
    return [PoolClock(one) for one in observers if isinstance(one, PoolRecorder)]


def _begin_without_memories(run: Execution) -> None:
    """Let builtins forget what they know of earlier runs, so that a second run equals the first."""
    if run.watch is not None:
        run.watch.extensions = {}


def _run_to(run: Execution, recorder: Recorder, position: int) -> None:
    # a step that runs a host function past the cursor may end as the program did: in an error
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
        while recorder.timeline.end < position and run.step():
            pass


def _edit_register(run: Execution, recorder: Recorder, edit: Edit) -> None:
    """Give a register of a stopped run another value, and note that in its recording."""
    assert run.watch is not None
    event = run.watch.edited(edit.depth, edit.register, _copied(edit.value))
    recorder.timeline = recorder.timeline.edit(event)


def _copied(value: Any) -> Any:
    """Return a value that later writes to ``value`` do not change."""
    match value:
        case Tensor():
            return tensor(value)
        case KVState():
            return copied_state(value)
        case Array():
            return Array(map(_copied, value))
        case list() | tuple() if type(value) in (list, tuple):
            return type(value)(map(_copied, value))
        case _ if hasattr(value, "__array__"):
            return tensor(value)
        case _:
            return value
