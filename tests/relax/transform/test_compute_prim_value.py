"""ComputePrimValue: arithmetic in value position becomes host kernels."""

import numpy as np

from relaxlab import relax, runtime
from relaxlab.relax.transform import ComputePrimValue
from relaxlab.tirx import PrimFunc
from tests.relax.transform.checks import assert_unchanged, module

PROGRAM = """
@R.function(pure=False)
def f(x: R.Tensor(("n", "m"), "float32"), q: R.Prim("int64")):
    n = T.int64()
    m = T.int64()
    z = R.call_packed("f", n * m + 1, 3, q, (n * m + 1, n))
    if n > 4:
        y = R.call_packed("g", T.float32(2.5))
    else:
        y = R.call_packed("g", n)
    return (y, R.shape([n * m + 1]))

@R.function(pure=False)
def g(x: R.Tensor(("a", "b"), "float32")):
    a = T.int64()
    b = T.int64()
    y = R.call_packed("f", a * b + 1)
    return y
"""


def test_expressions_share_kernels_and_shapes_stay():
    mod = module(PROGRAM)
    result = ComputePrimValue()(mod)
    kernels = {g.name_hint: f for g, f in result.functions.items() if isinstance(f, PrimFunc)}
    name = "compute_symbolic_expr"
    assert list(kernels) == [name, f"{name}1", f"{name}2"]
    assert all(f.attrs["tirx.is_host_func"] for f in kernels.values())
    text = result.script()
    assert "return n * m + T.int64(1)" in text
    assert 'z: R.Any = R.call_packed("f", gv1, 3, q, (gv, n))' in text  # the tuple first
    assert "R.shape([n * m + 1])" in text
    # the condition is emitted once both branches have been looked at, as in TVM
    assert "gv3: T.bool = cls.compute_symbolic_expr1(n)\n        if gv3:" in text
    assert "gv4: T.int64 = cls.compute_symbolic_expr(a, b)" in text
    assert ComputePrimValue()(result) is result


def test_parameters_of_kernels_are_their_own():
    result = ComputePrimValue()(module(PROGRAM))
    (n, m) = result["f"].params[0].ty.shape.values
    assert not {n, m} & set(result["compute_symbolic_expr"].params)


def test_values():
    mod = module(
        """
        @R.function(pure=False)
        def main(x: R.Tensor(("n", "m"), "float32")):
            n = T.int64()
            m = T.int64()
            return (n * m + 1, n // 2 - m)
        """
    )
    vm = relax.VirtualMachine(relax.build(mod, "numpy"), runtime.cpu())
    assert tuple(vm["main"](np.zeros((5, 3), np.float32))) == (16, -1)


def test_nothing_to_do():
    assert_unchanged(
        ComputePrimValue(),
        """
        @R.function(pure=False)
        def f(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            y = R.call_packed("g", n, 3, True)
            return y
        """,
    )


def test_a_public_function_of_the_kernels_name_keeps_it():
    """TVM fails (run)."""
    mod = module(
        """
        @R.function(pure=False)
        def compute_symbolic_expr(n: R.Prim("int64")):
            return R.prim_value(n + 1)
        """
    )
    result = ComputePrimValue()(mod)
    assert [g.name_hint for g, f in result.functions.items() if isinstance(f, PrimFunc)] == [
        "compute_symbolic_expr1"
    ]
    assert result["compute_symbolic_expr"].params[0].name == "n"
