"""LowerAllocTensor: a storage for each allocation that is left."""

import pytest

from relaxlab.errors import InternalError
from relaxlab.relax.transform import LowerAllocTensor
from tests.relax.transform.checks import assert_becomes, assert_unchanged, module


def test_bytes_are_a_plain_product():
    assert_becomes(
        LowerAllocTensor(),
        """
        @R.function(pure=False)
        def f(x: R.Tensor(("n", 3), "float32")):
            n = T.int64()
            a = R.builtin.alloc_tensor(R.shape([n, 3]), R.dtype("float16"), 1, R.str("shared"))
            b = R.builtin.alloc_tensor(R.shape([]), R.dtype("bool"), 0, R.str("global"))
            return (a, b)
        """,
        """
        @R.function(pure=False)
        def f(x: R.Tensor(("n", 3), "float32")):
            n = T.int64()
            storage = R.memory.alloc_storage(
                R.shape([2 * n * 3]), 1, R.str("shared"), R.dtype("uint8")
            )
            a = R.memory.alloc_tensor(storage, 0, R.shape([n, 3]), R.dtype("float16"), 1)
            storage1 = R.memory.alloc_storage(R.shape([1]), 0, R.str("global"), R.dtype("uint8"))
            b = R.memory.alloc_tensor(storage1, 0, R.shape([]), R.dtype("bool"), 0)
            return (a, b)
        """,
    )


def test_names_start_anew_in_each_function():
    text = LowerAllocTensor()(
        module(
            """
            @R.function(pure=False)
            def f(x: R.Tensor((2,), "float32")):
                a = R.builtin.alloc_tensor(R.shape([2]), R.dtype("float32"), 0)
                return a

            @R.function(pure=False)
            def g(x: R.Tensor((2,), "float32")):
                a = R.builtin.alloc_tensor(R.shape([2]), R.dtype("float32"), 0)
                return a
            """
        )
    ).script()
    assert text.count("storage: R.Any") == 2


def test_a_shape_that_is_a_variable():
    mod = module(
        """
        @R.function(pure=False)
        def f(s: R.Shape(ndim=2)):
            a = R.builtin.alloc_tensor(s, R.dtype("float32"), 0)
            return a
        """
    )
    with pytest.raises(InternalError, match="written-out shape"):
        LowerAllocTensor()(mod)


def test_nothing_to_do():
    assert_unchanged(
        LowerAllocTensor(),
        """
        @R.function
        def f(x: R.Tensor((2,), "float32")):
            return x
        """,
    )
