"""ToNonDataflow: blocks dissolve, names and order stay."""

from relaxlab.relax.expr import DataflowVar
from relaxlab.relax.transform import ToNonDataflow
from tests.relax.transform.checks import assert_becomes, assert_unchanged


def test_blocks_dissolve_and_merge():
    result = assert_becomes(
        ToNonDataflow(),
        """
        @R.function
        def f(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.exp(a)
                R.output(b)
            R.print(b)
            with R.dataflow():
                c = R.exp(b)
                R.output(c)
            return c
        """,
        """
        @R.function
        def f(x: R.Tensor((2,), "float32")):
            a = R.exp(x)
            b = R.exp(a)
            R.print(b)
            c = R.exp(b)
            return c
        """,
    )
    (block,) = result["f"].body.blocks
    assert not any(isinstance(binding.var, DataflowVar) for binding in block.bindings)


def test_branches_and_local_functions():
    assert_becomes(
        ToNonDataflow(),
        """
        @R.function
        def f(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")):
            @R.function
            def g(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                with R.dataflow():
                    z = R.exp(y)
                    R.output(z)
                return z
            if c:
                with R.dataflow():
                    a = R.exp(x)
                    b = R.exp(a)
                    R.output(b)
                r = b
            else:
                r = g(x)
            return r
        """,
        """
        @R.function
        def f(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")):
            @R.function
            def g(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                z = R.exp(y)
                return z
            if c:
                a = R.exp(x)
                b = R.exp(a)
                r = b
            else:
                r = g(x)
            return r
        """,
    )


def test_match_cast_to_a_dataflow_variable():
    assert_becomes(
        ToNonDataflow(),
        """
        @R.function
        def f(x: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            with R.dataflow():
                y = R.match_cast(x, R.Tensor((n,), "float32"))
                w = R.zeros((n,), "float32")
                z = R.add(y, w)
                R.output(z)
            return z
        """,
        """
        @R.function
        def f(x: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            y = R.match_cast(x, R.Tensor((n,), "float32"))
            w = R.zeros((n,), "float32")
            z = R.add(y, w)
            return z
        """,
    )


def test_nothing_to_do():
    assert_unchanged(
        ToNonDataflow(),
        """
        @R.function
        def f(x: R.Tensor((2,), "float32")):
            y = R.exp(x)
            return y
        """,
    )
