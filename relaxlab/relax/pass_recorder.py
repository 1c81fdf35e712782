"""Note what every pass did: what changed, how long it took, the module before and after.

A recorder is an instrument. It keeps references to modules, which nobody changes, so recording
costs little; texts are made when asked for. What it tells about a pass while it runs are events;
:func:`fold_passes` makes records of them, the same that :meth:`PassRecorder.snapshot` reads off
the recorder itself. ``print(recorder)`` is a table, :meth:`PassRecorder.diff` shows one pass.
There is no TVM counterpart.

Examples
--------
>>> from relaxlab.ir import IRModule
>>> from relaxlab.relax import transform
>>> recorder = PassRecorder()
>>> with recorder.recording():
...     mod = transform.LegalizeOps()(IRModule())
>>> recorder.passes[0].name, recorder.passes[0].change
('LegalizeOps', 'same')
"""

import difflib
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, assert_never

from relaxlab.ir import IRModule, PassContext, PassInfo, PassInstrument
from relaxlab.relax.expr import Function, If, SeqExpr, VarBinding

__all__ = [
    "Change",
    "ModuleSize",
    "PassEvent",
    "PassFailed",
    "PassFinished",
    "PassRecord",
    "PassRecorder",
    "PassStarted",
    "fold_passes",
]

#: What a pass did to a module: gave back the same object, an equal one, or another.
Change = Literal["same", "equal", "changed"]

_MARKS: Final = {"same": ".", "equal": "=", "changed": "*", None: "!"}


@dataclass(frozen=True, slots=True)
class ModuleSize:
    """How large a module is.

    Attributes
    ----------
    functions
        Relax functions of the module.
    kernels
        Its other functions.
    bindings
        Bindings of all Relax functions, those of branches and local functions too.
    """

    functions: int
    kernels: int
    bindings: int


@dataclass(frozen=True, slots=True)
class PassStarted:
    """A pass is about to run; passes are counted in the order in which they start."""

    index: int
    depth: int
    name: str
    opt_level: int
    size: ModuleSize


@dataclass(frozen=True, slots=True)
class PassFinished:
    """A pass returned.

    Attributes
    ----------
    seconds
        How long it took, passes inside included, the recorder's own work not.
    functions
        Names of the functions that are new, gone, or no longer the same.
    """

    index: int
    seconds: float
    change: Change
    size: ModuleSize
    functions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PassFailed:
    """A pass raised an error."""

    index: int
    seconds: float
    error: str


PassEvent = PassStarted | PassFinished | PassFailed


@dataclass(frozen=True, slots=True)
class PassRecord:
    """One run of one pass.

    Attributes
    ----------
    index
        Its place in the recorder's list.
    depth
        How many passes it runs inside of.
    change
        What it did to the module; None while it runs, and when it raised.
    before, after
        Sizes; ``after`` is None when it raised.
    functions
        Names of the functions it made, dropped or changed.
    error
        What it raised, empty when it did not.
    """

    index: int
    depth: int
    name: str
    opt_level: int
    before: ModuleSize
    seconds: float | None = None
    change: Change | None = None
    after: ModuleSize | None = None
    functions: tuple[str, ...] = ()
    error: str = ""


def fold_passes(events: Iterable[PassEvent]) -> tuple[PassRecord, ...]:
    """Return what the events say about each pass, in order of starting."""
    records: list[PassRecord] = []
    for event in events:
        match event:
            case PassStarted(index, depth, name, opt_level, size):
                records.append(PassRecord(index, depth, name, opt_level, size))
            case PassFinished(index, seconds, change, size, functions):
                records[index] = replace(
                    records[index],
                    seconds=seconds,
                    change=change,
                    after=size,
                    functions=functions,
                )
            case PassFailed(index, seconds, error):
                records[index] = replace(records[index], seconds=seconds, error=error)
            case _:
                assert_never(event)
    return tuple(records)


@dataclass(slots=True)
class _Run:
    """A pass as the recorder sees it, while it runs and afterwards."""

    info: PassInfo
    depth: int
    before: IRModule
    after: IRModule | None = None
    seconds: float | None = None
    error: str = ""
    start: float = 0.0
    #: Time that the recorder itself took while the pass ran.
    overhead: float = 0.0


class PassRecorder(PassInstrument):
    """An instrument that keeps what passes were given and what they returned.

    Give it to a :class:`~relaxlab.ir.PassContext`, or use :meth:`recording`. It goes on recording
    until :meth:`clear`.

    Attributes
    ----------
    events : list of PassEvent
        What it was told, in order.
    """

    def __init__(self) -> None:
        self.events: list[PassEvent] = []
        self._runs: list[_Run] = []
        self._open: list[int] = []
        self._scripts: dict[int, str] = {}
        self._bindings: dict[Function, int] = {}

    @contextmanager
    def recording(self) -> Iterator["PassRecorder"]:
        """Record what runs inside the ``with`` block, in a context like the current one."""
        ctx = PassContext.current()
        with PassContext(
            ctx.opt_level,
            ctx.required_pass,
            ctx.disabled_pass,
            [*ctx.instruments, self],
            ctx.config,
        ):
            yield self

    def clear(self) -> None:
        """Forget everything."""
        for kept in (self.events, self._runs, self._open, self._scripts, self._bindings):
            kept.clear()

    # ---- what passes tell -------------------------------------------------------------------

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Note the module a pass is given."""
        now = time.perf_counter()
        index, depth = len(self._runs), len(self._open)
        run = _Run(info, depth, mod)
        self._runs.append(run)
        self.events.append(PassStarted(index, depth, info.name, info.opt_level, self._size(mod)))
        self._spent(now)
        self._open.append(index)
        run.start = time.perf_counter()

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Note the module a pass returned."""
        now = time.perf_counter()
        index = self._open.pop()
        run = self._runs[index]
        run.seconds = now - run.start - run.overhead
        run.after = mod
        self.events.append(
            PassFinished(
                index,
                run.seconds,
                _change(run.before, mod),
                self._size(mod),
                _changed_functions(run.before, mod),
            )
        )
        self._spent(now)

    def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
        """Note what a pass raised."""
        now = time.perf_counter()
        index = self._open.pop()
        run = self._runs[index]
        run.seconds = now - run.start - run.overhead
        run.error = f"{type(error).__name__}: {error}"
        self.events.append(PassFailed(index, run.seconds, run.error))
        self._spent(now)

    def _spent(self, since: float) -> None:
        """Keep the recorder's own time out of that of the passes around."""
        own = time.perf_counter() - since
        for index in self._open:
            self._runs[index].overhead += own

    def _size(self, mod: IRModule) -> ModuleSize:
        functions = [f for f in mod.functions.values() if isinstance(f, Function)]
        for func in functions:
            if func not in self._bindings:
                self._bindings[func] = _count_bindings(func.body)
        bindings = sum(self._bindings[func] for func in functions)
        return ModuleSize(len(functions), len(mod.functions) - len(functions), bindings)

    # ---- looking at it ----------------------------------------------------------------------

    @property
    def passes(self) -> tuple[PassRecord, ...]:
        """The passes, in order of starting."""
        return fold_passes(self.events)

    def snapshot(self) -> tuple[PassRecord, ...]:
        """Return the passes as read off the modules that were kept."""
        records = []
        for index, run in enumerate(self._runs):
            record = PassRecord(
                index,
                run.depth,
                run.info.name,
                run.info.opt_level,
                self._size(run.before),
                run.seconds,
                error=run.error,
            )
            if run.after is not None:
                record = replace(
                    record,
                    change=_change(run.before, run.after),
                    after=self._size(run.after),
                    functions=_changed_functions(run.before, run.after),
                )
            records.append(record)
        return tuple(records)

    def __len__(self) -> int:
        return len(self._runs)

    def before(self, index: int) -> IRModule:
        """Return the module that a pass was given."""
        return self._runs[index].before

    def after(self, index: int) -> IRModule | None:
        """Return the module that a pass returned; None when it raised, or still runs."""
        return self._runs[index].after

    def roots(self) -> tuple[int, ...]:
        """Return the passes that no other pass ran."""
        return tuple(index for index, run in enumerate(self._runs) if run.depth == 0)

    def children(self, index: int) -> tuple[int, ...]:
        """Return the passes that a pass ran directly."""
        depth, found = self._runs[index].depth, []
        for other in range(index + 1, len(self._runs)):
            if self._runs[other].depth <= depth:
                break
            if self._runs[other].depth == depth + 1:
                found.append(other)
        return tuple(found)

    def index(self, name: str) -> int:
        """Return the first pass of a name.

        Raises
        ------
        ValueError
            If none of that name ran; the message lists those that did.
        """
        names = [run.info.name for run in self._runs]
        if name not in names:
            known = ", ".join(dict.fromkeys(names)) or "none"
            raise ValueError(f"no pass called {name!r} was recorded; there are: {known}")
        return names.index(name)

    def script(self, index: int, which: Literal["before", "after"] = "after") -> str:
        """Return the text of a module; empty when there is none."""
        mod = self.before(index) if which == "before" else self.after(index)
        if mod is None:
            return ""
        # the module is kept alive by the run, so its identity stays its own
        if id(mod) not in self._scripts:
            self._scripts[id(mod)] = mod.script()
        return self._scripts[id(mod)]

    def diff(self, index: int, context: int = 3) -> str:
        """Return a unified difference of the texts before and after; empty when they are equal."""
        run = self._runs[index]
        if run.after is None or run.after is run.before:
            return ""
        lines = difflib.unified_diff(
            self.script(index, "before").splitlines(),
            self.script(index, "after").splitlines(),
            f"before {run.info.name}",
            f"after {run.info.name}",
            n=context,
            lineterm="",
        )
        return "\n".join(lines)

    def search(self, text: str) -> tuple[int, ...]:
        """Return the passes whose name, or what they added or removed, contains ``text``.

        Upper and lower case are not told apart.
        """
        wanted = text.casefold()
        return tuple(
            index
            for index, run in enumerate(self._runs)
            if wanted in run.info.name.casefold()
            or any(wanted in line.casefold() for line in self._changed_lines(index))
        )

    def _changed_lines(self, index: int) -> list[str]:
        lines = self.diff(index, context=0).splitlines()[2:]
        return [line[1:] for line in lines if line[:1] in ("+", "-")]

    def render(self, unchanged: bool = True) -> str:
        """Return the table.

        Parameters
        ----------
        unchanged
            Whether passes that gave back the same or an equal module are shown.
        """
        shown = [r for r in self.passes if unchanged or r.change in ("changed", None)]
        hidden = len(self) - len(shown)
        heads: tuple[str, ...] = ("#", "", "pass", "ms", "functions", "kernels", "bindings")
        rows = [heads, *map(_row, shown)]
        widths = [max(len(row[i]) for row in rows) for i in range(7)]
        lines = []
        for number, mark, name, *columns in rows:
            cells = map(str.rjust, columns, widths[3:])
            first = f"{number:>{widths[0]}} {mark:<1} {name:<{widths[2]}}"
            lines.append("  ".join([first, *cells]).rstrip())
        lines += [f"{record.name} raised {record.error}" for record in shown if record.error]
        lines.append("* changed   = rebuilt, equal   . the same object   ! raised")
        if hidden:
            lines.append(f"{hidden} that changed nothing are hidden")
        return "\n".join(lines)

    def to_data(self) -> dict[str, Any]:
        """Return passes and texts as plain data; a text that several share is there once.

        Returns
        -------
        dict
            ``passes``: a row each, with ``before_text`` and ``after_text`` as indices into
            ``texts``.
        """
        texts: dict[str, int] = {}
        rows = []
        for record in self.passes:
            before, after = (self.script(record.index, w) for w in ("before", "after"))
            rows.append(
                {
                    "index": record.index,
                    "depth": record.depth,
                    "name": record.name,
                    "opt_level": record.opt_level,
                    "ms": None if record.seconds is None else round(record.seconds * 1e3, 3),
                    "change": record.change,
                    "functions": list(record.functions),
                    "error": record.error,
                    "before": _size_row(record.before),
                    "after": _size_row(record.after),
                    "before_text": texts.setdefault(before, len(texts)),
                    "after_text": texts.setdefault(after, len(texts)) if after else None,
                }
            )
        return {"passes": rows, "texts": list(texts)}

    def __str__(self) -> str:
        return self.render()

    def __repr__(self) -> str:
        changed = sum(record.change == "changed" for record in self.passes)
        return f"PassRecorder({len(self)} passes, {changed} changed the module)"


def _change(before: IRModule, after: IRModule) -> Change:
    if before is after:
        return "same"
    return "equal" if before.structural_equal(after) else "changed"


def _changed_functions(before: IRModule, after: IRModule) -> tuple[str, ...]:
    """Return the names of functions that are not the same objects, those of ``after`` first."""
    old = {g.name_hint: f for g, f in before.functions.items()}
    new = {g.name_hint: f for g, f in after.functions.items()}
    changed = [name for name, func in new.items() if old.get(name) is not func]
    return (*changed, *(name for name in old if name not in new))


def _count_bindings(body: SeqExpr) -> int:
    count, stack = 0, [body]
    while stack:
        for block in stack.pop().blocks:
            count += len(block.bindings)
            for binding in block.bindings:
                value = binding.value if isinstance(binding, VarBinding) else None
                match value:
                    case If(true_branch=SeqExpr() as one, false_branch=SeqExpr() as other):
                        stack += (one, other)
                    case Function(body=inner):
                        stack.append(inner)
                    case _:
                        pass
    return count


def _row(record: PassRecord) -> tuple[str, ...]:
    before, after = record.before, record.after or record.before
    time_text = "" if record.seconds is None else f"{record.seconds * 1e3:.1f}"
    return (
        str(record.index),
        "?" if record.seconds is None else _MARKS[record.change],
        "  " * record.depth + record.name,
        time_text,
        _step(before.functions, after.functions),
        _step(before.kernels, after.kernels),
        _step(before.bindings, after.bindings),
    )


def _step(before: int, after: int) -> str:
    return str(before) if before == after else f"{before} → {after}"


def _size_row(size: ModuleSize | None) -> dict[str, int] | None:
    if size is None:
        return None
    return {"functions": size.functions, "kernels": size.kernels, "bindings": size.bindings}
