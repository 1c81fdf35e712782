"""The state of a machine at every step, rebuilt from its events.

A run leaves a list of events; folding them gives the frames and registers at any step, forwards or
backwards, without running anything. Frames are immutable and linked to the frame below, so keeping
the state of a step costs one reference, even 100 000 frames deep. Since every operation of the
machine makes an event, the folded state equals the real one (a property that is tested), and a
picture drawn from it cannot lie. There is no TVM counterpart.

Positions: position ``n`` is the moment before step ``n``; the last one is the end of the recording.

Examples
--------
>>> from relaxlab.runtime.vm.observer import FramePushed, InstructionStarted, ScalarValue
>>> one = ScalarValue("int", "1")
>>> timeline = Timeline(
...     [FramePushed(0, 0, "f", 0, (one,), None), InstructionStarted(0, 0, "f", 0)]
... )
>>> timeline.state(0).frames[0].registers[0].text
'1'
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from relaxlab.errors import InternalError
from relaxlab.runtime.vm.observer import (
    Branched,
    CallFinished,
    CallStarted,
    ErrorRaised,
    Event,
    FramePopped,
    FramePushed,
    FrameState,
    GraphCaptured,
    GraphCaptureStarted,
    GraphReplayed,
    GraphStoragesKept,
    InstructionStarted,
    Jumped,
    KernelRecorded,
    MachineState,
    RegisterChange,
    RegisterEdited,
    Returned,
    RunFailed,
    RunFinished,
    RunStarted,
    StorageValue,
    TensorValue,
    TupleValue,
    Value,
)

__all__ = [
    "Frame",
    "StorageUse",
    "Timeline",
    "Write",
    "fold",
    "machine_state",
    "storages_of",
]

_CHECKPOINT_EVERY: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One frame of the folded state, linked to the frame below it.

    Attributes
    ----------
    number
        Counts the frames of the whole run in order of entry: it tells two calls of one function
        apart, and two visits of one depth.
    depth
        Number of the frame from the bottom.
    function, pc, return_register, registers
        As in ``FrameState``.
    below
        The caller's frame, or None.
    entry
        What the registers held when the frame was entered.
    """

    number: int
    depth: int
    function: str
    pc: int
    return_register: int | None
    registers: tuple[Value, ...]
    below: "Frame | None"
    entry: tuple[Value, ...]

    def at(self, depth: int) -> "Frame":
        """Return the frame number ``depth`` from the bottom.

        Raises
        ------
        InternalError
            If the stack is not that deep.
        """
        frame: Frame | None = self
        while frame is not None and frame.depth > depth:
            frame = frame.below
        if frame is None or frame.depth != depth:
            raise InternalError(f"no frame {depth}: the stack has {self.depth + 1}")
        return frame

    def stack(self) -> "Iterator[Frame]":
        """Yield the frames from this one down to the outermost."""
        frame: Frame | None = self
        while frame is not None:
            yield frame
            frame = frame.below


@dataclass(frozen=True, slots=True)
class Write:
    """A register was given a value at ``step``.

    ``cause`` is ``"argument"`` when the frame was entered, ``"result"`` for the destination of a
    call, ``"memory"`` when a call wrote memory that the register shows (or somebody edited it).
    """

    step: int
    depth: int
    frame: int
    register: int
    cause: Literal["argument", "result", "memory"]
    value: Value


@dataclass(frozen=True, slots=True)
class StorageUse:
    """One piece of memory and the registers that reach it.

    ``registers`` holds (depth, register) pairs; ``nbytes`` is None unless a register holds the
    storage itself.
    """

    storage: int
    nbytes: int | None
    registers: tuple[tuple[int, int], ...]


def fold(top: Frame | None, event: Event, entered: int = 0) -> Frame | None:
    """Return the top frame after ``event``.

    Parameters
    ----------
    top
        The top frame before it; None if no frame is there.
    event
        What happened.
    entered
        Number for the frame that a ``FramePushed`` makes.
    """
    match event:
        case InstructionStarted(_, depth, _, pc) | Jumped(_, depth, _, pc):
            return _with_pc(top, depth, pc)
        case Branched(_, depth, _, _, _, _, next_pc):
            return _with_pc(top, depth, next_pc)
        case CallFinished(_, depth, _, _, _, _, changes, next_pc):
            return _with_pc(_with_changes(top, changes), depth, next_pc)
        case RunStarted(_, _, _, _, changes) | RegisterEdited(_, _, _, _, changes):
            return _with_changes(top, changes)
        case FramePushed(_, depth, function, pc, registers, return_register):
            return Frame(entered, depth, function, pc, return_register, registers, top, registers)
        case FramePopped(_, depth, function):
            if top is None or top.depth != depth:
                raise InternalError(f"frame {depth} of {function!r} is popped, but is not on top")
            return top.below
        case CallStarted() | Returned() | ErrorRaised() | RunFinished() | RunFailed():
            return top
        case GraphStoragesKept() | GraphCaptureStarted() | KernelRecorded():
            return top
        case GraphCaptured() | GraphReplayed():
            return top


def _with_pc(top: Frame | None, depth: int, pc: int) -> Frame:
    if top is None or top.depth != depth:
        there = "no frame is there" if top is None else f"frame {top.depth} is on top"
        raise InternalError(f"an instruction of frame {depth} ran, but {there}")
    return top if top.pc == pc else replace(top, pc=pc)


def _with_changes(top: Frame | None, changes: tuple[RegisterChange, ...]) -> Frame | None:
    if not changes:
        return top
    if top is None:
        raise InternalError("a register changed, but no frame is there")
    by_depth: dict[int, dict[int, Value]] = {}
    for change in changes:
        by_depth.setdefault(change.depth, {})[change.register] = change.value
    lowest = min(by_depth)
    kept: list[Frame] = []
    frame: Frame | None = top
    while frame is not None and frame.depth >= lowest:
        kept.append(frame)
        frame = frame.below
    for old in reversed(kept):
        news = by_depth.get(old.depth)
        registers = old.registers
        if news:
            values = list(registers)
            for register, value in news.items():
                values[register] = value
            registers = tuple(values)
        frame = replace(old, registers=registers, below=frame)
    return frame


def machine_state(step: int, top: Frame | None) -> MachineState:
    """Return the folded state in the form of ``Execution.snapshot()``."""
    frames = [] if top is None else [*top.stack()]
    return MachineState(
        step,
        tuple(
            FrameState(frame.function, frame.pc, frame.return_register, frame.registers)
            for frame in reversed(frames)
        ),
    )


def storages_of(top: Frame | None) -> list[StorageUse]:
    """Return the memory that the registers of all frames reach, by storage number."""
    registers: dict[int, list[tuple[int, int]]] = {}
    sizes: dict[int, int] = {}
    for frame in [] if top is None else reversed([*top.stack()]):
        for register, value in enumerate(frame.registers):
            for storage, nbytes in _memory_of(value):
                places = registers.setdefault(storage, [])
                if (frame.depth, register) not in places:
                    places.append((frame.depth, register))
                if nbytes is not None:
                    sizes[storage] = nbytes
    return [
        StorageUse(storage, sizes.get(storage), tuple(registers[storage]))
        for storage in sorted(registers)
    ]


def _memory_of(value: Value) -> Iterator[tuple[int, int | None]]:
    match value:
        case TensorValue():
            yield value.storage, None
        case StorageValue():
            yield value.storage, value.nbytes
        case TupleValue():
            for item in value.items:
                yield from _memory_of(item)
        case _:
            pass


class Timeline:
    """Every state between the first and the last recorded event.

    Parameters
    ----------
    events
        Events in order, from the start of a run or from a checkpoint on.
    start
        The top frame before the first event, when earlier events were dropped.
    first_step
        Number of the first step that is kept.
    entered
        How many frames were entered before the first event.
    console
        (step, text) pairs: what the program printed during which step.

    Notes
    -----
    It can grow: :meth:`append` takes the next event.
    """

    def __init__(
        self,
        events: Iterable[Event] = (),
        *,
        start: Frame | None = None,
        first_step: int = 0,
        entered: int = 0,
        console: Iterable[tuple[int, str]] = (),
    ) -> None:
        self.first_step = first_step
        self.console: list[tuple[int, str]] = list(console)
        self._start = start
        self._top = start
        self._entered = entered
        self._events: list[Event] = []
        self._begins: list[int] = []
        self._checkpoints: list[tuple[Frame | None, int]] = []
        self._writes: dict[tuple[int, int], list[Write]] = {}
        self._memory: dict[int, list[int]] = {}
        self._visits: dict[int, list[int]] = {}
        self._last: tuple[int, Frame | None, int] = (-_CHECKPOINT_EVERY, None, 0)
        for event in events:
            self.append(event)

    # ---- growing ----------------------------------------------------------------------------

    def append(self, event: Event) -> None:
        """Add the next event.

        Raises
        ------
        InternalError
            If the event belongs to another step than the next.
        """
        match event:
            case InstructionStarted(step, _, _, pc):
                if step != self._begun:
                    raise InternalError(f"expected step {self._begun}, got step {step}")
                if len(self._begins) % _CHECKPOINT_EVERY == 0:
                    self._checkpoints.append((self._top, self._entered))
                self._begins.append(len(self._events))
                self._visits.setdefault(pc, []).append(step)
            case CallFinished(step, depth, _, _, _, destination, changes):
                self._note(step, changes, depth, destination)
            case RunStarted(step, _, _, _, changes) | RegisterEdited(step, _, _, _, changes):
                self._note(step, changes, -1, None)
            case _:
                pass
        self._top = fold(self._top, event, self._entered)
        self._events.append(event)
        if isinstance(event, FramePushed):
            number = self._entered
            self._entered += 1
            for register in range(_written(event.registers)):
                value = event.registers[register]
                write = Write(event.step, event.depth, number, register, "argument", value)
                self._writes.setdefault((number, register), []).append(write)

    def edit(self, event: RegisterEdited) -> "Timeline":
        """Return this timeline with an edit before the step at which the machine stopped.

        Raises
        ------
        InternalError
            If no machine is stopped before a step: the newest event is none that begins one.
        """
        if not self._events or not isinstance(self._events[-1], InstructionStarted):
            raise InternalError("a register is edited only where the machine is stopped")
        return Timeline(
            [*self._events[:-1], event, self._events[-1]],
            start=self._start,
            first_step=self.first_step,
            entered=self._entered - sum(isinstance(one, FramePushed) for one in self._events),
            console=self.console,
        )

    def print(self, text: str) -> None:
        """Note that the step that runs now printed ``text``."""
        step = max(self._begun - 1, self.first_step)
        if self.console and self.console[-1][0] == step:
            text = self.console.pop()[1] + text
        self.console.append((step, text))

    def _note(
        self,
        step: int,
        changes: tuple[RegisterChange, ...],
        depth: int,
        destination: int | None,
    ) -> None:
        """Index who wrote which register and which memory."""
        for change in changes:
            if self._top is None:
                raise InternalError("a register changed, but no frame is there")
            frame = self._top.at(change.depth)
            is_result = (change.depth, change.register) == (depth, destination)
            write = Write(
                step,
                change.depth,
                frame.number,
                change.register,
                "result" if is_result else "memory",
                change.value,
            )
            self._writes.setdefault((frame.number, change.register), []).append(write)
            if not is_result:
                for storage, _ in _memory_of(change.value):
                    steps = self._memory.setdefault(storage, [])
                    if not steps or steps[-1] != step:
                        steps.append(step)

    # ---- positions --------------------------------------------------------------------------

    @property
    def _begun(self) -> int:
        """Number of the next step to begin."""
        return self.first_step + len(self._begins)

    @property
    def end(self) -> int:
        """The last position. While a machine is stopped before a step, it is that step."""
        stopped = bool(self._events) and isinstance(self._events[-1], InstructionStarted)
        return self._begun - stopped

    def __len__(self) -> int:
        """Return the number of steps that ran."""
        return self.end - self.first_step

    @property
    def start(self) -> Frame | None:
        """The top frame before the first event that is kept."""
        return self._start

    @property
    def last_event(self) -> Event | None:
        """The newest event."""
        return self._events[-1] if self._events else None

    @property
    def events(self) -> tuple[Event, ...]:
        """All events that are kept."""
        return tuple(self._events)

    def events_of(self, step: int) -> tuple[Event, ...]:
        """Return the events of one step, from its ``InstructionStarted`` on."""
        index = self._index(step, last=self._begun - 1)
        ends = self._begins[index + 1 : index + 2] or [len(self._events)]
        return tuple(self._events[self._begins[index] : ends[0]])

    @property
    def preamble(self) -> tuple[Event, ...]:
        """The events before the first step that is kept."""
        return tuple(self._events[: self._begins[0]] if self._begins else self._events)

    def instruction(self, step: int) -> InstructionStarted:
        """Return the event with which a step began."""
        event = self._events[self._begins[self._index(step, last=self._begun - 1)]]
        assert isinstance(event, InstructionStarted)
        return event

    def _index(self, position: int, last: int) -> int:
        if not self.first_step <= position <= last:
            dropped = f" (steps before {self.first_step} were dropped)" if self.first_step else ""
            raise IndexError(
                f"position {position} is outside the recording: "
                f"expected {self.first_step} to {last}{dropped}"
            )
        return position - self.first_step

    # ---- states -----------------------------------------------------------------------------

    def top(self, position: int) -> Frame | None:
        """Return the top frame at a position; None when no frame is there."""
        index = self._index(position, last=self.end)
        if position == self.end:
            return self._top
        last, frame, entered = self._last
        # walking forwards costs one fold a step; any other jump starts at a checkpoint
        if 0 <= index - last < _CHECKPOINT_EVERY:
            first = self._begins[last] + 1
        else:
            frame, entered = self._checkpoints[index // _CHECKPOINT_EVERY]
            first = self._begins[index - index % _CHECKPOINT_EVERY]
        for event in self._events[first : self._begins[index] + 1]:
            frame = fold(frame, event, entered)
            entered += isinstance(event, FramePushed)
        self._last = (index, frame, entered)
        return frame

    def walk(self) -> "Iterator[tuple[int, Frame | None, tuple[Event, ...]]]":
        """Yield each step, the top frame at its position, and its events: one fold in all."""
        if not self._checkpoints:
            return
        frame, entered = self._checkpoints[0]
        for index, first in enumerate(self._begins[: len(self)]):
            last = self._begins[index + 1] if index + 1 < len(self._begins) else len(self._events)
            events = tuple(self._events[first:last])
            frame = fold(frame, events[0], entered)
            yield self.first_step + index, frame, events
            for event in events[1:]:
                frame = fold(frame, event, entered)
                entered += isinstance(event, FramePushed)

    def state(self, position: int) -> MachineState:
        """Return all frames and registers at a position."""
        return machine_state(position, self.top(position))

    def storages(self, position: int) -> list[StorageUse]:
        """Return the memory that registers reach at a position."""
        return storages_of(self.top(position))

    def text(self, position: int) -> str:
        """Return what the program had printed before a position."""
        return "".join(text for step, text in self.console if step < position)

    def since(self, step: int) -> "Timeline":
        """Return a timeline of the steps from ``step`` on; what came before is one state."""
        index = self._index(step, last=self._begun)
        if step == self._begun:
            return Timeline(
                start=self._top, first_step=step, entered=self._entered, console=self.console
            )
        checkpoint = index // _CHECKPOINT_EVERY
        frame, entered = self._checkpoints[checkpoint]
        for event in self._events[
            self._begins[checkpoint * _CHECKPOINT_EVERY] : self._begins[index]
        ]:
            frame = fold(frame, event, entered)
            entered += isinstance(event, FramePushed)
        return Timeline(
            self._events[self._begins[index] :],
            start=frame,
            first_step=step,
            entered=entered,
            console=self.console,
        )

    # ---- looking back -----------------------------------------------------------------------

    def writes(self, frame: int, register: int) -> Sequence[Write]:
        """Return every write of a register of the frame with that number; it grows with the run."""
        return self._writes.get((frame, register), ())

    def last_write(self, position: int, depth: int, register: int) -> Write | None:
        """Return the last write of a register that position shows, or None if it was dropped."""
        top = self.top(position)
        if top is None:
            return None
        found = self._writes.get((top.at(depth).number, register), [])
        # an argument is written while its frame is entered, during the step of the call
        count = bisect_left(found, position, key=lambda write: write.step)
        if count == 0 and found and found[0].cause == "argument" and found[0].step <= position:
            return found[0]
        return found[count - 1] if count else None

    def last_memory_write(self, position: int, storage: int) -> int | None:
        """Return the last step before a position that changed what registers show of a storage."""
        steps = self._memory.get(storage, [])
        count = bisect_left(steps, position)
        return steps[count - 1] if count else None

    def visits(self, pc: int) -> Sequence[int]:
        """Return the steps at which instruction ``pc`` began; it grows with the run."""
        return self._visits.get(pc, ())

    def memory_writes(self, storage: int) -> Sequence[int]:
        """Return the steps that changed what registers show of a storage; it grows too."""
        return self._memory.get(storage, ())

    def depth(self, position: int) -> int:
        """Return the number of the top frame at a position; -1 when no frame is there."""
        if position < self._begun:
            return self.instruction(position).depth
        top = self.top(position)
        return -1 if top is None else top.depth

    def __repr__(self) -> str:
        dropped = f", first {self.first_step} dropped" if self.first_step else ""
        return f"Timeline({len(self)} steps{dropped})"


def _written(registers: tuple[Value, ...]) -> int:
    """Return how many leading registers of a new frame were given values."""
    count = len(registers)
    while count and registers[count - 1].kind == "none":
        count -= 1
    return count
