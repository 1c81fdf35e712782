"""EliminateCommonSubexpr: what is computed twice is computed once."""

import time

import pytest

from relaxlab import relax
from relaxlab.relax import op
from relaxlab.relax.analysis import check_well_formed
from relaxlab.relax.transform import EliminateCommonSubexpr
from tests.relax.transform.checks import assert_becomes, assert_unchanged


def test_calls_tuples_and_constants_in_and_behind_a_block():
    result = assert_becomes(
        EliminateCommonSubexpr(),
        """
        @R.function
        def f(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.exp(x)
                t = (a, x)
                u = (b, x)
                c = R.tanh(x)
                d = t[0]
                e = u[0]
                R.output(c, d, e)
            g = R.exp(x)
            h = R.tanh(x)
            return (c, d, e, g, h)
        """,
        """
        @R.function
        def f(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = a
                t = (a, x)
                u = t
                c = R.tanh(x)
                d = t[0]
                e = d
                R.output(c, d, e)
            g = R.exp(x)
            h = c
            return (c, d, e, g, c)
        """,
    )
    assert check_well_formed(result)


def test_branches_know_what_is_around_them_only():
    assert_becomes(
        EliminateCommonSubexpr(),
        """
        @R.function
        def f(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            a = R.exp(x)
            if c:
                b = R.exp(x)
                d = R.sin(x)
                r = R.add(b, d)
            else:
                e = R.sin(x)
                r = R.add(a, e)
            g = R.sin(x)
            return (r, g)
        """,
        """
        @R.function
        def f(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            a = R.exp(x)
            if c:
                b = a
                d = R.sin(x)
                r = R.add(a, d)
            else:
                e = R.sin(x)
                r = R.add(a, e)
            g = R.sin(x)
            return (r, g)
        """,
    )


def test_local_functions_are_a_world_of_their_own():
    assert_becomes(
        EliminateCommonSubexpr(call_only=True),
        """
        @R.function
        def f(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            @R.function
            def g(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                b = R.exp(x)
                c = R.exp(x)
                d = R.add(b, c)
                return d
            e = g(a)
            h = g(a)
            return (e, h)
        """,
        """
        @R.function
        def f(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            @R.function
            def g(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                b = R.exp(x)
                c = b
                d = R.add(b, b)
                return d
            e = g(a)
            h = e
            return (e, e)
        """,
    )


@pytest.mark.parametrize("call_only", [False, True])
def test_effects_allocations_and_other_types_stay(call_only):
    assert_unchanged(
        EliminateCommonSubexpr(call_only),
        """
        @R.function(pure=False)
        def f(x: R.Tensor(("n",), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            m = T.int64()
            a = R.print(x)
            b = R.print(x)
            c = R.call_packed("g", x, ty_args=(R.Tensor((4,), "float32"),))
            d = R.call_packed("g", x, ty_args=(R.Tensor((4,), "float32"),))
            e = R.builtin.alloc_tensor(R.shape([4]), "float32", 0)
            g = R.builtin.alloc_tensor(R.shape([4]), "float32", 0)
            h = R.exp(y)
            i: R.Tensor(dtype="float32") = R.exp(y)
            j = R.match_cast(y, R.Tensor((n,), "float32"))
            k = R.match_cast(y, R.Tensor((m,), "float32"))
            o = R.astype(x, "float16")
            p = R.astype(x, "int32")
            return (c, d, e, g, h, i, j, k, o, p)
        """,
    )


def test_equal_checks_are_one_check():
    assert_becomes(
        EliminateCommonSubexpr(),
        """
        @R.function
        def f(y: R.Tensor(ndim=1, dtype="float32")):
            m = T.int64()
            a = R.match_cast(y, R.Tensor((m,), "float32"))
            b = R.match_cast(y, R.Tensor((m,), "float32"))
            c = R.add(a, b)
            return c
        """,
        """
        @R.function
        def f(y: R.Tensor(ndim=1, dtype="float32")):
            m = T.int64()
            a = R.match_cast(y, R.Tensor((m,), "float32"))
            b = a
            c = R.add(a, a)
            return c
        """,
    )


def test_values_only_where_asked():
    text = """
        @R.function
        def f(x: R.Tensor((4,), "float32")):
            t = (x, x)
            u = (x, x)
            a = t[0]
            b = u[0]
            return (a, b)
        """
    assert_unchanged(EliminateCommonSubexpr(call_only=True), text)
    assert_becomes(
        EliminateCommonSubexpr(),
        text,
        text.replace("u = (x, x)", "u = t")
        .replace("b = u[0]", "b = a")
        .replace("(a, b)", "(a, a)"),
    )


def test_time_is_linear():
    def seconds(length):
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType([4], "float32"))
        with builder.function("main", [x]):
            with builder.dataflow():
                y = x
                for _ in range(length):
                    y = builder.emit(op.add(op.exp(y), op.exp(y)))
                out = builder.emit_output(y)
            builder.emit_func_output(out)
        mod = builder.get()
        start = time.process_time()
        EliminateCommonSubexpr()(mod)
        return time.process_time() - start

    seconds(10)
    assert seconds(800) < 10 * seconds(200)
