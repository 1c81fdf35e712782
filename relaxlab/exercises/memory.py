"""Chapter 05, planning memory.

Examples
--------
>>> from relaxlab.exercises import WrongAnswer, check
>>> try:
...     check("05.q1", -1)
... except WrongAnswer as wrong:
...     print(wrong.found.got)
-1 (int)
"""

from typing import Any, Final

from relaxlab.exercises.exercise import Wrong, exercise, program, shown
from relaxlab.relax.analysis import storage_liveness
from relaxlab.relax.vm_build import build

_PROGRAM: Final = """
@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.matmul(b, w)
            d = R.exp(c)
            e = R.add(d, b)
            R.output(e)
        return e
"""


@exercise("05.q1")
def saved(answer: Any) -> None:
    """Judge the bytes that planning saves in the chapter's function."""
    if isinstance(answer, bool) or not isinstance(answer, int):
        raise Wrong("a number of bytes", shown(answer), "the first line of the table")
    memory = storage_liveness(build(program(_PROGRAM), target="numpy"))["main"]
    if answer == memory.saved_bytes:
        return
    known = {
        memory.unplanned_bytes: "the bytes of all tensors",
        memory.planned_bytes: "the bytes of all storages",
        memory.peak: "the peak",
    }
    said = f", which is {known[answer]}" if answer in known else ""
    raise Wrong(
        "what is saved: one sum less another",
        f"{shown(answer)}{said}",
        "the first line of the table names both sums",
    )
