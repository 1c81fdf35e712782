"""What every pass did to a program, and which line became which instruction and which kernel.

The pipeline is a list with what changed, how long it took and how large the program was; any two
stages can be put side by side; a line of the program leads to its instructions, and each of these
to its kernel as TIR, as the generated text and as machine code. The text twin is the recorder's
table with one difference. Counterpart: ``PrintIRModule`` and the like of TVM, and Compiler
Explorer's view of optimisation passes.

Examples
--------
>>> from relaxlab.script import from_source
>>> mod = from_source('''
... @I.ir_module
... class Module:
...     @R.function
...     def main(x: R.Tensor((4,), "float32")):
...         return R.add(x, x)
... ''')
>>> view = PassExplorer(mod, target="numpy")
>>> view.select("LegalizeOps")
PassExplorer(pass 6 of 20: LegalizeOps)
"""

import contextlib
from typing import Any, ClassVar, Self

import traitlets

from relaxlab.codegen import Library
from relaxlab.errors import InternalError
from relaxlab.ir import IRModule, Target
from relaxlab.ir.transform import Pass
from relaxlab.relax import build
from relaxlab.relax.analysis import Bisection
from relaxlab.relax.expr import Function
from relaxlab.relax.pass_recorder import PassRecorder
from relaxlab.runtime.vm import VMExecutable
from relaxlab.trace.graphs import call_dot, dataflow_dot
from relaxlab.trace.linked_program import link_program
from relaxlab.widgets.bundle import bundle, stylesheet
from relaxlab.widgets.drawing import svg_of
from relaxlab.widgets.view import STATIC, View

__all__ = ["PassExplorer"]


class PassExplorer(View):
    """A view of the passes that made an executable.

    Parameters
    ----------
    program
        A module, which is compiled and recorded now; a recorder of passes that ran; or what
        :func:`relaxlab.relax.analysis.bisect_passes` found, whose pass is then marked and shown.
    target, pipeline
        For a module: what :func:`relaxlab.relax.build` takes.
    executable
        For a recorder: what came out, if anything.

    Attributes
    ----------
    position : int
        The pass that is shown, as an index into ``recorder.passes``; changing it moves the view.
    recorder : PassRecorder
        What was recorded.
    executable : VMExecutable or None
        What came out.

    Raises
    ------
    TypeError
        If ``program`` is something else.
    ValueError
        If no pass was recorded.
    """

    _esm = bundle(STATIC / "pass_explorer.js")
    _css = stylesheet(STATIC / "view.css", STATIC / "pass_explorer.css")
    _exported: ClassVar[tuple[str, ...]] = ("record", "position")
    _frame_height: ClassVar[int] = 720

    record = traitlets.Dict().tag(sync=True)
    position = traitlets.Int().tag(sync=True)

    def __init__(
        self,
        program: IRModule | PassRecorder | Bisection,
        *,
        target: Target | str | None = None,
        pipeline: str | Pass = "default",
        executable: VMExecutable | None = None,
    ) -> None:
        self.bisection: Bisection | None = None
        match program:
            case IRModule():
                self.recorder = PassRecorder()
                with self.recorder.recording():
                    executable = build(program, target, relax_pipeline=pipeline)
            case PassRecorder():
                self.recorder = program
            case Bisection():
                self.recorder, self.bisection = program.recorder, program
            case _:
                raise TypeError(
                    "expected an IRModule, a PassRecorder or a Bisection, "
                    f"got {type(program).__name__}"
                )
        if not len(self.recorder):
            raise ValueError("no pass was recorded: compile inside `with recorder.recording():`")
        self.executable = executable
        blamed = self.bisection.index if self.bisection is not None else None
        passes = self.recorder.passes
        changed = [
            one.index
            for one in passes
            if one.change == "changed"
            # a pass that others did it for is not the one to look at
            and all(
                passes[inner].change != "changed" for inner in self.recorder.children(one.index)
            )
        ]
        super().__init__(
            record={
                **self.recorder.to_data(),
                "blamed": blamed,
                "verdict": str(self.bisection).splitlines()[0] if self.bisection else "",
                "code": None if executable is None else _code(executable),
                "graphs": _graphs(self.recorder),
            },
            position=blamed if blamed is not None else (changed or [0])[0],
        )

    @traitlets.validate("position")
    def _recorded(self, proposal: Any) -> int:
        position: int = proposal["value"]
        last = len(self.recorder) - 1
        if not 0 <= position <= last:
            raise traitlets.TraitError(f"no pass {position}: the recording has 0 to {last}")
        return position

    def select(self, which: int | str) -> Self:
        """Show a pass, by index or by name; an unknown name is a ``ValueError``."""
        self.position = self.recorder.index(which) if isinstance(which, str) else which
        return self

    def search(self, text: str) -> Self:
        """Show the next pass whose name or changed lines contain a text; ``LookupError`` if none.

        The search begins behind the pass that is shown and goes on at the first one.
        """
        found = self.recorder.search(text)
        if not found:
            raise LookupError(f"no pass is called {text!r}, added it or removed it")
        later = [index for index in found if index > self.position]
        return self.select(later[0] if later else found[0])

    @property
    def heading(self) -> str:
        """What an exported page is called."""
        changed = sum(one.change == "changed" for one in self.recorder.passes)
        return f"{len(self.recorder)} passes, {changed} changed the program"

    def __str__(self) -> str:
        """Return the table, what was found wrong, and the difference that the shown pass made."""
        parts = [str(self.recorder)]
        if self.bisection is not None:
            parts.append(str(self.bisection).splitlines()[0])
        difference = self.recorder.diff(self.position)
        name = self.recorder.passes[self.position].name
        parts.append(difference or f"{name} changed nothing")
        if self.executable is not None and self.executable.source_map:
            parts.append(str(self.executable.source_map))
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        """Return the pass that is shown."""
        name = self.recorder.passes[self.position].name
        return f"PassExplorer(pass {self.position} of {len(self.recorder)}: {name})"


def _code(ex: VMExecutable) -> dict[str, Any]:
    """Return lines, instructions and kernels with their links, and each kernel's texts."""
    linked = link_program(ex)
    kernels = {one.name: {"TIR": one.script} for one in linked.kernels if one.script}
    for library in ex.imports:
        if not isinstance(library, Library):
            continue  # of another installation: no text but the script's
        for name in library.names:
            with contextlib.suppress(InternalError, KeyError):
                kernels[name][library.kind] = library.source(name)
                kernels[name]["assembly"] = library.assembly(name)
    return {
        "lines": [[one.source, one.line, one.text] for one in linked.lines],
        "instructions": [
            [
                one.pc,
                one.function,
                one.text,
                one.kernel,
                " ".join(one.binding.split()),
                list(one.lines),
            ]
            for one in linked.instructions
        ],
        "kernels": kernels,
    }


def _graphs(recorder: PassRecorder) -> list[dict[str, Any]]:
    """Return pictures of the program before the first pass and of its calls in the middle."""
    first = recorder.before(0)
    graphs = []
    for gvar, func in first.functions.items():
        if isinstance(func, Function):
            dot = dataflow_dot(first, gvar.name_hint)
            graphs.append({"name": f"values of {gvar.name_hint}", "dot": dot, "svg": svg_of(dot)})
    after = next((recorder.after(i) for i in reversed(range(len(recorder)))), None) or first
    dot = call_dot(after)
    graphs.append({"name": "calls between functions", "dot": dot, "svg": svg_of(dot)})
    return graphs
