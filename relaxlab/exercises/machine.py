"""Chapter 06, the machine.

Examples
--------
>>> from relaxlab.exercises import WrongAnswer, check
>>> try:
...     check("06.q1", 1000)
... except WrongAnswer as wrong:
...     print(wrong.found.got)
1000 (int)
"""

from typing import Any, Final

from relaxlab.exercises.exercise import Wrong, exercise, program, shown
from relaxlab.relax.vm_build import build
from relaxlab.runtime.vm.bytecode import Call
from relaxlab.runtime.vm.disassemble import function_name

_PROGRAM: Final = """
@I.ir_module
class Sizes:
    @R.function
    def double(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return R.add(x, x)

    @R.function
    def main(
        x: R.Tensor(("n", "m"), "float32"), y: R.Tensor(("n",), "float32")
    ) -> R.Tensor(("n",), "float32"):
        cls = Sizes
        return R.add(cls.double(y), R.sum(x, axis=1))
"""


@exercise("06.q1")
def writes_n(answer: Any) -> None:
    """Judge the number of the instruction of ``main`` that stores ``n``."""
    if isinstance(answer, bool) or not isinstance(answer, int):
        raise Wrong("the number of an instruction", shown(answer), "left of the code")
    ex = build(program(_PROGRAM), target="numpy")
    info = next(one for one in ex.func_table if one.name == "main")
    if not info.start_instr <= answer < info.end_instr:
        raise Wrong(
            f"an instruction of main: {info.start_instr} to {info.end_instr - 1}",
            shown(answer),
            "the other function has a heap of its own",
        )
    called = {
        pc: function_name(ex, instruction.func_idx)
        for pc in range(info.start_instr, info.end_instr)
        if isinstance(instruction := ex.instruction(pc), Call)
    }
    first = next(pc for pc, name in called.items() if name == "vm.builtin.match_shape")
    if answer == first:
        return
    name = called.get(answer, "no call")
    if name == "vm.builtin.match_shape":
        raise Wrong(
            "the instruction that stores the size",
            f"one that compares it ({answer})",
            "code 1 stores, code 3 compares",
        )
    raise Wrong(
        "an instruction that stores a size in the heap",
        f"{answer}, which is {name}",
        "which builtin compares a tensor with its annotation?",
    )
