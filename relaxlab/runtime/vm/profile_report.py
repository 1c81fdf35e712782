"""What a profiled call leaves: sums, a table, and files for other tools.

The method names are those of TVM's ``tvm.runtime.profiling.Report``, so that a script that reads
one reads the other; what TVM lacks (instructions, spans, the result) is beside them.

Examples
--------
>>> report = Report(
...     result=3,
...     seconds=4e-6,
...     kernels=(CallRow("add", "kernel", 2, 3e-6, 96),),
...     instructions=(InstructionRow("main", 0, "ret   %0", 1, 4e-6, 4e-6, 0),),
... )
>>> print(report.table())
Name       Kind    Count  Duration (us)  Percent  Bytes  Device
add        kernel      2           3.00    75.00     96  cpu0
(machine)  loop        1           1.00    25.00      0  cpu0
----------
Sum                    3           4.00   100.00     96
Total                              4.00                  cpu0
>>> Report.from_json(report.json()).kernels == report.kernels
True
"""

import csv
import io
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from relaxlab.runtime.vm.stateful import as_tuples

__all__ = ["CallRow", "InstructionRow", "Report", "Span"]

_LOOP: Final = "(machine)"
_TOP: Final = 20


@dataclass(frozen=True, slots=True)
class CallRow:
    """All calls of one host function.

    Attributes
    ----------
    name
        Its name in the function table.
    kind
        ``"kernel"``, ``"builtin"``, ``"host"``, or ``"loop"`` for the machine itself.
    count
        How many times it was called.
    seconds
        Time inside it, in all.
    bytes
        Bytes of the tensors that it was given and returned (also in a tuple), and of storages
        that it returned, in all.
    """

    name: str
    kind: str
    count: int
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class InstructionRow:
    """All executions of one instruction.

    Attributes
    ----------
    function, pc, text
        Where it is, and its disassembly.
    count
        How many times it ran.
    seconds
        Its own time, in all: with what it called on the host, without the instructions of a Relax
        function that it called. Over all rows this sums up to the time of the run.
    inclusive
        The same with the instructions of the Relax functions that it called.
    bytes
        As for :class:`CallRow`.
    """

    function: str
    pc: int
    text: str
    count: int
    seconds: float
    inclusive: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Span:
    """One call or one frame on the timeline; times in seconds from the start of the run."""

    name: str
    category: str
    start: float
    seconds: float
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Where the time of one call went.

    Attributes
    ----------
    result
        What the call returned.
    seconds
        How long it took, with the clock.
    kernels
        Host functions, the longest first.
    instructions
        In order of the program.
    spans
        The first calls and frames of the run, in order of their ends.
    dropped_spans
        How many later ones were not kept.
    device
        TVM's name of the first device.
    configuration
        What ran.
    """

    result: Any
    seconds: float
    kernels: tuple[CallRow, ...]
    instructions: tuple[InstructionRow, ...]
    spans: tuple[Span, ...] = ()
    dropped_spans: int = 0
    device: str = "cpu0"
    configuration: dict[str, str] = field(default_factory=dict)

    # ---- TVM's names ------------------------------------------------------------------------

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The rows of the table as dicts; times in microseconds."""
        return [self._call(row) for row in (*self.kernels, self.loop)]

    @property
    def device_metrics(self) -> dict[str, dict[str, float]]:
        """Totals of each device; times in microseconds."""
        return {self.device: {"Duration (us)": self.seconds * 1e6, "Count": 1}}

    def table(self, sort: bool = True, aggregate: bool = True, col_sums: bool = True) -> str:
        """Return the calls as text.

        Parameters
        ----------
        sort
            Whether the longest come first; otherwise in order of the program.
        aggregate
            Whether all calls of one function are one row; otherwise one row an instruction.
        col_sums
            Whether to append the sums.
        """
        heads = ["Name", "Kind", "Count", "Duration (us)", "Percent", "Bytes", "Device"]
        if aggregate:
            rows = [*self.kernels, self.loop]
            if not sort:
                order = [row.text.split()[1] for row in self.instructions if " in: " in row.text]
                known = {name: index for index, name in reversed([*enumerate(order)])}
                rows.sort(key=lambda row: known.get(row.name, len(known)))
        else:
            rows = [
                CallRow(
                    f"{row.function}+{row.pc}: {row.text}", "", row.count, row.seconds, row.bytes
                )
                for row in self.instructions
            ]
            if sort:
                rows.sort(key=lambda row: -row.seconds)
        lines = [
            [row.name, row.kind, *self._numbers(row.count, row.seconds, row.bytes), self.device]
            for row in rows
        ]
        sums: list[list[str]] = []
        if col_sums:
            count, nbytes = sum(row.count for row in rows), sum(row.bytes for row in rows)
            seconds = sum(row.seconds for row in rows)
            sums = [
                ["Sum", "", *self._numbers(count, seconds, nbytes), ""],
                ["Total", "", "", f"{self.seconds * 1e6:.2f}", "", "", self.device],
            ]
        return _aligned(heads, lines, sums)

    def csv(self) -> str:
        """Return the calls as comma-separated values with a line of heads."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self._call(self.loop)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.calls)
        return text.getvalue()

    def json(self) -> str:
        """Return everything but the result as JSON; ``calls`` is written as TVM writes it."""
        return json.dumps(self.to_json())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what :meth:`json` wrote; the result is None."""
        record = json.loads(text)
        return cls(
            result=None,
            seconds=record["seconds"],
            kernels=tuple(CallRow(**row) for row in record["kernels"]),
            instructions=tuple(InstructionRow(**row) for row in record["instructions"]),
            spans=tuple(Span(**row) for row in record["spans"]),
            dropped_spans=record["dropped_spans"],
            device=record["device"],
            configuration={
                name: value["string"] for name, value in record["configuration"].items()
            },
        )

    # ---- ours -------------------------------------------------------------------------------

    @property
    def value(self) -> Any:
        """The result with Relax tuples as Python tuples."""
        return as_tuples(self.result)

    @property
    def loop(self) -> CallRow:
        """The time outside host functions: reading instructions, moving values, frames."""
        inside = sum(row.seconds for row in self.kernels)
        count = sum(row.count for row in self.instructions)
        return CallRow(_LOOP, "loop", count, max(0.0, self.seconds - inside), 0)

    def to_json(self) -> dict[str, Any]:
        """Return :meth:`json` as plain data."""
        return {
            "calls": [
                {
                    "Name": {"string": row["Name"]},
                    "Kind": {"string": row["Kind"]},
                    "Count": {"count": row["Count"]},
                    "Duration (us)": {"microseconds": row["Duration (us)"]},
                    "Percent": {"percent": row["Percent"]},
                    "Bytes": {"count": row["Bytes"]},
                    "Device": {"string": row["Device"]},
                }
                for row in self.calls
            ],
            "device_metrics": {
                name: {
                    "Duration (us)": {"microseconds": metrics["Duration (us)"]},
                    "Count": {"count": metrics["Count"]},
                }
                for name, metrics in self.device_metrics.items()
            },
            "configuration": {name: {"string": text} for name, text in self.configuration.items()},
            "seconds": self.seconds,
            "device": self.device,
            "kernels": _records(self.kernels),
            "instructions": _records(self.instructions),
            "spans": _records(self.spans),
            "dropped_spans": self.dropped_spans,
        }

    def to_perfetto(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the spans as a Chrome trace, which https://ui.perfetto.dev opens.

        Parameters
        ----------
        path
            Where to write it too.
        """
        events: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "tid": 1, "name": "process_name", "args": {"name": "relaxlab"}},
            {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": self.device}},
        ]
        events += (
            {
                "ph": "X",
                "pid": 1,
                "tid": 1,
                "name": span.name,
                "cat": span.category,
                "ts": span.start * 1e6,
                "dur": span.seconds * 1e6,
                "args": {"depth": span.depth},
            }
            for span in self.spans
        )
        trace = {
            "traceEvents": events,
            "displayTimeUnit": "ns",
            "otherData": {**self.configuration, "dropped spans": str(self.dropped_spans)},
        }
        text = json.dumps(trace)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def instruction_table(self, most: int | None = _TOP) -> str:
        """Return the instructions as text, the longest first; all of them with ``most=None``."""
        heads = ["Function", "PC", "Instruction", "Count", "Duration (us)", "Percent", "Bytes"]
        ranked = sorted(self.instructions, key=lambda row: -row.seconds)
        shown = ranked if most is None else ranked[:most]
        lines = [
            [
                row.function,
                str(row.pc),
                row.text,
                *self._numbers(row.count, row.seconds, row.bytes),
            ]
            for row in shown
        ]
        text = _aligned(heads, lines, [])
        hidden = len(ranked) - len(shown)
        return text + (f"\n({hidden} more instructions)" if hidden else "")

    def __str__(self) -> str:
        return f"{self.table()}\n\n{self.instruction_table()}"

    def __repr__(self) -> str:
        count = sum(row.count for row in self.instructions)
        return f"<Report of {count} instructions in {self.seconds * 1e6:.0f} us>"

    def _call(self, row: CallRow) -> dict[str, Any]:
        return {
            "Name": row.name,
            "Kind": row.kind,
            "Count": row.count,
            "Duration (us)": row.seconds * 1e6,
            "Percent": self._percent(row.seconds),
            "Bytes": row.bytes,
            "Device": self.device,
        }

    def _percent(self, seconds: float) -> float:
        return 100 * seconds / self.seconds if self.seconds else 0.0

    def _numbers(self, count: int, seconds: float, nbytes: int) -> Iterable[str]:
        return (
            f"{count:,}",
            f"{seconds * 1e6:,.2f}",
            f"{self._percent(seconds):.2f}",
            f"{nbytes:,}",
        )


def _records(rows: Sequence[Any]) -> list[dict[str, Any]]:
    return [{name: getattr(row, name) for name in row.__slots__} for row in rows]


def _aligned(heads: list[str], lines: list[list[str]], sums: list[list[str]]) -> str:
    """Return lines in columns, numbers to the right."""
    table = [heads, *lines, *sums]
    numeric = {"Count", "Duration (us)", "Percent", "Bytes", "PC"}
    widths = [max(len(line[column]) for line in table) for column in range(len(heads))]
    texts = [
        "  ".join(
            cell.rjust(width) if head in numeric else cell.ljust(width)
            for head, cell, width in zip(heads, line, widths, strict=True)
        ).rstrip()
        for line in table
    ]
    if sums:
        texts.insert(1 + len(lines), "-" * 10)
    return "\n".join(texts)
