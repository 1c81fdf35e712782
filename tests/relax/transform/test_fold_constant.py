"""FoldConstant: what depends on constants only is computed at once."""

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.ir import GenericConst, Target
from relaxlab.relax.transform import BindParams, FoldConstant, LegalizeOps, fold_constant
from tests.relax.transform.checks import assert_unchanged, module

W = np.arange(6, dtype=np.float32).reshape(2, 3)


def fold(functions, legalize=True, **params):
    mod = BindParams("main", params)(module(functions)) if params else module(functions)
    with Target("llvm"):
        mod = LegalizeOps()(mod) if legalize else mod
        text = mod.script()
        folded = FoldConstant()(mod)
    assert mod.script() == text
    assert FoldConstant()(folded) is folded
    return folded["main"]


def values(func):
    """Return the constants that a function's calls use, in order."""
    found = []
    for block in func.body.blocks:
        for binding in block.bindings:
            args = [a for arg in binding.value.args for a in getattr(arg, "fields", (arg,))]
            found.extend(a.value.numpy() for a in args if isinstance(a, GenericConst))
    return found


CHAIN = """
@R.function
def main(x: R.Tensor((3, 2), "float32"), w: R.Tensor((2, 3), "float32")):
    with R.dataflow():
        a = R.permute_dims(w)
        b = R.exp(a)
        c = R.add(x, b)
        R.output(c)
    return c
"""


@pytest.mark.parametrize("legalize", [True, False], ids=["kernels", "operators"])
def test_a_chain_of_constants_becomes_one(legalize):
    main = fold(CHAIN, legalize, w=W)
    (block,) = main.body.blocks
    assert [binding.var.name for binding in block.bindings] == ["c"]
    (got,) = values(main)
    np.testing.assert_allclose(got, np.exp(W.T), rtol=1e-6)


def test_operators_are_folded_in_dataflow_blocks_only():
    plain = CHAIN.replace("with R.dataflow():", "if True:").replace("        R.output(c)\n", "")
    plain = plain.replace("    if True:\n", "").replace("\n        ", "\n    ")
    mod = BindParams("main", {"w": W})(module(plain))
    assert FoldConstant()(mod) is mod
    assert len(fold(plain, w=W).body.blocks[0].bindings) == 1, "kernel calls are folded anywhere"


def test_several_outputs():
    main = fold(
        """
        @R.function
        def main(x: R.Tensor((2, 1), "float32"), w: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                s = R.split(w, 3, axis=1)
                t = s[2]
                c = R.add(x, t)
                R.output(s, c)
            return (s, c)
        """,
        w=W,
    )
    bound = main.body.blocks[0].bindings[0].value
    np.testing.assert_array_equal(bound.fields[1].value.numpy(), W[:, 1:2])


def test_large_results_of_nothing_stay_calls():
    functions = """
    @R.function
    def main(x: R.Tensor(({n},), "float32")):
        with R.dataflow():
            a = R.ones(R.shape([{n}]), "float32")
            b = R.add(a, x)
            R.output(b)
        return b
    """
    assert len(values(fold(functions.format(n=1024)))) == 1
    assert values(fold(functions.format(n=1025))) == []


def test_what_does_not_depend_on_constants_only_stays():
    assert_unchanged(
        FoldConstant(),
        """
        @T.prim_func(private=True)
        def k(A: T.Buffer((2,)), s: T.int64, B: T.Buffer((2,))):
            for i in range(2):
                B[i] = A[i] + T.Cast("float32", s)

        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor((2,), "float32")):
            n = T.int64()
            with R.dataflow():
                a = R.exp(y)
                b = R.call_tir(
                    Module.k, (R.const([1, 2], "float32"), 3), out_ty=R.Tensor((2,), "float32")
                )
                c = R.full(R.shape([n]), R.const(1, "float32"))
                R.output(a, b, c)
            return (a, b, c)
        """,
    )


def test_shapes_that_constants_hold():
    main = fold(
        """
        @R.function
        def main(x: R.Tensor((6,), "float32")):
            with R.dataflow():
                s = R.tensor_to_shape(R.const([2, 3], "int64"))
                t = R.shape_to_tensor(R.shape([4, 5]))
                u = R.add(t, t)
                R.output(s, u)
            return (s, u)
        """,
        legalize=False,
    )
    (binding,) = main.body.blocks[0].bindings
    assert [dim.value for dim in binding.value.values] == [2, 3]
    np.testing.assert_array_equal(main.body.body.fields[1].value.numpy(), [8, 10])


def test_a_shape_held_by_a_variable_is_put_in_place():
    main = fold(
        """
        @R.function
        def main(x: R.Tensor((6,), "float32")):
            with R.dataflow():
                s = R.shape([2, 3])
                y = R.reshape(x, s)
                R.output(y)
            return y
        """,
        legalize=False,
    )
    (binding,) = main.body.blocks[0].bindings
    assert [dim.value for dim in binding.value.args[1].values] == [2, 3]


def test_a_kernel_that_cannot_be_built_stays(monkeypatch):
    def refuse(func, target):
        raise InternalError("bound to threads")

    monkeypatch.setattr(fold_constant, "build", refuse)
    main = fold(CHAIN, w=W)
    assert len(main.body.blocks[0].bindings) == 3
