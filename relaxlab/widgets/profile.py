"""Where the time of a call went: kernels and instructions as bars and as a table.

Rows can be sorted by any column; the first calls are a timeline. ``to_perfetto`` writes the
timeline for https://ui.perfetto.dev. The text twin is the report itself. Counterpart:
``tvm.runtime.profiling.Report``.

Examples
--------
>>> from relaxlab.relax.exec_builder import ExecBuilder
>>> from relaxlab.runtime import cpu
>>> ib = ExecBuilder()
>>> with ib.function("main", 1, ["x"]):
...     ib.emit_call("vm.builtin.copy", [ib.r(0)], dst=1)
...     ib.emit_ret(ib.r(1))
>>> view = Profile(VirtualMachine(ib.get(), cpu()), "main", 7)
>>> view
Profile(2 instructions, 1 function)
"""

import os
from pathlib import Path
from typing import Any, ClassVar

import traitlets

from relaxlab.runtime.vm import VirtualMachine
from relaxlab.runtime.vm.profile_report import Report
from relaxlab.widgets.bundle import bundle, stylesheet
from relaxlab.widgets.view import STATIC, View

__all__ = ["Profile"]


class Profile(View):
    """A view of a report.

    Parameters
    ----------
    program
        A report, or a machine, whose function is called once and measured.
    function, args
        For a machine: what to call, and with what.

    Attributes
    ----------
    report : Report
        What is shown.

    Raises
    ------
    TypeError
        If ``program`` is something else, or the function is missing.
    """

    _esm = bundle(STATIC / "profile.js")
    _css = stylesheet(STATIC / "view.css", STATIC / "graph_replay.css", STATIC / "profile.css")
    _exported: ClassVar[tuple[str, ...]] = ("profile",)
    _frame_height: ClassVar[int] = 480

    profile = traitlets.Dict().tag(sync=True)

    def __init__(
        self, program: Report | VirtualMachine, function: str | None = None, *args: Any
    ) -> None:
        match program:
            case Report():
                self.report = program
            case VirtualMachine() if function is not None:
                self.report = program.profile(function, *args)
            case VirtualMachine():
                raise TypeError("a machine needs the name of the function to profile")
            case _:
                raise TypeError(
                    f"expected a Report or a VirtualMachine, got {type(program).__name__}"
                )
        report = self.report
        super().__init__(
            profile={
                "seconds": report.seconds,
                "kernels": [
                    [row.name, row.kind, row.count, row.seconds, row.bytes]
                    for row in (*report.kernels, report.loop)
                ],
                "instructions": [
                    [f"{row.pc} {row.text}", row.function, row.count, row.seconds, row.bytes]
                    for row in report.instructions
                ],
                "spans": [
                    [span.name, span.category, span.start, span.seconds, span.depth]
                    for span in report.spans[:5000]
                ],
                "dropped": report.dropped_spans + max(0, len(report.spans) - 5000),
            }
        )

    def to_perfetto(self, path: str | os.PathLike[str]) -> Path:
        """Write the timeline as a Chrome trace, which Perfetto opens; return where it is."""
        self.report.to_perfetto(path)
        return Path(path)

    @property
    def heading(self) -> str:
        """What an exported page is called."""
        return f"Profile: {self.report.seconds * 1e6:.0f} µs"

    def __str__(self) -> str:
        """Return the report as text."""
        return str(self.report)

    def __repr__(self) -> str:
        """Return how much ran."""
        count = sum(row.count for row in self.report.instructions)
        functions = len(self.report.kernels)
        return (
            f"Profile({count} instruction{'' if count == 1 else 's'}, "
            f"{functions} function{'' if functions == 1 else 's'})"
        )
