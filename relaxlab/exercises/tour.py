"""Chapter 00, the tour.

Examples
--------
>>> from relaxlab.exercises import check
>>> from relaxlab.script import from_source
>>> answer = from_source('''
... @I.ir_module
... class Residual:
...     @R.function
...     def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 4), "float32")):
...         y = R.add(R.nn.relu(R.matmul(x, w)), x)
...         return y
... ''')
>>> check("00.q1", answer)
00.q1 is right
True
"""

from typing import Any

import numpy as np

from relaxlab.exercises.exercise import Wrong, exercise, shown
from relaxlab.ir import IRModule
from relaxlab.relax.vm_build import build
from relaxlab.runtime.device import cpu
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.vm import VirtualMachine


@exercise("00.q1")
def residual_layer(answer: Any) -> None:
    """Judge ``relu(x @ w) + x``."""
    if not isinstance(answer, IRModule):
        raise Wrong(
            "an IRModule with a function main",
            shown(answer),
            "the class under `@I.ir_module` is the answer, not what it computes",
        )
    names = [var.name_hint for var in answer.functions]
    if "main" not in names:
        raise Wrong("a function main", f"the functions {', '.join(names)}", "keep its name")
    random = np.random.default_rng(1)
    x, w = (random.integers(-3, 4, shape).astype("float32") for shape in ((2, 4), (4, 4)))
    got = VirtualMachine(build(answer), cpu())["main"](x, w)
    if not isinstance(got, Tensor):
        raise Wrong("one tensor", shown(got), "what does `return` name?")
    expected = np.maximum(x @ w, 0) + x
    y = got.numpy()
    if y.shape != expected.shape:
        raise Wrong(f"shape {expected.shape}", f"shape {y.shape}", "the shape of x is the result's")
    if not np.allclose(y, expected):
        row, column = np.argwhere(~np.isclose(y, expected))[0]
        raise Wrong(
            f"{expected[row, column]} at [{row}, {column}], for x = {x[row].tolist()} and "
            f"w[:, {column}] = {w[:, column].tolist()}",
            f"{y[row, column]} there",
            "compute this one number by hand, step by step, and compare with your bindings",
        )
