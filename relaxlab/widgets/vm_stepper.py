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

import contextlib
import json
import os
from pathlib import Path
from typing import Any, ClassVar, Self

import traitlets

from relaxlab.runtime.device import cpu
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.vm import VirtualMachine, VMExecutable
from relaxlab.trace import Breakpoint, DebugSession, Watch
from relaxlab.trace.perfetto import steps_trace
from relaxlab.widgets.bundle import bundle, stylesheet
from relaxlab.widgets.stepper_tables import display_values, sources_of
from relaxlab.widgets.tensor_picture import TensorPicture
from relaxlab.widgets.view import STATIC, View

__all__ = ["VMStepper"]


class VMStepper(View):
    """A view of one call of a Relax function.

    The function runs to its end at once; the view and the methods below then move through the
    recording. A program that fails is shown up to its failure, and one that is interrupted
    (Ctrl-C, or the kernel's stop button) up to there.

    Parameters
    ----------
    program
        A session to show as it is, a machine, or an executable (which then runs on the CPU).
    function
        Name of the function to call; not with a session.
    args
        Its arguments.
    limit
        How many of the last steps to keep at least; see :class:`relaxlab.trace.Recorder`. A view
        says when steps were dropped.

    Attributes
    ----------
    position : int
        Number of the step that runs next; changing it moves the view.
    breakpoints : list of int
        Instructions that stop Over, Out, Continue and Reverse; sorted, without repetition.
    notes : list of [int, str]
        Remarks on steps; the page can add some, and an export keeps them.
    inside : bool
        Whether the phases of the instruction that runs next are shown.
    skip_builtins : bool
        Whether Step and Back pass by calls of the machine's own functions.
    session : DebugSession
        The recorded run; ``stepper.session.value(register)`` gives whole tensors. Move the stepper
        rather than the session: the view follows the stepper.

    Raises
    ------
    TypeError
        If a function is given with a session, or none without, or ``program`` is something else.
    """

    _esm = bundle(STATIC / "vm_stepper.js")
    _css = stylesheet(STATIC / "view.css", STATIC / "vm_stepper.css")
    _frame_height: ClassVar[int] = 580
    _exported: ClassVar[tuple[str, ...]] = (
        *("trace", "position", "visits", "breakpoints", "halts", "displays", "logs", "notes"),
        *("sources", "edited", "pictures", "inside", "skip_builtins"),
    )

    trace = traitlets.Dict().tag(sync=True)
    position = traitlets.Int().tag(sync=True)
    visits = traitlets.Dict().tag(sync=True)
    breakpoints = traitlets.List(traitlets.Int()).tag(sync=True)
    halts: traitlets.List[Any] = traitlets.List().tag(sync=True)
    displays: traitlets.List[Any] = traitlets.List().tag(sync=True)
    logs: traitlets.List[Any] = traitlets.List().tag(sync=True)
    notes: traitlets.List[Any] = traitlets.List().tag(sync=True)
    sources = traitlets.Dict().tag(sync=True)
    edited: traitlets.List[Any] = traitlets.List().tag(sync=True)
    pictures: traitlets.List[Any] = traitlets.List().tag(sync=True)
    inside = traitlets.Bool(False).tag(sync=True)
    skip_builtins = traitlets.Bool(False).tag(sync=True)

    def __init__(
        self,
        program: DebugSession | VirtualMachine | VMExecutable,
        function: str | None = None,
        *args: Any,
        limit: int = 100_000,
    ) -> None:
        self.session = _session(program, function, args, limit)
        with contextlib.suppress(KeyboardInterrupt):
            self.session.record()
        # after an interruption the recording must not grow: the view has all of it
        self.session.close()
        first = self.session.timeline.first_step
        if self.session.position < first:
            self.session.goto(first)
        super().__init__(
            trace=self.session.trace(),
            position=self.session.position,
            visits=self._visits(),
            breakpoints=sorted(self._plain()),
            halts=self._halts(),
            displays=display_values(self.session),
            logs=self._logs(),
            notes=[list(note) for note in self.session.notes],
            sources=sources_of(self.session),
            edited=[str(edit) for edit in self.session.edits],
            inside=self.session.inside,
            skip_builtins=self.session.skip_builtins,
        )

    # ---- the view and the session tell each other ---------------------------------------------

    @traitlets.validate("position")
    def _recorded(self, proposal: Any) -> int:
        position: int = proposal["value"]
        timeline = self.session.timeline
        if not timeline.first_step <= position <= timeline.end:
            raise traitlets.TraitError(
                f"no step {position}: the recording has {timeline.first_step} to {timeline.end}"
            )
        return position

    @traitlets.validate("breakpoints")
    def _instructions(self, proposal: Any) -> list[int]:
        wanted = sorted(set(proposal["value"]))
        executable = self.session.vm.executable
        for pc in wanted:
            if executable.function_at(pc) is None:
                last = executable.num_instructions - 1
                raise traitlets.TraitError(f"no instruction {pc}: the executable has 0 to {last}")
        return wanted

    @traitlets.observe("position", "visits")
    def _follow(self, change: Any) -> None:
        """Go where the page went, by the same way: changes are marked against what it showed."""
        session = self.session
        count, last = self.visits["count"], self.visits["last"]
        unseen = max(0, min(count - session.visited, len(last)))
        for position, selected in last[len(last) - unseen :]:
            session.goto(position)
            if selected >= 0:
                session.select(selected)
        session.visited = max(session.visited, count)
        if session.position != self.position:
            session.goto(self.position)
        self._tell()

    @traitlets.observe("breakpoints")
    def _take_breakpoints(self, change: Any) -> None:
        wanted = set(self.breakpoints)
        plain = self._plain()
        for pc, numbers in plain.items():
            if pc not in wanted:
                for number in numbers:
                    self.session.remove(number)
        for pc in sorted(wanted - plain.keys()):
            self.session.break_at(pc=pc)

    @traitlets.validate("notes")
    def _on_steps(self, proposal: Any) -> list[list[Any]]:
        notes = []
        for note in proposal["value"]:
            match note:
                case [int() as step, str() as text]:
                    self._recorded({"value": step})
                    notes.append([step, text])
                case _:
                    raise traitlets.TraitError(f"a note is [step, text], got {note!r}")
        return sorted(notes, key=lambda note: note[0])

    @traitlets.observe("notes")
    def _take_notes(self, change: Any) -> None:
        self.session.notes[:] = [(step, text) for step, text in self.notes]

    @traitlets.observe("inside", "skip_builtins")
    def _take_switches(self, change: Any) -> None:
        self.session.inside, self.session.skip_builtins = self.inside, self.skip_builtins

    def _tell(self) -> None:
        """Show in the view what the session shows."""
        with self.hold_sync(), self.hold_trait_notifications():
            self.visits = self._visits()
            self.position = self.session.position

    def _tell_stops(self) -> None:
        with self.hold_sync(), self.hold_trait_notifications():
            self.breakpoints = sorted(self._plain())
            self.halts = self._halts()
            self.logs = self._logs()

    def _visits(self) -> dict[str, Any]:
        session = self.session
        last = [
            [visit.position, -1 if visit.selected is None else visit.selected]
            for visit in session.visits
            if visit.position >= session.timeline.first_step
        ]
        return {"count": session.visited, "last": last}

    def _plain(self) -> dict[int, list[int]]:
        """Return the numbers of the breakpoints that always stop, by instruction."""
        plain: dict[int, list[int]] = {}
        for number, point in self.session.breakpoints.items():
            if _always_stops(point):
                plain.setdefault(point.pc, []).append(number)
        return plain

    def _halts(self) -> list[list[Any]]:
        """Return the stops that the page cannot find alone, and where they are."""
        session, timeline = self.session, self.session.timeline
        halts: list[list[Any]] = []
        for point in session.breakpoints.values():
            if point.enabled and not _always_stops(point):
                where = [position for position in point.hits if point.stops(position)]
                halts.append([str(point), point.pc, where, where])  # a log point stops nowhere
        for watch in session.watches.values():
            steps = range(timeline.first_step, timeline.end)
            fired = [step for step in steps if watch.fires(timeline, step)]
            halts.append([str(watch), -1, [step + 1 for step in fired], fired])
        return halts

    def _logs(self) -> list[list[Any]]:
        """Return every line of every log point, by step."""
        points = [one for one in self.session.breakpoints.values() if one.enabled]
        lines = [
            (step, one.number, line) for one in points for step, line in sorted(one.logged.items())
        ]
        return [[step, line] for step, _, line in sorted(lines)]

    # ---- moving from Python, as the buttons do ------------------------------------------------

    def _move(self, command: str, *args: Any) -> Self:
        getattr(self.session, command)(*args)
        self._tell()
        return self

    def step(self, times: int = 1) -> Self:
        """Go one instruction forward (or more), into calls of Relax functions."""
        return self._move("step", times)

    def back(self, times: int = 1) -> Self:
        """Go one instruction back (or more)."""
        return self._move("back", times)

    def over(self, times: int = 1) -> Self:
        """Go forward past a whole call."""
        return self._move("over", times)

    def out(self) -> Self:
        """Go forward until the current function has returned."""
        return self._move("out")

    def continue_(self) -> Self:
        """Go forward to the next breakpoint or the end."""
        return self._move("continue_")

    def reverse_continue(self) -> Self:
        """Go back to the last breakpoint or the start."""
        return self._move("reverse_continue")

    def goto(self, position: int) -> Self:
        """Go to a step; one that is not recorded is an ``IndexError``."""
        return self._move("goto", position)

    def find(self, text: str, *, backwards: bool = False) -> Self:
        """Go to the next step whose instruction or sentence has a text.

        See :meth:`relaxlab.trace.DebugSession.find`; where there is none, it is a ``ValueError``.
        """
        self.session.find(text, backwards=backwards)
        self._tell()
        return self

    def select(self, depth: int) -> Self:
        """Look at frame number ``depth``, counted from the bottom; moving selects the top again."""
        return self._move("select", depth)

    # ---- stopping -----------------------------------------------------------------------------

    def break_at(
        self,
        function: str | None = None,
        pc: int | None = None,
        *,
        condition: str | None = None,
        ignore: int = 0,
    ) -> Breakpoint:
        """Set a breakpoint, as :meth:`relaxlab.trace.DebugSession.break_at` does."""
        made = self.session.break_at(function, pc, condition=condition, ignore=ignore)
        self._tell_stops()
        return made

    def watch(self, register: int, depth: int | None = None) -> Watch:
        """Stop when a register of the selected frame (or of frame ``depth``) changes."""
        made = self.session.watch(register, depth)
        self._tell_stops()
        return made

    def log_at(
        self,
        text: str,
        function: str | None = None,
        pc: int | None = None,
        *,
        condition: str | None = None,
    ) -> Breakpoint:
        """Write a line wherever an instruction is reached, instead of stopping.

        See :meth:`relaxlab.trace.DebugSession.log_at`: ``stepper.log_at("n is {n}", "main")``.
        """
        made = self.session.log_at(text, function, pc, condition=condition)
        self._tell_stops()
        return made

    def remove(self, number: int) -> None:
        """Remove a breakpoint or a watch; an unknown number is a ``KeyError``."""
        self.session.remove(number)
        self._tell_stops()

    # ---- looking closer -----------------------------------------------------------------------

    def display(self, *texts: str) -> Self:
        """Show the values of expressions at every step, such as ``"r1 + 1"`` or ``"x.max"``."""
        for text in texts:
            self.session.display(text)
        self.displays = display_values(self.session)
        return self

    def hide(self, *texts: str) -> Self:
        """Stop showing expressions; all of them if none is named."""
        kept = [one for one in self.session.displays if texts and one.text not in texts]
        self.session.displays[:] = kept
        self.displays = display_values(self.session)
        return self

    def note(self, text: str, step: int | None = None) -> Self:
        """Write a remark on a step, by default on the current one."""
        self.notes = [*self.notes, [self.position if step is None else step, text]]
        return self

    def picture(self, register: int, depth: int | None = None) -> TensorPicture:
        """Return a picture of a whole tensor as it is at this step; the view shows it too.

        The recording holds the first and the last elements only, so the program is run a second
        time up to here.

        Raises
        ------
        TypeError
            If the register holds no tensor.
        """
        value = self.session.value(register, depth)
        if not isinstance(value, Tensor):
            raise TypeError(f"expected a tensor in %{register}, it holds {type(value).__name__}")
        made = TensorPicture(value)
        at = self.session.depth if depth is None else depth
        key = [self.position, at, register]
        self.pictures = [*(one for one in self.pictures if one[:3] != key), [*key, made.grid()]]
        return made

    def fork(self, register: int, value: Any, depth: int | None = None) -> "VMStepper":
        """Return another view: what would happen if a register held another value here.

        This view stays as it is. The other one is marked as edited, in words, and stands at the
        same step; see :meth:`relaxlab.trace.DebugSession.fork`.
        """
        return VMStepper(self.session.fork(register, value, depth))

    def to_perfetto(self, path: str | os.PathLike[str]) -> Path:
        """Write the steps as a Chrome trace, a microsecond each; return where it is."""
        code = self.trace["code"]
        texts = dict(zip(code["pc"], (" ".join(one.split()) for one in code["text"]), strict=True))
        trace = steps_trace(self.session.timeline, lambda pc: str(texts[pc]))
        target = Path(path)
        target.write_text(json.dumps(trace), encoding="utf-8")
        return target

    # ---- words --------------------------------------------------------------------------------

    @property
    def heading(self) -> str:
        """What an exported page is called."""
        edits = self.session.edits
        edited = f", edited at step {edits[-1].position}" if edits else ""
        return f"{self.session.function}: {self.session.timeline.end} steps{edited}"

    def __str__(self) -> str:
        """Return what the view shows, as text."""
        return str(self.session)

    def __repr__(self) -> str:
        """Return function and position."""
        session = self.session
        edited = ", edited" if session.edits else ""
        where = f"step {session.position} of {session.timeline.end}"
        return f"VMStepper({session.function}, {where}{edited})"


def _session(program: Any, function: str | None, args: tuple[Any, ...], limit: int) -> DebugSession:
    match program:
        case DebugSession():
            if function is not None or args:
                raise TypeError("a session already has its function: give VMStepper(session) only")
            return program
        case VMExecutable() | VirtualMachine():
            if not isinstance(function, str):
                raise TypeError(
                    "VMStepper(program, function, *args) needs the function's name, "
                    f"got {function!r}"
                )
            machine = (
                VirtualMachine(program, cpu()) if isinstance(program, VMExecutable) else program
            )
            return DebugSession(machine, function, *args, limit=limit)
        case _:
            raise TypeError(
                "expected a VMExecutable, a VirtualMachine or a DebugSession, "
                f"got {type(program).__name__}"
            )


def _always_stops(point: Breakpoint) -> bool:
    return point.enabled and point.condition is None and not point.ignore and point.log is None
