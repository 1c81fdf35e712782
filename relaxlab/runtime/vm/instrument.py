"""What the loop tells and asks on the side: the observer's watch, and TVM's instrument.

The loop calls one object at fixed points, and only if somebody attached something. An observer
is told and cannot interfere. An instrument is TVM's older tool: a function that is called before
and after every Call and may prevent it. Counterpart: ``VirtualMachine.set_instrument``.

Examples
--------
>>> VMInstrumentReturnKind.SKIP_RUN == 1
True
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.packed_func import PackedFunc
from relaxlab.runtime.vm.bytecode import Call
from relaxlab.runtime.vm.frame import Closure, Frame, LinkedFunction
from relaxlab.runtime.vm.watch import Watch

__all__ = ["Hooks", "VMInstrumentReturnKind"]


class VMInstrumentReturnKind(IntEnum):
    """What an instrument may return before a call."""

    NO_OP = 0
    SKIP_RUN = 1


class Hooks:
    """The side calls of one execution.

    Parameters
    ----------
    watch
        Who writes events, or None.
    instrument
        ``instrument(function, name, before, result, *arguments)``, or None. If it returns 1 (or
        True) before a call, the call is skipped and its result is None. As in TVM, dtypes among
        the arguments become their spellings, for the instrument and for the callee.
    """

    __slots__ = ("_arguments", "_instrument", "_pending", "_skipped", "_watch")

    def __init__(self, watch: Watch | None, instrument: PackedFunc | None) -> None:
        self._watch = watch if watch is not None and watch.observer is not None else None
        self._instrument = instrument
        self._arguments: Sequence[Any] = ()
        self._skipped = False
        # functions that were entered and have not returned, with what the instrument saw
        self._pending: list[tuple[Any, str, Sequence[Any]]] = []

    def call(self, frame: Frame, target: PackedFunc, arguments: Sequence[Any]) -> Any:
        """Call a host function, unless the instrument says no; return its result."""
        if self._watch is not None:
            self._watch.call_started(frame, arguments, "packed")
        if self._instrument is None:
            self._arguments = arguments
            return target(*arguments)
        value, name = getattr(target, "__wrapped__", target), _callee_name(frame)
        arguments = _spelled(arguments)
        self._arguments = arguments
        self._skipped = self._skips(value, name, arguments)
        if self._skipped:
            return None
        result = target(*arguments)
        self._instrument(value, name, False, result, *arguments)
        return result

    def entering(
        self, frame: Frame, target: LinkedFunction | PackedFunc, arguments: Sequence[Any]
    ) -> Sequence[Any] | None:
        """Announce a call that will push a frame; return its arguments, or None to skip it."""
        if self._watch is not None:
            self._watch.call_started(frame, arguments, "vm")
        if self._instrument is None:
            self._arguments = arguments
            return arguments
        value = Closure(target) if isinstance(target, LinkedFunction) else target
        name = _callee_name(frame)
        arguments = _spelled(arguments)
        self._arguments = arguments
        if self._skips(value, name, arguments):
            return None
        self._pending.append((value, name, arguments))
        return arguments

    def entered(self, frame: Frame) -> None:
        """Take note of a new frame."""
        if self._watch is not None:
            self._watch.pushed(frame)

    def returned(self, frame: Frame, result: Any) -> None:
        """Take note of a Ret, before its frame is popped."""
        if self._watch is not None:
            self._watch.returned(frame, result)
            self._watch.popped(frame)
        self._arguments = ()

    def left(self, result: Any) -> None:
        """Tell the instrument that a call announced by ``entering`` is over."""
        if self._instrument is not None:
            value, name, arguments = self._pending.pop()
            self._instrument(value, name, False, result, *arguments)

    def finished(
        self, frame: Frame, result: Any, slot: int | None, pc: int, skipped: bool = False
    ) -> None:
        """Take note that a call is over and its result written; ``pc`` comes next."""
        if self._watch is not None:
            skipped = skipped or self._skipped
            self._watch.call_finished(frame, self._arguments, result, slot, pc, skipped)
        self._arguments, self._skipped = (), False

    def branched(self, frame: Frame, slot: int, condition: int, target: int) -> None:
        """Take note of an If, which goes to ``target`` if the condition is 0."""
        if self._watch is not None:
            self._watch.branched(frame, slot, condition, frame.pc + 1 if condition else target)

    def jumped(self, frame: Frame, target: int) -> None:
        """Take note of a Goto."""
        if self._watch is not None:
            self._watch.jumped(frame, target)

    def _skips(self, value: Any, name: str, arguments: Sequence[Any]) -> bool:
        assert self._instrument is not None
        answer = self._instrument(value, name, True, None, *arguments)
        return isinstance(answer, int) and answer == VMInstrumentReturnKind.SKIP_RUN


def _spelled(arguments: Sequence[Any]) -> Sequence[Any]:
    return [str(value) if isinstance(value, DataType) else value for value in arguments]


def _callee_name(frame: Frame) -> str:
    executable = frame.function.executable
    assert executable is not None
    call = executable.instruction(frame.instruction)
    assert isinstance(call, Call)
    return executable.func_table[call.func_idx].name
