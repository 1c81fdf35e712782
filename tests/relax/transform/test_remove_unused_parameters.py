# ruff: noqa: E501  # programs as they print
"""RemoveUnusedParameters: what a private function does not use is not passed."""

from relaxlab.relax.transform import RemoveUnusedParameters
from tests.relax.transform.checks import assert_becomes, assert_unchanged

T = 'R.Tensor((4,), "float32")'


def test_unused_values_go():
    assert_becomes(
        RemoveUnusedParameters(),
        f"""
        @R.function(private=True)
        def sub(a: {T}, b: {T}, c: {T}) -> {T}:
            d = R.add(a, c)
            return d

        @R.function
        def main(x: {T}, y: {T}) -> {T}:
            z = Module.sub(x, y, y)
            return z
        """,
        f"""
        @R.function(private=True)
        def sub(a: {T}, c: {T}) -> {T}:
            d = R.add(a, c)
            return d

        @R.function
        def main(x: {T}, y: {T}) -> {T}:
            z = Module.sub(x, y)
            return z
        """,
    )


def test_sizes_that_an_unused_value_defined_are_passed_themselves():
    assert_becomes(
        RemoveUnusedParameters(),
        """
        @R.function(private=True)
        def sub(a: R.Tensor(("n", "m")), b: R.Tensor(("m", "k + 1")), s: R.Shape(["k"])) -> R.Tensor(("n",)):
            n = T.int64()
            k = T.int64()
            z = R.zeros(R.shape([n, k]), "float32")
            y = R.sum(z, axis=1)
            return y

        @R.function
        def main(x: R.Tensor(("p", 8)), w: R.Tensor((8, "q"))) -> R.Tensor(("p",)):
            p = T.int64()
            q = T.int64()
            y = Module.sub(x, w, R.shape([q - 1]))
            return y
        """,
        """
        @R.function(private=True)
        def sub(param_k: R.Shape(["k"]), param_n: R.Shape(["n"])) -> R.Tensor(("n",)):
            n = T.int64()
            k = T.int64()
            z = R.zeros(R.shape([n, k]), "float32")
            y = R.sum(z, axis=1)
            return y

        @R.function
        def main(x: R.Tensor(("p", 8)), w: R.Tensor((8, "q"))) -> R.Tensor(("p",)):
            p = T.int64()
            q = T.int64()
            y = Module.sub(R.shape([q - 1]), R.shape([p]))
            return y
        """,
    )


def test_a_size_that_a_caller_does_not_know_keeps_the_parameter():
    """TVM fails here: it has no value to pass."""
    assert_unchanged(
        RemoveUnusedParameters(),
        """
        @R.function(private=True)
        def sub(a: R.Tensor(("n",))) -> R.Tensor(("n",)):
            n = T.int64()
            z = R.zeros(R.shape([n]), "float32")
            return z

        @R.function
        def main(x: R.Tensor(ndim=1)):
            y = Module.sub(x)
            return y
        """,
    )


def test_used_parameters_public_functions_and_recursion():
    assert_unchanged(
        RemoveUnusedParameters(),
        f"""
        @R.function(private=True)
        def rec(a: {T}, b: {T}) -> {T}:
            y = Module.rec(a, b)
            return y

        @R.function
        def main(x: {T}, unused: {T}) -> {T}:
            y = Module.rec(x, x)
            return y
        """,
    )
