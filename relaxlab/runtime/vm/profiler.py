"""Where the time of one call goes: per kernel and per instruction.

TVM had a profiling machine and dropped it; this one runs the ordinary loop with a clock on its
hooks, so results and errors are those of a run without it. What it keeps is bounded by the size of
the program, not by the length of the run: counts and sums for each instruction, and a limited
number of spans for a timeline. Counterpart: TVM's ``VirtualMachine.profile`` and
``tvm.runtime.profiling.Report``.

Examples
--------
>>> from relaxlab.runtime.device import cpu
>>> from relaxlab.runtime.vm.bytecode import VMFuncInfo
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> from relaxlab.runtime.vm.virtual_machine import VirtualMachine
>>> identity = VMExecutable([VMFuncInfo(1, "f", 0, 1, 1, 1)], (), {}, [0], [2, 0])
>>> report = VirtualMachine(identity, cpu()).profile("f", 7)
>>> report.result, [(row.text, row.count) for row in report.instructions]
(7, [('ret   %0', 1)])
"""

from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from relaxlab.runtime.packed_func import PackedFunc
from relaxlab.runtime.storage import Storage
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.vm.builtin.table import BUILTINS
from relaxlab.runtime.vm.bytecode import Call
from relaxlab.runtime.vm.disassemble import instruction_text
from relaxlab.runtime.vm.execution import Execution
from relaxlab.runtime.vm.frame import Frame, LinkedFunction
from relaxlab.runtime.vm.instrument import Hooks
from relaxlab.runtime.vm.profile_report import (
    CallRow,
    InstructionRow,
    Report,
    Span,
)
from relaxlab.runtime.vm.run_loop import run_loop
from relaxlab.runtime.vm.watch import Watch

if TYPE_CHECKING:
    from relaxlab.runtime.vm.virtual_machine import VirtualMachine

__all__ = ["ProfiledExecution", "profile"]

MAX_SPANS: Final = 100_000


class _Row:
    """Sums for one instruction."""

    __slots__ = ("bytes", "callee", "count", "inclusive", "inside", "own")

    def __init__(self) -> None:
        self.count = 0
        self.own = 0
        self.inclusive = 0
        self.inside = 0
        self.bytes = 0
        self.callee = ""


class _Clock(Hooks):
    """The side calls of a profiled execution: what an observer and an instrument get, and times.

    The time of an instruction is the time from the end of the one before to its own end, so the
    sum over all instructions is the time of the run.
    """

    __slots__ = (
        "_entered",
        "_function",
        "_is_plain",
        "_last",
        "_open",
        "_pc",
        "_row",
        "_rows",
        "dropped_spans",
        "max_spans",
        "spans",
        "start",
    )

    def __init__(
        self,
        function: LinkedFunction,
        watch: Watch | None,
        instrument: PackedFunc | None,
        max_spans: int,
    ) -> None:
        super().__init__(watch, instrument)
        self._is_plain = instrument is None and (watch is None or watch.observer is None)
        self._rows: dict[LinkedFunction, dict[int, _Row]] = {}
        self._function = function
        self._pc = function.entry
        self._row = _Row()
        # calls of Relax functions that have not returned: their rows, and when they began
        self._entered: list[tuple[_Row, int]] = []
        self.spans: list[Span] = []
        self.dropped_spans = 0
        self.max_spans = max_spans
        self.start = self._last = perf_counter_ns()
        self._open: list[tuple[str, int]] = [(function.name, self.start)]

    # ---- the points of the loop -------------------------------------------------------------

    def call(self, frame: Frame, target: PackedFunc, arguments: Sequence[Any]) -> Any:
        """Call a host function and note how long it took."""
        row = self._begin(frame)
        if self._is_plain:
            begun = perf_counter_ns()
            result = target(*arguments)
            self._ran(row, arguments, result, begun, perf_counter_ns())
            return result

        def timed(*args: Any) -> Any:
            begun = perf_counter_ns()
            result = target(*args)
            self._ran(row, args, result, begun, perf_counter_ns())
            return result

        # an instrument is shown the function itself
        timed.__wrapped__ = getattr(target, "__wrapped__", target)  # type: ignore[attr-defined]
        return super().call(frame, timed, arguments)

    def entering(
        self, frame: Frame, target: LinkedFunction | PackedFunc, arguments: Sequence[Any]
    ) -> Sequence[Any] | None:
        """Note a call that will push a frame."""
        row = self._begin(frame)
        begun = self._last
        given = super().entering(frame, target, arguments)
        if given is not None:
            self._entered.append((row, begun))
        return given

    def entered(self, frame: Frame) -> None:
        """Note a new frame."""
        now = self._lap()
        self._function, self._pc = frame.function, frame.pc
        self._open.append((frame.function.name, now))
        super().entered(frame)

    def returned(self, frame: Frame, result: Any) -> None:
        """Note a Ret."""
        self._begin(frame)
        name, begun = self._open.pop()
        self._span(name, "function", begun, perf_counter_ns(), len(self._open))
        super().returned(frame, result)

    def left(self, result: Any) -> None:
        """Note that a call of a Relax function is over."""
        row, begun = self._entered.pop()
        row.inclusive += perf_counter_ns() - begun
        super().left(result)

    def finished(
        self, frame: Frame, result: Any, slot: int | None, pc: int, skipped: bool = False
    ) -> None:
        """Note that a call is over and its result written."""
        super().finished(frame, result, slot, pc, skipped)
        self._lap()
        self._function, self._pc = frame.function, pc

    def branched(self, frame: Frame, slot: int, condition: int, target: int) -> None:
        """Note an If."""
        self._row = row = self._row_at(self._function, self._pc)
        row.count += 1
        super().branched(frame, slot, condition, target)
        self._pc = self._pc + 1 if condition else target
        self._lap()

    def jumped(self, frame: Frame, target: int) -> None:
        """Note a Goto."""
        self._row = row = self._row_at(self._function, self._pc)
        row.count += 1
        super().jumped(frame, target)
        self._pc = target
        self._lap()

    # ---- sums -------------------------------------------------------------------------------

    def _begin(self, frame: Frame) -> _Row:
        self._row = row = self._row_at(frame.function, frame.pc)
        row.count += 1
        return row

    def _row_at(self, function: LinkedFunction, pc: int) -> _Row:
        rows = self._rows.get(function)
        if rows is None:
            rows = self._rows[function] = {}
        row = rows.get(pc)
        if row is None:
            row = rows[pc] = _Row()
            executable = function.executable
            if executable is not None and 0 <= pc < function.length:
                instruction = executable.instruction(function.base + pc)
                if isinstance(instruction, Call):
                    row.callee = executable.func_table[instruction.func_idx].name
        return row

    def _lap(self) -> int:
        """Add the time since the last lap to the current instruction."""
        now = perf_counter_ns()
        self._row.own += now - self._last
        self._last = now
        return now

    def _ran(
        self, row: _Row, arguments: Sequence[Any], result: Any, begun: int, ended: int
    ) -> None:
        row.inside += ended - begun
        given = result.nbytes if type(result) is Storage else _bytes_of(result)
        row.bytes += sum(map(_bytes_of, arguments)) + given
        self._span(row.callee, "call", begun, ended, len(self._open))

    def _span(self, name: str, category: str, begun: int, ended: int, depth: int) -> None:
        if len(self.spans) < self.max_spans:
            start = (begun - self.start) / 1e9
            self.spans.append(Span(name, category, start, (ended - begun) / 1e9, depth))
        else:
            self.dropped_spans += 1

    def finish(self) -> int:
        """End the last instruction; return how long everything took, in nanoseconds."""
        return self._lap() - self.start

    # ---- the outcome ------------------------------------------------------------------------

    def instructions(self) -> list[InstructionRow]:
        """Return a row for every instruction that ran, in order of the program."""
        rows = []
        for function, by_pc in self._rows.items():
            executable = function.executable
            for pc, row in by_pc.items():
                text = ""
                if executable is not None and 0 <= pc < function.length:
                    instruction = executable.instruction(function.base + pc)
                    text = instruction_text(executable, instruction)
                own = row.own / 1e9
                inclusive = row.inclusive / 1e9 if row.inclusive else own
                rows.append(
                    InstructionRow(
                        function.name,
                        function.base + pc,
                        text,
                        row.count,
                        own,
                        inclusive,
                        row.bytes,
                    )
                )
        return sorted(rows, key=lambda row: (row.pc, row.function))

    def calls(self, kinds: "dict[str, str]") -> list[CallRow]:
        """Return a row for every host function that ran, the longest first."""
        by_name: dict[str, CallRow] = {}
        for by_pc in self._rows.values():
            for row in by_pc.values():
                kind = kinds.get(row.callee)
                if kind is None:
                    continue
                before = by_name.get(row.callee, CallRow(row.callee, kind, 0, 0.0, 0))
                by_name[row.callee] = CallRow(
                    row.callee,
                    kind,
                    before.count + row.count,
                    before.seconds + row.inside / 1e9,
                    before.bytes + row.bytes,
                )
        return sorted(by_name.values(), key=lambda row: -row.seconds)


class ProfiledExecution(Execution):
    """An execution with a clock.

    Parameters
    ----------
    machine, function, arguments
        As for :class:`Execution`.
    max_spans
        How many spans to keep for the timeline.
    """

    def __init__(
        self,
        machine: "VirtualMachine",
        function: LinkedFunction,
        arguments: Sequence[Any],
        max_spans: int = MAX_SPANS,
    ) -> None:
        super().__init__(machine, function, arguments)
        self.clock = _Clock(function, self.watch, machine.instrument, max_spans)
        self._loop = run_loop(machine, self.frames, self.watch, self.clock)


def profile(
    machine: "VirtualMachine",
    function: LinkedFunction,
    arguments: Sequence[Any],
    max_spans: int = MAX_SPANS,
) -> Report:
    """Run a function once with a clock and return the report.

    Parameters
    ----------
    machine
        What runs it. Its observer and its instrument see the run as any other.
    function, arguments
        What runs.
    max_spans
        How many spans to keep for the timeline; the sums are of the whole run in any case.

    Raises
    ------
    Exception
        What the run raises, as without a profiler.

    Notes
    -----
    What a host function runs by calling the machine again is in the time of that function.
    """
    run = ProfiledExecution(machine, function, arguments, max_spans)
    result = run.run()
    clock = run.clock
    seconds = clock.finish() / 1e9
    devices = [f"{device.type}{device.index}" for device in machine.devices]
    return Report(
        result=result,
        seconds=seconds,
        kernels=tuple(clock.calls(_kinds(machine))),
        instructions=tuple(clock.instructions()),
        spans=tuple(clock.spans),
        dropped_spans=clock.dropped_spans,
        device=devices[0] if devices else "cpu0",
        configuration={"Function": function.name, "Executor": "VM"},
    )


def _kinds(machine: "VirtualMachine") -> dict[str, str]:
    """Return what each host function of a program is, by name."""
    kinds = {}
    program = machine.program
    for info, value in zip(program.executable.func_table, program.pool, strict=True):
        if not callable(value):
            continue
        if info.name in BUILTINS:
            kinds[info.name] = "builtin"
        else:
            libraries = program.executable.imports
            found = any(library.get_function(info.name) is not None for library in libraries)
            kinds[info.name] = "kernel" if found else "host"
    return kinds


def _bytes_of(value: Any) -> int:
    """Return the bytes of a tensor, or of those in a tuple; deeper ones do not count.

    A tuple that grows by one level a step would cost the square of its depth.
    """
    if type(value) is Tensor:
        return value.array.nbytes
    if isinstance(value, list):
        return sum(item.array.nbytes for item in value if type(item) is Tensor)
    return 0
