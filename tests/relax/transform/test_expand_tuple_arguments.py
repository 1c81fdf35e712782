"""ExpandTupleArguments: fields instead of tuples, for functions that only the module calls."""

from relaxlab.relax.transform import ExpandTupleArguments
from tests.relax.transform.checks import assert_becomes, assert_unchanged, module

T = 'R.Tensor((4,), "float32")'


def test_nested_tuples_literal_and_held_by_a_variable():
    assert_becomes(
        ExpandTupleArguments(),
        f"""
        @R.function(private=True)
        def sub(t: R.Tuple({T}, R.Tuple({T}, {T})), x: {T}) -> {T}:
            a = t[0]
            b = t[1]
            c = b[1]
            d = R.add(a, c)
            e = R.add(d, x)
            return e

        @R.function
        def main(x: {T}, y: R.Tuple({T}, {T})) -> {T}:
            u = Module.sub((x, y), x)
            s = (u, (u, x))
            v = Module.sub(s, x)
            return v
        """,
        f"""
        @R.function(private=True)
        def sub(t_0: {T}, t_1_0: {T}, t_1_1: {T}, x: {T}) -> {T}:
            d = R.add(t_0, t_1_1)
            e = R.add(d, x)
            return e

        @R.function
        def main(x: {T}, y: R.Tuple({T}, {T})) -> {T}:
            gv2: {T} = y[0]
            gv3: {T} = y[1]
            u = Module.sub(x, gv2, gv3, x)
            v = Module.sub(u, u, x, x)
            return v
        """,
    )


def test_public_functions_keep_their_signature():
    assert_unchanged(
        ExpandTupleArguments(),
        f"""
        @R.function
        def main(t: R.Tuple({T}, {T})) -> {T}:
            a = t[0]
            return a
        """,
    )


def test_a_function_that_is_used_as_a_value_keeps_its_signature():
    mod = module(
        f"""
        @R.function(private=True)
        def sub(t: R.Tuple({T}, {T})) -> {T}:
            a = t[0]
            return a

        @R.function
        def main(x: {T}):
            c = R.make_closure(Module.sub, ((x, x),))
            y = Module.sub((x, x))
            return (c, y)
        """
    )
    assert len(ExpandTupleArguments()(mod)["sub"].params) == 1


def test_the_input_keeps_its_types():
    mod = module(
        f"""
        @R.function(private=True)
        def sub(t: R.Tuple({T}, {T})) -> {T}:
            a = t[0]
            return a

        @R.function
        def main(x: {T}) -> {T}:
            y = Module.sub((x, x))
            return y
        """
    )
    old = mod.get_global_var("sub")
    result = ExpandTupleArguments()(mod)
    assert len(old.ty.params) == 1
    assert len(result.get_global_var("sub").ty.params) == 2
