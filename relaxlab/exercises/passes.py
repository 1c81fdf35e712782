"""Chapter 03, passes.

Examples
--------
>>> from relaxlab.exercises import check
>>> check("03.q1", "StaticPlanBlockMemory")
03.q1 is right
True
"""

from typing import Any, Final

from relaxlab.exercises.exercise import Wrong, exercise, program, shown
from relaxlab.relax.pass_recorder import PassRecorder
from relaxlab.relax.vm_build import build

_PROGRAM: Final = """
@I.ir_module
class Network:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            h = R.nn.relu(R.matmul(x, w))
            y = R.add(h, x)
            z = R.nn.softmax(y)
            R.output(z)
        return z
"""
_WANTED: Final = "alloc_storage"


@exercise("03.q1")
def first_with_storages(answer: Any) -> None:
    """Judge the name of the pass that plans memory, by compiling and looking."""
    if not isinstance(answer, str):
        raise Wrong("the name of a pass, as text", shown(answer), "the list of passes")
    recorder = PassRecorder()
    with recorder.recording():
        build(program(_PROGRAM), target="numpy")
    names = [one.name for one in recorder.passes]
    if answer not in names:
        raise Wrong(
            "one of the passes that ran",
            shown(answer or "an empty text"),
            "names are spelled as `recorder.passes` prints them",
        )
    inner = [index for index in range(len(names)) if not recorder.children(index)]
    there = [index for index in inner if _WANTED in recorder.script(index)]
    chosen = names.index(answer)
    if recorder.children(chosen):
        raise Wrong(
            "a pass that does the work itself",
            f"{answer}, which runs {len(recorder.children(chosen))} others",
            "the passes that are printed further to the right",
        )
    if chosen < there[0]:
        raise Wrong(
            f"a pass after which the program contains {_WANTED}",
            f"{answer}, after which it does not",
            "later in the list",
        )
    if chosen > there[0]:
        raise Wrong(
            f"the first pass after which the program contains {_WANTED}",
            f"{answer}, before which it did already",
            "earlier in the list",
        )
