"""Comparing results, under TVM's name for it.

Counterpart: ``tvm.testing``.

Examples
--------
>>> assert_allclose([1.0, 2.0], [1.0, 2.0 + 1e-9])
"""

from typing import Any

import numpy as np

__all__ = ["assert_allclose"]


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """Check that two arrays have one shape and nearly equal elements.

    Parameters
    ----------
    actual, desired
        Tensors, or anything that NumPy takes for an array.
    rtol, atol
        Relative and absolute tolerance, as of ``numpy.allclose``.

    Raises
    ------
    AssertionError
        They differ; the message says where and by how much. Unlike ``numpy.testing``, a scalar is
        not broadcast: a wrong shape is a difference.
    """
    got, expected = np.asanyarray(_array(actual)), np.asanyarray(_array(desired))
    if got.shape != expected.shape:
        raise AssertionError(f"shapes differ: expected {expected.shape}, got {got.shape}")
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)


def _array(value: Any) -> Any:
    # A tensor on a device copies itself to the host; NumPy alone would not.
    return value.numpy() if hasattr(value, "numpy") else value
