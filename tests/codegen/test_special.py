"""Functions that NumPy lacks."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from relaxlab.codegen.numpy import special
from relaxlab.codegen.numpy.quiet import _public_restore, _public_silence, restore, silence

X = np.concatenate([np.linspace(-7, 7, 40001), [0.0, -0.0, 1e-8, 1e-300, 30.0, -30.0]])


def reference(x: NDArray[Any]) -> NDArray[np.float64]:
    return np.array([math.erf(float(v)) for v in x])


@pytest.mark.parametrize(("dtype", "error"), [("float32", 5e-7), ("float64", 2e-15)])
def test_erf_is_accurate(dtype: str, error: float) -> None:
    x = X.astype(dtype)
    exact = reference(x)
    actual = special.erf(x)
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, exact, rtol=error, atol=1e-30)


def test_erf_of_narrow_floats_rounds_once() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = X.astype(dtype)
        exact = reference(x.astype("float64")).astype(dtype)
        np.testing.assert_allclose(
            special.erf(x).astype("float64"), exact.astype("float64"), rtol=0.01
        )


def test_erf_at_the_edges() -> None:
    x = np.array([math.nan, math.inf, -math.inf, -0.0], "float64")
    for dtype in ("float32", "float64"):
        values = special.erf(x.astype(dtype))
        assert math.isnan(values[0])
        np.testing.assert_allclose(values[1:3], [1, -1], rtol=5e-7)
        assert math.copysign(1, values[3]) == -1


def test_erf_works_in_place_in_blocks_and_on_views() -> None:
    x = np.random.default_rng(0).standard_normal((300, 200)).astype("float32")
    exact = special.erf(x.copy()[:1])
    view = x[::2, ::2]
    np.testing.assert_array_equal(special.erf(view)[0], exact[0, ::2])
    assert special.erf(x, x) is x
    np.testing.assert_array_equal(x[:1], exact)


def test_sigmoid_rsqrt_and_exp10() -> None:
    x = np.array([0.0, 1.0, 4.0], "float32")
    out = np.zeros(3, "float32")
    assert special.sigmoid(x, out) is out
    np.testing.assert_allclose(out, 1 / (1 + np.exp(-x)), rtol=1e-6)
    np.testing.assert_allclose(special.rsqrt(x[1:]), [1, 0.5])
    np.testing.assert_allclose(special.exp10(x), [1, 10, 10000])
    assert float(special.sigmoid(np.float32(0))) == 0.5
    assert special.rsqrt(np.float32(4)).dtype == np.float32


@pytest.mark.parametrize("pair", [(silence, restore), (_public_silence, _public_restore)])
def test_warnings_are_silenced_in_pairs(pair: Any) -> None:
    before = np.geterr()
    state = pair[0]()
    assert set(np.geterr().values()) == {"ignore"}
    pair[1](state)
    assert np.geterr() == before
