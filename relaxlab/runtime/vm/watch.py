"""Writes the events: what the loop did, with descriptions taken at that moment.

A watch remembers the last description of every register, and which registers can see which
memory. So when a call may have written some memory, exactly the registers that see it are
described again, and the event names those whose description changed. There is no TVM
counterpart.

Examples
--------
>>> from relaxlab.runtime.vm.frame import Frame, LinkedFunction
>>> events = []
>>> watch = Watch(events.append)
>>> watch.pushed(Frame(LinkedFunction("f", num_args=1, num_registers=1), [3], None))
>>> events[0].registers[0].text
'3'
"""

from collections.abc import Sequence
from typing import Any, Literal

from relaxlab.runtime.describe import Describer, Value
from relaxlab.runtime.storage import Allocator, NaiveAllocator, PooledAllocator
from relaxlab.runtime.vm.bytecode import (
    VM_REGISTER,
    VOID_REGISTER,
    Arg,
    ArgKind,
    Call,
    Instruction,
    Ret,
)
from relaxlab.runtime.vm.executable import VMExecutable
from relaxlab.runtime.vm.frame import Frame
from relaxlab.runtime.vm.observer import (
    Argument,
    Branched,
    CallFinished,
    CallStarted,
    ErrorRaised,
    FramePopped,
    FramePushed,
    GraphCaptured,
    GraphCaptureStarted,
    GraphReplayed,
    GraphStoragesKept,
    InstructionStarted,
    Jumped,
    KernelRecorded,
    Observer,
    RegisterChange,
    RegisterEdited,
    Returned,
    RunFailed,
    RunFinished,
    RunStarted,
)

__all__ = ["Watch"]

_SOURCES: dict[ArgKind, Literal["immediate", "constant", "function"]] = {
    ArgKind.IMMEDIATE: "immediate",
    ArgKind.CONST_IDX: "constant",
    ArgKind.FUNC_IDX: "function",
}


class _Shadow:
    """What was last written down about the registers of one frame."""

    __slots__ = ("frame", "owners", "values")

    def __init__(self, frame: Frame, values: list[Value], owners: list[frozenset[int]]) -> None:
        self.frame = frame
        self.values = values
        self.owners = owners


class Watch:
    """Counts instructions, and tells an observer about them.

    Parameters
    ----------
    observer
        Whom to tell; None to count only.

    Attributes
    ----------
    extensions
        What builtins remember during this run alone; None if it goes to the machine's.
    """

    def __init__(self, observer: Observer | None) -> None:
        self.observer = observer
        self.describer = Describer()
        self.step = 0
        self._begun = 0
        self._shadows: list[_Shadow] = []
        # key of something mutable -> registers that can see it
        self._seers: dict[int, set[tuple[int, int]]] = {}
        # depth and arguments of calls that are running: a nested run may find memory changed
        self._calls: list[tuple[int, Sequence[Any]]] = []
        self._decoded: dict[tuple[VMExecutable, int], Instruction] = {}
        self._allocators: list[Allocator] | None = None
        self.extensions: dict[type, Any] | None = None
        self._recorded = 0

    def allocators(self, shared: Sequence[Allocator]) -> list[Allocator]:
        """Return allocators of this run alone, of the same kinds as the machine's.

        What a shared pool hands out depends on what other runs gave back, so two runs of one
        program would see different blocks.
        """
        if self._allocators is None:
            self._allocators = [
                (NaiveAllocator if isinstance(one, NaiveAllocator) else PooledAllocator)(one.device)
                for one in shared
            ]
        return self._allocators

    # ---- runs -------------------------------------------------------------------------------

    def run_started(self, function: str, arguments: Sequence[Any], depth: int) -> None:
        """A host called ``function``."""
        if self.observer is None:
            return
        changes = self._refresh(self._calls[-1][1]) if self._calls else ()
        described = tuple(map(self.describer.describe, arguments))
        self.observer(RunStarted(self.step, depth, function, described, changes))

    def run_finished(self, function: str, result: Any, depth: int) -> None:
        """The function returned to the host."""
        if self.observer is not None:
            described = self.describer.describe(result)
            self.observer(RunFinished(self.step, depth, function, described))

    def run_failed(self, function: str, error: BaseException, depth: int) -> None:
        """The function raised, or the execution was given up."""
        if self.observer is not None:
            kind, message = _error_words(error)
            self.observer(RunFailed(self.step, depth, function, kind, message))

    # ---- frames -----------------------------------------------------------------------------

    def pushed(self, frame: Frame) -> None:
        """A frame was pushed."""
        if self.observer is None:
            return
        depth = len(self._shadows)
        registers = frame.registers[: frame.function.num_registers]
        values = [self.describer.describe(value) for value in registers]
        owners: list[frozenset[int]] = [frozenset()] * len(registers)
        self._shadows.append(_Shadow(frame, values, owners))
        for register in range(len(registers)):
            self._note_owners(depth, register)
        self.observer(
            FramePushed(
                self.step,
                depth,
                frame.function.name,
                frame.instruction,
                tuple(values),
                frame.return_slot,
            )
        )

    def popped(self, frame: Frame, unwound: bool = False) -> None:
        """The top frame is being popped."""
        if self.observer is None:
            return
        shadow = self._shadows.pop()
        depth = len(self._shadows)
        while self._calls and self._calls[-1][0] >= depth:
            self._calls.pop()  # an error passes through a running call
        for register, owners in enumerate(shadow.owners):
            for owner in owners:
                self._forget(owner, depth, register)
        self.observer(FramePopped(self.step, depth, frame.function.name, unwound))

    def error_raised(self, frame: Frame, error: BaseException) -> None:
        """The instruction of the top frame failed."""
        if self.observer is None:
            return
        depth = len(self._shadows) - 1
        kind, message = _error_words(error)
        self.observer(
            ErrorRaised(self.step, depth, frame.function.name, frame.instruction, kind, message)
        )

    # ---- instructions -----------------------------------------------------------------------

    def instruction(self, frame: Frame) -> None:
        """The loop is about to run an instruction."""
        self.step = self._begun
        self._begun += 1
        if self.observer is not None:
            self.observer(
                InstructionStarted(
                    self.step, len(self._shadows) - 1, frame.function.name, frame.instruction
                )
            )

    def call_started(
        self, frame: Frame, arguments: Sequence[Any], kind: Literal["packed", "vm"]
    ) -> None:
        """A Call has read its arguments."""
        assert self.observer is not None
        call, callee = self._call(frame)
        depth = len(self._shadows) - 1
        self._calls.append((depth, arguments))
        self.observer(
            CallStarted(
                self.step,
                depth,
                frame.instruction,
                callee,
                kind,
                tuple(map(self._argument, call.args, arguments)),
                call.dst if call.dst < VOID_REGISTER else None,
            )
        )

    def call_finished(
        self,
        frame: Frame,
        arguments: Sequence[Any],
        result: Any,
        slot: int | None,
        pc: int,
        skipped: bool,
    ) -> None:
        """A Call is over and its result written."""
        assert self.observer is not None
        _, callee = self._call(frame)
        self._calls.pop()
        depth = len(self._shadows) - 1
        changes: tuple[RegisterChange, ...] = ()
        if slot is not None:
            self._shadows[depth].values[slot] = value = self.describer.describe(result)
            self._note_owners(depth, slot)
            changes = (RegisterChange(depth, slot, value),)
        else:
            value = self.describer.describe(result)
        changes += self._refresh(arguments)
        self.observer(
            CallFinished(
                self.step,
                depth,
                frame.instruction,
                callee,
                value,
                slot,
                changes,
                frame.function.base + pc,
                skipped,
            )
        )

    def jumped(self, frame: Frame, target: int) -> None:
        """A Goto was taken."""
        assert self.observer is not None
        depth = len(self._shadows) - 1
        base = frame.function.base
        self.observer(Jumped(self.step, depth, frame.instruction, base + target))

    def branched(self, frame: Frame, slot: int, condition: int, target: int) -> None:
        """An If was decided."""
        assert self.observer is not None
        self.observer(
            Branched(
                self.step,
                len(self._shadows) - 1,
                frame.instruction,
                slot,
                self.describer.describe(condition),
                bool(condition),
                frame.function.base + target,
            )
        )

    def returned(self, frame: Frame, result: Any) -> None:
        """A Ret has read its value."""
        assert self.observer is not None
        _, ret = self._instruction(frame)
        assert isinstance(ret, Ret)
        self.observer(
            Returned(
                self.step,
                len(self._shadows) - 1,
                frame.instruction,
                ret.result,
                self.describer.describe(result),
            )
        )

    # ---- CUDA graphs ------------------------------------------------------------------------

    def storages_kept(self, index: int, reused: bool, result: Any) -> None:
        """The memory of captured graphs was asked for."""
        if self.observer is not None:
            value = self.describer.describe(result)
            self.observer(
                GraphStoragesKept(self.step, len(self._shadows) - 1, index, reused, value)
            )

    def graph_capture_started(self, key: tuple[int, tuple[int, ...]]) -> None:
        """A region is going to be captured."""
        self._recorded = 0
        if self.observer is not None:
            self.observer(GraphCaptureStarted(self.step, len(self._shadows) - 1, *key))

    def kernel_recorded(self, name: str) -> None:
        """The open capture has noted a kernel."""
        if self.observer is not None:
            depth = len(self._shadows) - 1
            self.observer(KernelRecorded(self.step, depth, name, self._recorded))
        self._recorded += 1

    def graph_captured(self, key: tuple[int, tuple[int, ...]], kernels: tuple[str, ...]) -> None:
        """A capture is complete."""
        if self.observer is not None:
            self.observer(GraphCaptured(self.step, len(self._shadows) - 1, *key, kernels))

    def graph_replayed(self, key: tuple[int, tuple[int, ...]], kernels: tuple[str, ...]) -> None:
        """A graph was launched."""
        if self.observer is not None:
            self.observer(GraphReplayed(self.step, len(self._shadows) - 1, *key, kernels))

    def _call(self, frame: Frame) -> tuple[Call, str]:
        """Return the Call that the frame is at, and the name of its callee."""
        executable, call = self._instruction(frame)
        assert isinstance(call, Call)
        return call, executable.func_table[call.func_idx].name

    def _instruction(self, frame: Frame) -> tuple[VMExecutable, Instruction]:
        executable = frame.function.executable
        assert executable is not None
        key = (executable, frame.instruction)
        found = self._decoded.get(key)
        if found is None:
            found = self._decoded[key] = executable.instruction(frame.instruction)
        return executable, found

    def edited(self, depth: int, register: int, value: Any) -> RegisterEdited:
        """Give a register another value while the run is stopped; return what that changed.

        The observer is not told: the event belongs before the instruction that it was told of last.
        """
        shadow = self._shadows[depth]
        frame = shadow.frame
        frame.registers[register] = value
        shadow.values[register] = described = self.describer.describe(value)
        self._note_owners(depth, register)
        changes = (RegisterChange(depth, register, described),)
        return RegisterEdited(self.step - 1, depth, frame.function.name, register, changes)

    # ---- registers and memory ---------------------------------------------------------------

    def _argument(self, arg: Arg, value: Any) -> Argument:
        if arg.kind == ArgKind.REGISTER and arg.value < VOID_REGISTER:
            return Argument("register", arg.value, self._shadows[-1].values[arg.value])
        described = self.describer.describe(value)
        if arg.kind == ArgKind.REGISTER:
            return Argument("vm" if arg.value == VM_REGISTER else "void", 0, described)
        return Argument(_SOURCES[arg.kind], arg.value, described)

    def _refresh(self, values: Sequence[Any]) -> tuple[RegisterChange, ...]:
        """Describe again what ``values`` give access to; return the registers that changed."""
        seers: set[tuple[int, int]] = set()
        for value in values:
            for owner in self.describer.owners(value):
                seers |= self._seers.get(owner, set())
        changes = []
        for depth, register in sorted(seers):
            shadow = self._shadows[depth]
            described = self.describer.describe(shadow.frame.registers[register])
            if described != shadow.values[register]:
                shadow.values[register] = described
                self._note_owners(depth, register)
                changes.append(RegisterChange(depth, register, described))
        return tuple(changes)

    def _note_owners(self, depth: int, register: int) -> None:
        shadow = self._shadows[depth]
        before = shadow.owners[register]
        after = self.describer.owners(shadow.frame.registers[register])
        for owner in before - after:
            self._forget(owner, depth, register)
        for owner in after - before:
            self._seers.setdefault(owner, set()).add((depth, register))
        shadow.owners[register] = after

    def _forget(self, owner: int, depth: int, register: int) -> None:
        seers = self._seers.get(owner)
        if seers is not None:
            seers.discard((depth, register))
            if not seers:
                del self._seers[owner]


def _error_words(error: BaseException) -> tuple[str, str]:
    return type(error).__name__, str(error)
