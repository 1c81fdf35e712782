"""Approximations are as close as they say, and their kernels are TVM's."""

import math

import numpy as np
import pytest

from relaxlab import relax
from relaxlab.relax.transform import FastMathTransform
from relaxlab.runtime import cpu
from relaxlab.script import from_source

EXACT = {
    "R.exp(x)": np.exp,
    "R.tanh(x)": np.tanh,
    "R.erf(x)": np.vectorize(math.erf),
    "R.nn.softmax(x, axis=0)": lambda x: np.exp(x - x.max(0)) / np.exp(x - x.max(0)).sum(0),
}


def program(call, dtype="float32"):
    return from_source(
        "@I.ir_module\nclass Module:\n    @R.function\n"
        f'    def main(x: R.Tensor((200, 3), "{dtype}")):\n'
        f"        y = {call}\n        return y\n"
    )


@pytest.mark.parametrize("call", EXACT)
def test_precision(call):
    mod = FastMathTransform()(program(call))
    assert any(gvar.name_hint.startswith("fast_") for gvar in mod.functions)
    x = np.linspace(-12, 12, 600, dtype="float32").reshape(200, 3)
    vm = relax.VirtualMachine(relax.build(mod, "numpy"), cpu())
    expected = EXACT[call](x.astype("float64"))
    np.testing.assert_allclose(vm["main"](x).numpy(), expected, 1e-6, 2e-6)


def test_other_dtypes_stay_exact():
    assert "T.exp(x[" in FastMathTransform()(program("R.exp(x)", "float16")).script()


def test_nothing_to_do():
    mod = program("R.add(x, x)")
    assert FastMathTransform()(mod) is mod
