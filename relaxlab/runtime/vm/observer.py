"""What the machine tells whoever watches it: one event for everything that changes its state.

The machine's state is a stack of frames; a frame is a function, a program counter and registers.
The events below are enough to rebuild it. Folding every event up to ``InstructionStarted`` with
``step=n`` gives exactly what ``Execution.snapshot()`` returns at that moment:

==================  =========================================================================
event               what it does to the folded state
==================  =========================================================================
RunStarted          apply ``changes``
FramePushed         push a frame; its number from the bottom is ``depth``
InstructionStarted  set ``step``, and ``pc`` of frame ``depth``
CallStarted         nothing
CallFinished        apply ``changes``, then set ``pc`` of frame ``depth`` to ``next_pc``
Jumped, Branched    set ``pc`` of frame ``depth`` to ``next_pc``
GraphStoragesKept,  nothing (they come between CallStarted and CallFinished of the builtin)
GraphCaptureStarted,
KernelRecorded,
GraphCaptured,
GraphReplayed
Returned            nothing (the value travels in the caller's CallFinished)
FramePopped         pop the top frame, which is number ``depth``
ErrorRaised         nothing (FramePopped follows for each frame that is given up)
RunFinished,        nothing
RunFailed
==================  =========================================================================

To apply a change is to set one register of one frame. A call may write memory that several
registers see; ``changes`` names them all, so a folded picture cannot show stale contents.
(Memory that a host function changes without having been given it is outside this promise.)

A host function may call back into the machine: that run's events come between CallStarted and
CallFinished of the call, with larger depths. Observers must not change what they are told about.
There is no TVM counterpart; ``set_instrument`` is a separate thing, which may skip calls.

Examples
--------
>>> events: list[Event] = []
>>> observer: Observer = events.append
>>> observer(Jumped(step=4, depth=0, pc=5, next_pc=2))
>>> events[0].next_pc
2
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from relaxlab.runtime.describe import (
    FunctionValue,
    ObjectValue,
    ScalarValue,
    StorageValue,
    TensorValue,
    TupleValue,
    Value,
)

__all__ = [
    "Argument",
    "Branched",
    "CallFinished",
    "CallStarted",
    "ErrorRaised",
    "Event",
    "FramePopped",
    "FramePushed",
    "FrameState",
    "FunctionValue",
    "GraphCaptureStarted",
    "GraphCaptured",
    "GraphReplayed",
    "GraphStoragesKept",
    "InstructionStarted",
    "Jumped",
    "KernelRecorded",
    "MachineState",
    "ObjectValue",
    "Observer",
    "RegisterChange",
    "RegisterEdited",
    "Returned",
    "RunFailed",
    "RunFinished",
    "RunStarted",
    "ScalarValue",
    "StorageValue",
    "TensorValue",
    "TupleValue",
    "Value",
]


# ---- the state ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FrameState:
    """One frame: where it is, and what its registers hold.

    Attributes
    ----------
    function
        Name of the function the frame belongs to.
    pc
        Index (in the whole executable) of the instruction it runs next; for a frame that waits
        for a callee, of the Call.
    return_register
        Register of the frame below that receives the result; None if it is dropped, or if the
        frame was entered from the host.
    registers
        One description per register; a register that was never written is None (the value).
    """

    function: str
    pc: int
    return_register: int | None
    registers: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class MachineState:
    """All frames, outermost first, and how many instructions were begun before this moment."""

    step: int
    frames: tuple[FrameState, ...]


@dataclass(frozen=True, slots=True)
class RegisterChange:
    """Register ``register`` of frame ``depth`` now holds (or shows) ``value``."""

    depth: int
    register: int
    value: Value


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a call: what the instruction names, and the value it had.

    ``source`` and ``index`` are the decoded word: a register number, an immediate value, an
    index into the constant pool or the function table; index is 0 for ``vm`` and ``void``.
    """

    source: Literal["register", "immediate", "constant", "function", "vm", "void"]
    index: int
    value: Value


# ---- events ---------------------------------------------------------------------------------
# Common fields: ``step`` counts instructions of the whole run (nested runs too) from 0 and is
# that of the instruction being executed; ``depth`` is the number of the frame concerned, from 0;
# ``pc`` is an instruction index in the whole executable.


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The host called a function of the machine; its frame will be number ``depth``."""

    step: int
    depth: int
    function: str
    arguments: tuple[Value, ...]
    changes: tuple[RegisterChange, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisterEdited:
    """Somebody who debugs gave registers other values: ``function`` is that of frame ``depth``.

    ``step`` is the last one that ran before, -1 when none did. No program makes this event.
    """

    step: int
    depth: int
    function: str
    register: int
    changes: tuple[RegisterChange, ...]


@dataclass(frozen=True, slots=True)
class FramePushed:
    """A function was entered; parameters come first in ``registers``."""

    step: int
    depth: int
    function: str
    pc: int
    registers: tuple[Value, ...]
    return_register: int | None


@dataclass(frozen=True, slots=True)
class InstructionStarted:
    """Instruction ``pc`` is about to run, as number ``step`` of the run."""

    step: int
    depth: int
    function: str
    pc: int


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The arguments of a Call were read; the callee runs next.

    ``callee_kind`` is ``"packed"`` for a host function and ``"vm"`` for a Relax function, which
    gets a frame. ``callee`` is the name in the function table; for ``vm.builtin.invoke_closure``
    of a Relax closure it is that builtin's name and the kind is ``"vm"``. ``destination`` is
    None when the result is dropped.
    """

    step: int
    depth: int
    pc: int
    callee: str
    callee_kind: Literal["packed", "vm"]
    arguments: tuple[Argument, ...]
    destination: int | None


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A Call is over: its result, and every register that changed.

    For a Relax function this comes after the callee's FramePopped, with the ``step`` of the
    callee's Ret. ``skipped`` says that an instrument prevented the call.
    """

    step: int
    depth: int
    pc: int
    callee: str
    result: Value
    destination: int | None
    changes: tuple[RegisterChange, ...]
    next_pc: int
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class Jumped:
    """A Goto was taken."""

    step: int
    depth: int
    pc: int
    next_pc: int


@dataclass(frozen=True, slots=True)
class Branched:
    """An If was decided: ``taken`` means that the condition held."""

    step: int
    depth: int
    pc: int
    register: int
    condition: Value
    taken: bool
    next_pc: int


@dataclass(frozen=True, slots=True)
class Returned:
    """A Ret read its value; the frame is popped next. ``register`` may be ``%void`` or ``%vm``."""

    step: int
    depth: int
    pc: int
    register: int
    value: Value


@dataclass(frozen=True, slots=True)
class FramePopped:
    """A frame was left: by a Ret, or because an error passes through it (``unwound``)."""

    step: int
    depth: int
    function: str
    unwound: bool = False


@dataclass(frozen=True, slots=True)
class ErrorRaised:
    """Instruction ``pc`` failed."""

    step: int
    depth: int
    function: str
    pc: int
    error_type: str
    message: str


@dataclass(frozen=True, slots=True)
class GraphStoragesKept:
    """Memory of captured graphs was asked for; it is allocated once (``reused`` is false then)."""

    step: int
    depth: int
    index: int
    reused: bool
    value: Value


@dataclass(frozen=True, slots=True)
class GraphCaptureStarted:
    """A region was run once and is run again, now into a capture: nothing of it executes.

    ``index`` and ``sizes`` are the key. If GraphCaptured does not follow, the capture was
    abandoned: the region did something that a graph cannot hold, and the call fails.
    """

    step: int
    depth: int
    index: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KernelRecorded:
    """The open capture noted a kernel, as number ``position`` of its graph."""

    step: int
    depth: int
    kernel: str
    position: int


@dataclass(frozen=True, slots=True)
class GraphCaptured:
    """A capture is complete: the kernels of the graph, in order. It was not launched."""

    step: int
    depth: int
    index: int
    sizes: tuple[int, ...]
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GraphReplayed:
    """A graph was launched: all its kernels ran, as one launch."""

    step: int
    depth: int
    index: int
    sizes: tuple[int, ...]
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run that began with RunStarted of the same depth returned ``result`` to the host."""

    step: int
    depth: int
    function: str
    result: Value


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run that began with RunStarted of the same depth raised; its frames are gone."""

    step: int
    depth: int
    function: str
    error_type: str
    message: str


Event = (
    RunStarted
    | RegisterEdited
    | FramePushed
    | InstructionStarted
    | CallStarted
    | CallFinished
    | Jumped
    | Branched
    | Returned
    | FramePopped
    | ErrorRaised
    | GraphStoragesKept
    | GraphCaptureStarted
    | KernelRecorded
    | GraphCaptured
    | GraphReplayed
    | RunFinished
    | RunFailed
)


class Observer(Protocol):
    """Whoever is told; ``list.append`` is one. It must not change what it is told about."""

    def __call__(self, event: Event, /) -> object:
        """Take note of ``event``."""
