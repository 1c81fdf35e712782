"""LazyGetInput and LazySetOutput: weights fetched, results handed out, by callbacks."""

import numpy as np

from relaxlab import relax
from relaxlab.relax.analysis import well_formed
from relaxlab.relax.transform import LambdaLift, LazyGetInput, LazySetOutput
from relaxlab.runtime import cpu, tensor
from tests.relax.transform.checks import module

PREPARE = """
    @R.function
    def main(
        w1: R.Tensor(("n", 2), "float32"), w2: R.Tensor((2,), "float32"), w3: R.Tensor((2,))
    ):
        with R.dataflow():
            a = R.add(w1, w2)
            b = R.exp(w2)
            R.output(a, b)
        return (b, a, w2)
"""


def test_both_run():
    mod = LazySetOutput()(LazyGetInput()(module(PREPARE)))
    well_formed(mod)
    vm = relax.VirtualMachine(relax.build(LambdaLift()(mod), "numpy"), cpu())
    weights = [np.ones((3, 2), "float32"), np.array([1, 2], "float32")]
    asked, given = [], {}

    def fetch(index, name):
        asked.append((int(index), name))
        return tensor(weights[int(index)])

    vm["main"](fetch, lambda index, value: given.update({int(index): value.numpy().copy()}))
    assert asked == [(0, "w1"), (1, "w2"), (1, "w2")] or asked == [(0, "w1"), (1, "w2")]
    np.testing.assert_allclose(given[0], np.exp(weights[1]), 1e-6)
    np.testing.assert_array_equal(given[1], weights[0] + weights[1])
    np.testing.assert_array_equal(given[2], weights[1])


def test_results_are_handed_out_behind_a_dataflow_block():
    # TVM puts the calls, which have effects, into the block
    mod = LazySetOutput()(module(PREPARE))
    well_formed(mod)
    text = mod.script()
    assert text.index("R.output(a, b)") < text.index("fset_output(0, b)")
    assert text.index("fset_output(2, w2)") < text.index("with R.dataflow()")


def test_a_weight_of_both_branches_is_fetched_in_front():
    mod = LazyGetInput()(
        module(
            """
    @R.function
    def main(c: R.Tensor((), "bool"), w: R.Tensor((2,), "float32")):
        R.func_attr({"num_input": 1})
        if c:
            y = R.add(w, w)
        else:
            y = R.exp(w)
        z = R.add(y, w)
        return z
"""
        )
    )
    well_formed(mod)
    assert mod.script().count('fget_param(0, R.str("w"))') == 1


def test_private_functions_stay():
    mod = module(
        """
    @R.function(private=True)
    def f(w: R.Tensor((2,), "float32")):
        return w
"""
    )
    assert LazyGetInput()(mod) is mod
    assert LazySetOutput()(mod) is mod
