"""Products with few rows equal NumPy's, and what is not for them is left alone."""

import numpy as np
import pytest

from relaxlab import te, tirx, topi
from relaxlab.codegen.llvm.compiler import compile_kernel
from relaxlab.codegen.llvm.few_rows import MOST_ROWS, multiply, program


@pytest.mark.parametrize("rows", range(2, MOST_ROWS + 1))
@pytest.mark.parametrize(("inner", "columns"), [(576, 960), (23, 8192), (577, 4112), (1, 65536)])
def test_it_equals_numpy(rows, inner, columns):
    random = np.random.default_rng(rows)
    left = random.standard_normal((rows, inner), np.float32)
    right = random.standard_normal((inner, columns), np.float32)
    out = np.full((rows, columns), np.nan, np.float32)
    assert multiply(left, right, out)
    np.testing.assert_allclose(out, left @ right, rtol=1e-4, atol=1e-3)


def test_rows_may_lie_apart():
    random = np.random.default_rng(0)
    left = random.standard_normal((10, 300), np.float32)[::2, :200]
    right = random.standard_normal((200, 640), np.float32)[:, 64:576]
    out = np.zeros((5, 600), np.float32)
    assert multiply(left, right, out[:, :512])
    np.testing.assert_allclose(out[:, :512], left @ right, rtol=1e-4, atol=1e-3)
    assert not out[:, 512:].any()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (np.ones((1, 576), "float32"), np.ones((576, 960), "float32")),
        (np.ones((MOST_ROWS + 1, 576), "float32"), np.ones((576, 960), "float32")),
        (np.ones((4, 576), "float64"), np.ones((576, 960), "float64")),
        (np.ones((4, 576), "float32"), np.ones((576, 967), "float32")),
        (np.ones((4, 16), "float32"), np.ones((16, 16), "float32")),
        (np.ones((4, 576), "float32"), np.ones((960, 576), "float32").T),
        (np.ones((576, 4), "float32").T, np.ones((576, 960), "float32")),
        (np.ones((2, 4, 96), "float32"), np.ones((2, 96, 960), "float32")),
    ],
)
def test_what_is_not_for_it_is_left_alone(left, right):
    out = np.full((*left.shape[:-1], right.shape[-1]), 7, left.dtype)
    assert not multiply(left, right, out)
    assert (out == 7).all()


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_each_width_of_vectors_has_its_text(lanes):
    text = program(lanes)
    assert f"<{lanes} x float>" in text
    assert text.count("define internal") == 8


def test_a_kernel_with_symbolic_rows_uses_it_and_is_right():
    n = tirx.Var("n", "int64")
    a = te.placeholder((n, 576), "float32", "a")
    b = te.placeholder((576, 3072), "float32", "b")
    kernel = compile_kernel(te.create_prim_func([a, b, topi.matmul(a, b)]), "product")
    random = np.random.default_rng(1)
    right = random.standard_normal((576, 3072), np.float32)
    for rows in (1, 2, 3, 8, 17):
        left = random.standard_normal((rows, 576), np.float32)
        out = np.empty((rows, 3072), np.float32)
        kernel(left, right, out)
        np.testing.assert_allclose(out, left @ right, rtol=1e-4, atol=1e-3)
