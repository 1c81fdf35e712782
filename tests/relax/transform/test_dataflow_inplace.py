"""DataflowUseInplaceCalls: which arguments are written over, and that values stay."""

import numpy as np
import pytest

from relaxlab import relax
from relaxlab.relax.analysis import well_formed
from relaxlab.relax.transform import DataflowUseInplaceCalls
from relaxlab.runtime import cpu
from tests.relax.transform.checks import module

#: Statements, and how many calls write over an argument.
PROGRAMS = {
    "a parameter is never written": (["a = R.add(x, x)"], 0),
    "a value of its own": (["a = R.exp(x)", "b = R.add(a, x)"], 1),
    "the right operand": (["a = R.exp(x)", "b = R.subtract(x, a)"], 1),
    "a chain": (["a = R.exp(x)", "b = R.nn.silu(a)", "c = R.nn.relu(b)"], 2),
    "used later": (["a = R.exp(x)", "b = R.add(a, x)", "c = R.multiply(a, b)"], 1),
    "both operands": (["a = R.exp(x)", "b = R.multiply(a, a)"], 0),
    "a view is alive": (
        [
            "a = R.exp(x)",
            "v = R.expand_dims(a, axis=0)",
            "b = R.add(a, x)",
            "c = R.add(R.squeeze(v, axis=[0]), b)",
        ],
        1,
    ),
    "another type": (["a = R.sum(x, axis=0, keepdims=True)", "b = R.add(a, x)"], 0),
}


def run(mod, x):
    vm = relax.VirtualMachine(relax.build(mod, "numpy"), cpu())
    return vm["main"](x).numpy()


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    lines, count = PROGRAMS[name]
    result = lines[-1].split(" =")[0]
    body = "".join(f"            {line}\n" for line in lines)
    mod = module(
        '@R.function\ndef main(x: R.Tensor(("n", 3), "float32")):\n'
        f"        with R.dataflow():\n{body}            R.output({result})\n"
        f"        return {result}\n"
    )
    new = DataflowUseInplaceCalls()(mod)
    well_formed(new)
    assert new.script().count("R.call_tir_inplace(") == count
    assert (new is mod) == (count == 0)
    x = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
    kept = x.copy()
    np.testing.assert_allclose(run(new, x), run(mod, x), 1e-6)
    np.testing.assert_array_equal(x, kept)
