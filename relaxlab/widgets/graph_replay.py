"""CUDA graphs of a machine: what was captured under which key, and every replay.

A region is captured once for each value of its symbolic sizes, and replayed as one launch ever
after. The view steps through the history; a strip shows each call with what was launched one by
one and what came as a graph. The text twin is the recorder's. There is no TVM counterpart.

Examples
--------
>>> GraphReplay(GraphRecorder())
GraphReplay(moment 0 of 0)
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import traitlets

from relaxlab.runtime.vm import VirtualMachine
from relaxlab.trace.graph_recorder import GraphRecorder
from relaxlab.widgets.bundle import bundle, stylesheet
from relaxlab.widgets.view import STATIC, View

__all__ = ["GraphReplay"]


class GraphReplay(View):
    """A view of what a machine captured and replayed.

    Parameters
    ----------
    recorder
        What was recorded.

    Attributes
    ----------
    position : int
        How many moments of the history have happened; changing it moves the view.

    Raises
    ------
    TypeError
        If ``recorder`` is something else.
    """

    _esm = bundle(STATIC / "graph_replay.js")
    _css = stylesheet(STATIC / "view.css", STATIC / "graph_replay.css")
    _exported: ClassVar[tuple[str, ...]] = ("graphs", "position")
    _frame_height: ClassVar[int] = 420

    graphs = traitlets.Dict().tag(sync=True)
    position = traitlets.Int().tag(sync=True)

    def __init__(self, recorder: GraphRecorder) -> None:
        if not isinstance(recorder, GraphRecorder):
            raise TypeError(f"expected a GraphRecorder, got {type(recorder).__name__}")
        self.recorder = recorder
        super().__init__(
            graphs={
                "calls": list(recorder.calls),
                "launches": list(recorder.launches),
                "history": [
                    [
                        moment.call,
                        moment.what,
                        moment.key,
                        list(moment.kernels),
                        recorder.words(moment),
                    ]
                    for moment in recorder.history
                ],
            },
            position=len(recorder.history),
        )

    @classmethod
    def of(cls, vm: VirtualMachine, function: str, arguments: Iterable[Sequence[Any]]) -> Self:
        """Call a function several times and show what became of its graphs.

        Parameters
        ----------
        vm, function
            The machine and the name of the function.
        arguments
            The arguments of each call.
        """
        recorder = GraphRecorder()
        before = vm.observer
        vm.observer = recorder
        try:
            for given in arguments:
                vm[function](*given)
        finally:
            vm.observer = before
        return cls(recorder)

    @traitlets.validate("position")
    def _recorded(self, proposal: Any) -> int:
        position: int = proposal["value"]
        end = len(self.recorder.history)
        if not 0 <= position <= end:
            raise traitlets.TraitError(f"no moment {position}: the history has 0 to {end}")
        return position

    def goto(self, position: int) -> Self:
        """Go to a moment; one that is not recorded is a ``TraitError``."""
        self.position = position
        return self

    @property
    def heading(self) -> str:
        """What an exported page is called."""
        return str(self.recorder).splitlines()[0]

    def __str__(self) -> str:
        """Return what the view shows, as text."""
        return self.recorder.render(self.position)

    def __repr__(self) -> str:
        """Return the position."""
        return f"GraphReplay(moment {self.position} of {len(self.recorder.history)})"
