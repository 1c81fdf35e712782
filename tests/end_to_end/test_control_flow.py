"""Branches and recursion, from script to result, where the real TVM is wrong or gives up."""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.script import from_source

BRANCHES = """
@I.ir_module
class Module:
    @R.function
    def main(
        c: R.Tensor((), "bool"), x: R.Tensor((2, 3), "float32")
    ) -> R.Tensor((2, 3), "float32"):
        before = R.exp(x)
        if c:
            a = R.add(before, x)
            b = R.multiply(a, a)
            r = R.negative(b)
        else:
            d = R.multiply(before, x)
            e = R.add(d, d)
            r = R.exp(e)
        s = R.add(r, x)
        t = R.multiply(s, s)
        return t
"""
COUNT = """
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(n: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
        cls = Module
        c = R.less_equal(n, R.const(0, "int32"))
        if c:
            r = n
        else:
            m = R.subtract(n, R.const(1, "int32"))
            p = cls.main(m)
            r = R.add(p, R.const(1, "int32"))
        return r
"""


@pytest.mark.parametrize("condition", [True, False])
def test_both_branches_may_allocate(condition):
    vm = relax.VirtualMachine(relax.build(from_source(BRANCHES), "numpy"), runtime.cpu())
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    before = np.exp(x)
    r = -((before + x) ** 2) if condition else np.exp(2 * before * x)
    result = vm["main"](np.array(condition), x).numpy()
    np.testing.assert_allclose(result, (r + x) ** 2, rtol=1e-5)


def test_recursion_100_000_deep_has_the_right_value_and_the_limit_is_an_error():
    vm = relax.VirtualMachine(relax.build(from_source(COUNT), "numpy"), runtime.cpu())
    assert vm["main"](np.array(100_000, np.int32)).numpy() == 100_000
    vm.recursion_limit = 500
    with pytest.raises(RecursionError, match="500"):
        vm["main"](np.array(1000, np.int32))
    assert vm["main"](np.array(3, np.int32)).numpy() == 3
