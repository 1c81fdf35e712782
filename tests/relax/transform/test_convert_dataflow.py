"""ConvertToDataflow: runs of pure bindings become blocks."""

from relaxlab.relax.transform import ConvertToDataflow
from tests.relax.transform.checks import assert_becomes, assert_unchanged


def test_runs_branches_and_existing_blocks():
    assert_becomes(
        ConvertToDataflow(),
        """
        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")):
            with R.dataflow():
                a = R.exp(x)
                R.output(a)
            b = R.exp(a)
            R.print(b)
            d = R.exp(b)
            if c:
                e = R.exp(d)
                g = R.exp(e)
                r = R.exp(g)
            else:
                r = R.exp(d)
            return r
        """,
        """
        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")):
            with R.dataflow():
                a = R.exp(x)
                b = R.exp(a)
                R.output(b)
            R.print(b)
            d = R.exp(b)
            if c:
                with R.dataflow():
                    e = R.exp(d)
                    g = R.exp(e)
                    r_then = R.exp(g)
                    R.output(r_then)
                r = r_then
            else:
                r = R.exp(d)
            return r
        """,
    )


def test_too_short():
    program = """
    @R.function(pure=False)
    def f(x: R.Tensor((2,), "float32")):
        a = R.exp(x)
        b = R.exp(a)
        R.print(b)
        return b
    """
    assert_unchanged(ConvertToDataflow(min_size=3), program)
