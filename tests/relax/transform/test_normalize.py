"""Normalize: a function that was put together by hand comes out in normal form."""

from relaxlab.ir import Call, IRModule, Op
from relaxlab.relax.expr import BindingBlock, Function, SeqExpr, TensorType, Var, VarBinding
from relaxlab.relax.transform import Normalize
from tests.relax.transform.checks import assert_unchanged


def test_nested_calls_are_bound_and_blocks_merged():
    x, y, z = (Var(n, TensorType([4], "float32")) for n in "xyz")
    exp = Op.get("relax.exp")
    nested = Call(exp, (Call(exp, (x,)),))
    blocks = (
        BindingBlock((VarBinding(y, nested),)),
        BindingBlock(()),
        BindingBlock((VarBinding(z, Call(exp, (y,))),)),
    )
    func = Function((x,), SeqExpr(blocks, Call(exp, (z,))), TensorType([4], "float32"))
    result = Normalize()(IRModule({"f": func}))
    (block,) = result["f"].body.blocks
    assert [binding.var.name for binding in block.bindings] == ["gv", "y", "z", "gv1"]
    assert all(binding.value.ty == TensorType([4], "float32") for binding in block.bindings)
    assert Normalize()(result) is result


def test_nothing_to_do():
    assert_unchanged(
        Normalize(),
        """
        @R.function
        def f(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            if c:
                y = R.exp(x)
            else:
                y = x
            return y
        """,
    )
