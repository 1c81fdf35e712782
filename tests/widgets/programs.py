"""Small compiled programs that several views are tested with."""

from functools import cache

import numpy as np

from relaxlab.ir import IRModule
from relaxlab.relax import build
from relaxlab.runtime.vm import VMExecutable
from relaxlab.script import from_source

SCRIPT = """
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor((2, 4), "float32"),
        w1: R.Tensor((4, 8), "float32"),
        w2: R.Tensor((8, 4), "float32"),
    ):
        with R.dataflow():
            h = R.nn.relu(R.matmul(x, w1))
            a = R.exp(R.matmul(h, w2))
            b = R.nn.softmax(R.matmul(a, w1))
            d = R.matmul(R.add(b, h), w2)
            R.output(d)
        return d

    @R.function
    def twice(x: R.Tensor((3,), "float32")):
        y = R.add(x, x)
        return y
"""


@cache
def network() -> IRModule:
    """Return a module of two functions."""
    return from_source(SCRIPT)


@cache
def executable() -> VMExecutable:
    """Return it compiled."""
    return build(network(), target="numpy")


def arguments() -> list[np.ndarray]:
    """Return arguments of its function main."""
    random = np.random.default_rng(0)
    return [random.random(shape).astype("float32") for shape in ((2, 4), (4, 8), (8, 4))]
