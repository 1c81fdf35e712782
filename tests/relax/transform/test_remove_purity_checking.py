"""RemovePurityChecking: pure functions are marked, promises of purity become plain calls."""

from relaxlab.relax.transform import RemovePurityChecking
from tests.relax.transform.checks import assert_becomes, assert_unchanged


def test_promises_of_purity():
    assert_becomes(
        RemovePurityChecking(),
        """
        @R.function
        def f(x: R.Tensor((2,), "float32"), g: R.Object):
            a = R.call_pure_packed("p", x, R.shape([2]), ty_args=R.Tensor((2,), "float32"))
            b = R.call_inplace_packed("q", a, inplace_indices=0, ty_args=R.Tensor((2,), "float32"))
            c = R.invoke_pure_closure(g, (b,), ty_args=R.Tensor((2,), "float32"))
            return c
        """,
        """
        @R.function
        def f(x: R.Tensor((2,), "float32"), g: R.Object):
            R.func_attr({"relax.force_pure": True})
            a = R.call_packed("p", x, R.shape([2]), ty_args=R.Tensor((2,), "float32"))
            b = R.call_packed("q", a, ty_args=R.Tensor((2,), "float32"))
            c = R.invoke_closure(g, (b,), ty_args=R.Tensor((2,), "float32"))
            return c
        """,
    )


def test_local_functions_are_marked_too():
    result = assert_becomes(
        RemovePurityChecking(),
        """
        @R.function
        def f(x: R.Tensor((2,), "float32")):
            @R.function
            def g(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                return y
            z = g(x)
            return z
        """,
        """
        @R.function
        def f(x: R.Tensor((2,), "float32")):
            R.func_attr({"relax.force_pure": True})
            @R.function
            def g(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                R.func_attr({"relax.force_pure": True})
                return y
            z = g(x)
            return z
        """,
    )
    assert result["f"].is_pure


def test_impure_functions_stay_as_they_are():
    assert_unchanged(
        RemovePurityChecking(),
        """
        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32")):
            y = R.call_packed("p", x, ty_args=R.Tensor((2,), "float32"))
            return y
        """,
    )
