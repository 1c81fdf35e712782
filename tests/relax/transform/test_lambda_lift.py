"""LambdaLift: local functions move to the module; the values stay the same."""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.relax.analysis import well_formed
from relaxlab.relax.transform import LambdaLift
from tests.relax.transform.checks import assert_unchanged, module

X = np.array([1.0, 2.0], np.float32)
Y = np.array([10.0, 20.0], np.float32)
SIGNATURE = 'x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")'


def run(mod, *args):
    lifted = LambdaLift()(mod)
    well_formed(lifted)
    assert LambdaLift()(lifted) is lifted
    vm = relax.VirtualMachine(relax.build(lifted, "numpy"), runtime.cpu())
    return lifted, vm["main"](*args).numpy()


def test_closures_in_closures():
    lifted, value = run(
        module(
            f"""
            @R.function
            def main({SIGNATURE}) -> R.Tensor((2,), "float32"):
                z = R.add(x, x)
                @R.function
                def inner(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                    @R.function
                    def innermost(b: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                        s = R.add(b, z)
                        t = R.add(s, a)
                        u = R.add(t, y)
                        return u
                    q = innermost(a)
                    return q
                c = inner(x)
                return c
            """
        ),
        X,
        Y,
    )
    np.testing.assert_allclose(value, X + 2 * X + X + Y)
    text = lifted.script()
    assert "innermost: R.Any = R.make_closure(cls.main_innermost, (z, a, y))" in text
    assert "inner: R.Any = R.make_closure(cls.main_inner, (z, y))" in text


def test_recursion_with_and_without_captures():
    _, value = run(
        module(
            """
            @R.function
            def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                @R.function
                def plain(
                    i: R.Tensor((), "int32"), s: R.Tensor((2,), "float32")
                ) -> R.Tensor((2,), "float32"):
                    c = R.less(i, R.const(3, "int32"))
                    if c:
                        r = plain(R.add(i, R.const(1, "int32")), R.add(s, s))
                    else:
                        r = s
                    return r
                @R.function
                def capturing(
                    i: R.Tensor((), "int32"), s: R.Tensor((2,), "float32")
                ) -> R.Tensor((2,), "float32"):
                    c = R.less(i, R.const(4, "int32"))
                    if c:
                        r = capturing(R.add(i, R.const(1, "int32")), R.add(s, x))
                    else:
                        r = s
                    return r
                a = plain(R.const(0, "int32"), x)
                b = capturing(R.const(0, "int32"), a)
                return b
            """
        ),
        X,
    )
    np.testing.assert_allclose(value, 8 * X + 4 * X)


def test_another_name_for_a_closure():
    """TVM fails here: "Call->op must contains a function type" (run)."""
    _, value = run(
        module(
            f"""
            @R.function
            def main({SIGNATURE}) -> R.Tensor((2,), "float32"):
                @R.function
                def inner(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                    s = R.add(a, y)
                    return s
                f = inner
                c = f(x)
                return c
            """
        ),
        X,
        Y,
    )
    np.testing.assert_allclose(value, X + Y)


def test_a_symbolic_size_is_captured_as_a_scalar():
    lifted, value = run(
        module(
            """
            @R.function
            def main(
                x: R.Tensor(("k",), "float32"), y: R.Tensor((2,), "float32")
            ) -> R.Tensor((2,), "float32"):
                k = T.int64()
                @R.function
                def inner(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                    o = R.ones((k,), "float32")
                    n = R.sum(o)
                    s = R.multiply(a, n)
                    return s
                z = inner(y)
                return z
            """
        ),
        np.zeros(3, np.float32),
        Y,
    )
    np.testing.assert_allclose(value, 3 * Y)
    # a variable belongs to one function
    assert lifted["main_inner"].params[1] not in lifted["main"].params[0].ty.shape.values


def test_a_lifted_function_is_not_captured():
    lifted, value = run(
        module(
            f"""
            @R.function
            def main({SIGNATURE}) -> R.Tensor((2,), "float32"):
                @R.function
                def twice(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                    s = R.add(a, a)
                    return s
                @R.function
                def four_times(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                    s = twice(a)
                    t = twice(s)
                    return t
                z = four_times(y)
                return z
            """
        ),
        X,
        Y,
    )
    np.testing.assert_allclose(value, 4 * Y)
    assert "closure" not in lifted.script()


def test_sizes_belong_to_one_function():
    lifted, value = run(
        module(
            """
            @R.function
            def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
                n = T.int64()
                @R.function
                def inner(a: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
                    s = R.add(a, a)
                    return s
                z = inner(x)
                return z
            """
        ),
        X,
    )
    np.testing.assert_allclose(value, 2 * X)
    assert lifted["main_inner"].params[0].ty.shape != lifted["main"].params[0].ty.shape


def test_a_closure_inside_captures_the_recursive_one_around_it():
    _, value = run(
        module(
            """
            @R.function
            def main(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((2,), "float32"):
                no = R.const(False, "bool")
                @R.function
                def outer(
                    a: R.Tensor((2,), "float32"), again: R.Tensor((), "bool")
                ) -> R.Tensor((2,), "float32"):
                    @R.function
                    def step(b: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                        s = R.add(b, x)
                        t = outer(s, no)
                        return t
                    if again:
                        r = step(a)
                    else:
                        r = a
                    return r
                z = outer(x, c)
                return z
            """  # noqa: E501
        ),
        X,
        np.array(True),
    )
    np.testing.assert_allclose(value, 2 * X)


def test_functions_that_return_closures():
    lifted, value = run(
        module(
            f"""
            @R.function
            def main({SIGNATURE}) -> R.Tensor((2,), "float32"):
                f = Module.adder(x)
                z = f(y)
                return z

            @R.function(private=True)
            def adder(
                x: R.Tensor((2,), "float32")
            ) -> R.Callable((R.Tensor((2,), "float32"),), R.Tensor((2,), "float32"), True):
                @R.function
                def add(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                    s = R.add(a, x)
                    return s
                return add
            """
        ),
        X,
        Y,
    )
    np.testing.assert_allclose(value, X + Y)
    assert "R.invoke_pure_closure(f, (y,), " in lifted.script()


def test_names():
    text = """
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        @R.function
        def f(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return a
        @R.function
        def g(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            R.func_attr({"global_symbol": "named"})
            return a
        y = f(x)
        z = g(y)
        return z

    @R.function
    def main_f(x: R.Tensor((2,), "float32")):
        return x
    """
    names = {g.name_hint for g in LambdaLift()(module(text)).functions}
    assert names == {"main", "main_f", "main_f_0", "named"}
    with pytest.raises(ValueError, match="'g' has the global_symbol 'main'"):
        LambdaLift()(module(text.replace('"named"', '"main"')))


def test_nothing_to_do():
    assert_unchanged(
        LambdaLift(), "@R.function\ndef f(x: R.Tensor((2,), 'float32')):\n    return x"
    )
