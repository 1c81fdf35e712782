"""Chapter 02, from a script to a program.

Examples
--------
>>> from relaxlab.exercises import WrongAnswer, check
>>> try:
...     check("02.q1", None)
... except WrongAnswer as wrong:
...     print(wrong.found.expected)
an IRModule, as a block builder's get() returns it
"""

from typing import Any

import numpy as np

from relaxlab.exercises.exercise import Wrong, exercise, shown
from relaxlab.ir import IRModule
from relaxlab.relax.vm_build import build
from relaxlab.runtime.device import cpu
from relaxlab.runtime.vm import VirtualMachine


@exercise("02.q1")
def square_of_relu(answer: Any) -> None:
    """Judge ``relu(x) * relu(x)`` for any number of rows."""
    if not isinstance(answer, IRModule):
        raise Wrong("an IRModule, as a block builder's get() returns it", shown(answer), "get()")
    names = [gvar.name_hint for gvar in answer.functions]
    if "main" not in names:
        raise Wrong("a function main", ", ".join(names) or "no function", "builder.function")
    machine = VirtualMachine(build(answer, target="numpy"), cpu())
    for rows in (2, 5):
        x = np.linspace(-1, 2, 3 * rows, dtype="float32").reshape(rows, 3)
        try:
            got = machine["main"](x).numpy()
        except RuntimeError as error:
            raise Wrong(
                f"a function that takes {rows} rows", shown(str(error)), "a size that is a variable"
            ) from error
        expected = np.maximum(x, 0) ** 2
        if got.shape != expected.shape or not np.allclose(got, expected):
            raise Wrong(
                f"for {x[0].tolist()}, something that is never negative",
                shown(np.array2string(got.reshape(-1)[:3])),
                "which two operators are asked for, and in which order?",
            )
