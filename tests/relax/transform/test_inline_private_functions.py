"""InlinePrivateFunctions: bodies where the calls were."""

import numpy as np

from relaxlab import relax, runtime
from relaxlab.relax.analysis import check_well_formed
from relaxlab.relax.transform import InlinePrivateFunctions
from relaxlab.testing import assert_allclose
from tests.relax.transform.checks import assert_becomes, assert_unchanged, module

T = 'R.Tensor((4,), "float32")'


def test_functions_that_call_functions_and_tuples():
    assert_becomes(
        InlinePrivateFunctions(),
        f"""
        @R.function(private=True)
        def inner(x: {T}) -> {T}:
            y = R.sin(x)
            return y

        @R.function(private=True)
        def outer(x: {T}, t: R.Tuple({T}, {T})) -> R.Tuple({T}, {T}):
            y = Module.inner(x)
            a = t[1]
            z = R.add(y, a)
            return (z, y)

        @R.function
        def main(x: {T}) -> {T}:
            p = Module.outer(x, (x, x))
            q = p[0]
            r = Module.inner(q)
            return r
        """,
        f"""
        @R.function
        def main(x: {T}) -> {T}:
            y = R.sin(x)
            z = R.add(y, x)
            y_1 = R.sin(z)
            return y_1
        """,
    )


SIZES = """
@R.function(private=True)
def sub(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
    n = T.int64()
    with R.dataflow():
        a = R.exp(x)
        b = R.zeros(R.shape([n]), "float32")
        d = R.add(a, b)
        R.output(d)
    return d

@R.function
def main(x: R.Tensor({shape}, dtype="float32")):
    y = Module.sub(x)
    return y
"""


def test_sizes_of_the_callee_become_those_of_the_caller():
    """TVM leaves the callee's variable there, where nothing defines it."""
    result = assert_becomes(
        InlinePrivateFunctions(),
        SIZES.format(shape='("m",)'),
        """
        @R.function
        def main(x: R.Tensor(("m",), dtype="float32")):
            m = T.int64()
            with R.dataflow():
                a = R.exp(x)
                b = R.zeros(R.shape([m]), "float32")
                d = R.add(a, b)
                R.output(d)
            return d
        """,
    )
    assert check_well_formed(result)


def test_sizes_that_the_caller_does_not_know_are_found_at_run_time():
    mod = InlinePrivateFunctions()(module(SIZES.format(shape="ndim=1")))
    assert [gvar.name_hint for gvar in mod.functions] == ["main"]
    assert check_well_formed(mod)
    vm = relax.VirtualMachine(relax.build(mod, "numpy"), runtime.cpu())
    x = np.arange(3, dtype=np.float32)
    assert_allclose(vm["main"](x).numpy(), np.exp(x), rtol=1e-6)


def test_one_function_inlined_twice_has_variables_of_its_own_each_time():
    mod = InlinePrivateFunctions()(
        module(
            f"""
            @R.function(private=True)
            def sub(x: {T}) -> {T}:
                y = R.exp(x)
                return y

            @R.function
            def main(x: {T}):
                with R.dataflow():
                    a = Module.sub(x)
                    b = Module.sub(a)
                    R.output(b)
                return b
            """
        )
    )
    (block,) = mod["main"].body.blocks
    assert len({binding.var for binding in block.bindings}) == 2
    assert check_well_formed(mod)


def test_recursion_values_and_control_flow_inside_a_dataflow_block_stay():
    mod = module(
        f"""
        @R.function(private=True)
        def rec(x: {T}) -> {T}:
            y = Module.rec(x)
            return y

        @R.function(private=True)
        def value(x: {T}) -> {T}:
            return x

        @R.function(private=True)
        def choice(x: {T}, c: R.Tensor((), "bool")) -> {T}:
            if c:
                r = R.exp(x)
            else:
                r = R.sin(x)
            return r

        @R.function
        def main(x: {T}, c: R.Tensor((), "bool")):
            f = R.make_closure(Module.value, (x,))
            a = Module.rec(x)
            with R.dataflow():
                b = Module.choice(a, c)
                R.output(b)
            return (f, b)
        """
    )
    result = InlinePrivateFunctions()(mod)
    assert check_well_formed(result)
    assert sorted(g.name_hint for g in result.functions) == ["choice", "main", "rec", "value"]


def test_control_flow_outside_of_dataflow_blocks_is_inlined():
    mod = InlinePrivateFunctions()(
        module(
            f"""
            @R.function(private=True)
            def choice(x: {T}, c: R.Tensor((), "bool")) -> {T}:
                if c:
                    r = R.exp(x)
                else:
                    r = R.sin(x)
                return r

            @R.function
            def main(x: {T}, c: R.Tensor((), "bool")):
                a = Module.choice(x, c)
                b = Module.choice(a, c)
                return b
            """
        )
    )
    assert [gvar.name_hint for gvar in mod.functions] == ["main"]
    assert mod.script().count("if c:") == 2
    assert check_well_formed(mod)


def test_no_private_functions():
    assert_unchanged(
        InlinePrivateFunctions(),
        f"""
        @R.function
        def f(x: {T}) -> {T}:
            return x

        @R.function
        def main(x: {T}):
            y = Module.f(x)
            return y
        """,
    )
