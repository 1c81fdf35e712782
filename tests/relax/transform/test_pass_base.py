"""Function and dataflow-block passes, and the decorators that make them."""

from dataclasses import dataclass

import pytest

from relaxlab.errors import InternalError
from relaxlab.ir import PassContext, replace
from relaxlab.relax.expr import DataflowBlock
from relaxlab.relax.transform import (
    DataflowBlockPass,
    FunctionPass,
    dataflowblock_pass,
    function_pass,
    module_pass,
)
from tests.relax.transform.checks import module

TWO = """
@T.prim_func
def kernel(A: T.Buffer((2,), "float32")):
    for i in range(2):
        A[i] = T.float32(0)

@R.function
def f(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")):
    with R.dataflow():
        a = R.exp(x)
        b = R.exp(a)
        R.output(b)
    if c:
        with R.dataflow():
            d = R.exp(b)
            R.output(d)
        e = d
    else:
        e = b
    return e

@R.function
def g(x: R.Tensor((2,), "float32")):
    return x
"""


@dataclass(frozen=True)
class Mark(FunctionPass):
    value: int = 1

    def transform_function(self, func, mod, ctx):
        return func.with_attr("mark", self.value)


def test_function_pass_sees_relax_functions_only():
    mod = module(TWO)
    marked = Mark(7)(mod)
    assert marked["f"].attrs["mark"] == marked["g"].attrs["mark"] == 7
    assert marked["kernel"] is mod["kernel"]
    assert "mark" not in mod["f"].func_attrs


def test_function_pass_that_changes_nothing_returns_the_module():
    mod = module(TWO)
    assert function_pass(lambda func, mod, ctx: func, name="same")(mod) is mod


def test_decorated_function_and_class():
    @function_pass(opt_level=2, name="Two")
    def by_function(func, mod, ctx):
        assert isinstance(ctx, PassContext)
        return func.with_attr("mark", "function")

    @function_pass(opt_level=1)
    class ByClass:
        def __init__(self, value):
            self.value = value

        def transform_function(self, func, mod, ctx):
            return func.with_attr("mark", self.value)

    assert (by_function.info.name, by_function.info.opt_level) == ("Two", 2)
    made = ByClass("class")
    assert (made.info.name, made.info.opt_level) == ("ByClass", 1)
    mod = module(TWO)
    assert by_function(mod)["g"].attrs["mark"] == "function"
    assert made(mod)["g"].attrs["mark"] == "class"


def test_module_pass_is_here_too():
    mod = module(TWO)
    assert module_pass(lambda mod, ctx: mod, name="same")(mod) is mod


def test_block_pass_visits_every_block_in_order():
    seen = []

    @dataflowblock_pass(name="Look")
    def look(block, mod, ctx):
        seen.append([binding.var.name for binding in block.bindings])
        return block

    mod = module(TWO)
    assert look(mod) is mod
    assert seen == [["a", "b"], ["d"]]


def test_block_pass_rewrites():
    class Rebuild:
        def transform_dataflowblock(self, block, mod, ctx):
            return DataflowBlock(block.bindings)

    mod = module(TWO)
    result = dataflowblock_pass(Rebuild)()(mod)
    assert result.script() == mod.script()
    assert result["f"].body.blocks[0] is not mod["f"].body.blocks[0]
    assert result["g"] is mod["g"]


def test_block_pass_may_not_delete_what_is_visible_outside():
    @dataclass(frozen=True)
    class DropLast(DataflowBlockPass):
        def transform_dataflowblock(self, block, mod, ctx):
            return replace(block, bindings=block.bindings[:-1])

    with pytest.raises(InternalError, match="should not rewrite or delete any global-scope Var"):
        DropLast()(module(TWO))


def test_block_pass_may_not_lose_a_symbolic_variable():
    @dataflowblock_pass(name="DropCast")
    def drop_cast(block, mod, ctx):
        return replace(block, bindings=block.bindings[1:])

    mod = module(
        """
        @R.function
        def f(x: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            with R.dataflow():
                y = R.match_cast(x, R.Tensor((n,), "float32"))
                z = R.exp(x)
                R.output(z)
            return z
        """
    )
    with pytest.raises(InternalError, match="'n' is visible"):
        drop_cast(mod)


@pytest.mark.parametrize("kind", [FunctionPass, DataflowBlockPass])
def test_a_pass_that_says_nothing(kind):
    with pytest.raises(TypeError, match="needs `transform_"):
        kind()(module(TWO))
