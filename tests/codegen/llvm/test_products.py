"""Matrix products, through BLAS and in the kernel: every layout, every size."""

from typing import Any

import numpy as np
import pytest

from relaxlab import te, topi
from relaxlab.codegen.llvm import callbacks
from tests.codegen.llvm.support import compiled, floats, kernel_of, placeholder, prim_func

n, m = te.var("n", "int64"), te.var("m", "int64")


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Record the products that NumPy is asked for."""
    seen: list[tuple[int, ...]] = []
    matmul = np.matmul

    def recorded(a: Any, b: Any, out: Any = None) -> Any:
        seen.append((*a.shape, b.shape[-1]))
        return matmul(a, b, out=out)

    monkeypatch.setattr(callbacks.np, "matmul", recorded)
    return seen


def product_of(a: te.Tensor, b: te.Tensor, left: bool, right: bool) -> te.Tensor:
    """Return a matrix product of which operands may be transposed."""
    x = topi.transpose(a) if left else a
    y = topi.transpose(b) if right else b
    return topi.matmul(x, y)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_large_products_of_any_layout(
    left: bool, right: bool, dtype: str, products: list[tuple[int, ...]]
) -> None:
    a = placeholder(*((160, 120) if left else (120, 160)), name="a", dtype=dtype)
    b = placeholder(*((136, 160) if right else (160, 136)), name="b", dtype=dtype)
    kernel = kernel_of(prim_func(a, b, product_of(a, b, left, right))).function
    x, y = floats(*a.shape, dtype=dtype), floats(*b.shape, dtype=dtype, seed=1)  # type: ignore[arg-type]  # static
    out = np.zeros((120, 136), dtype)
    kernel(x, y, out)
    close = 1e-4 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(out, (x.T if left else x) @ (y.T if right else y), close, close)
    assert products == [(120, 160, 136)]


def test_the_size_decides_when_it_is_known_at_run_time_only(
    products: list[tuple[int, ...]],
) -> None:
    a, b = placeholder(n, 96, name="a"), placeholder(96, 128, name="b")
    kernel = kernel_of(prim_func(a, b, topi.matmul(a, b))).function
    for rows in (0, 1, 2, 5, 6, 71, 72, 73, 200):
        x, y = floats(rows, 96), floats(96, 128, seed=1)
        out = np.zeros((rows, 128), np.float32)
        kernel(x, y, out)
        np.testing.assert_allclose(out, x @ y, 1e-4, 1e-4)
    assert products == [(72, 96, 128), (73, 96, 128), (200, 96, 128)]


def test_batches(products: list[tuple[int, ...]]) -> None:
    a, b = placeholder(3, n, 128, name="a"), placeholder(3, 128, m, name="b")
    kernel = kernel_of(prim_func(a, b, topi.matmul(a, b))).function
    x, y = floats(3, 90, 128), floats(3, 128, 100, seed=1)
    out = np.zeros((3, 90, 100), np.float32)
    kernel(x, y, out)
    np.testing.assert_allclose(out, x @ y, 1e-4, 1e-4)
    assert products == [(3, 90, 128, 100)]


def test_a_product_with_work_around_it(products: list[tuple[int, ...]]) -> None:
    a, b, bias = placeholder(n, 128, name="a"), placeholder(128, 128, name="b"), placeholder(128)
    y = topi.nn.relu(topi.add(topi.matmul(topi.tanh(a), b), bias))
    kernel = kernel_of(prim_func(a, b, bias, y)).function
    for rows in (4, 100):
        x, w, c = floats(rows, 128), floats(128, 128, seed=1), floats(128, seed=2)
        out = np.zeros((rows, 128), np.float32)
        kernel(x, w, c, out)
        np.testing.assert_allclose(out, np.maximum(np.tanh(x) @ w + c, 0), 1e-4, 1e-4)
    assert len(products) == 1


def test_an_error_in_a_product_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **options: Any) -> None:
        raise ArithmeticError("no BLAS today")

    monkeypatch.setattr(callbacks.np, "matmul", broken)
    a = placeholder(256, 256, name="a")
    kernel = kernel_of(prim_func(a, topi.matmul(a, a))).function
    with pytest.raises(ArithmeticError, match="no BLAS today"):
        kernel(floats(256, 256), np.zeros((256, 256), np.float32))


@pytest.mark.parametrize("columns", [1, 5, 64, 65, 100, 1000, 4096, 9000])
@pytest.mark.parametrize("rows", [1, 3])
def test_few_rows_times_a_matrix(rows: int, columns: int) -> None:
    a, b = placeholder(rows, 100, name="a"), placeholder(100, columns, name="b")
    made = compiled(prim_func(a, b, topi.matmul(a, b)))
    assert made.plan.callbacks == []
    x, y = floats(rows, 100), floats(100, columns, seed=1)
    out = np.full((rows, columns), np.nan, np.float32)
    made(x, y, out)
    np.testing.assert_allclose(out, x @ y, 1e-4, 1e-4)


@pytest.mark.parametrize("inner", [1, 3, 16, 63, 64, 100, 576])
def test_dot_products(inner: int) -> None:
    a, b = placeholder(2, inner, name="a"), placeholder(7, inner, name="b")
    x, y = floats(2, inner), floats(7, inner, seed=1)
    out = np.zeros((2, 7), np.float32)
    kernel_of(prim_func(a, b, topi.matmul(a, topi.transpose(b)))).function(x, y, out)
    np.testing.assert_allclose(out, x @ y.T, 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16"])
def test_products_of_other_dtypes(dtype: str) -> None:
    a, b = placeholder(20, 30, name="a", dtype=dtype), placeholder(30, 40, name="b", dtype=dtype)
    x, y = (
        np.arange(k).reshape(s).astype(dtype) % 5 for k, s in ((600, (20, 30)), (1200, (30, 40)))
    )
    out = np.zeros((20, 40), dtype)
    kernel_of(prim_func(a, b, topi.matmul(a, b))).function(x, y, out)
    np.testing.assert_array_equal(out, x @ y)


def test_a_convolution() -> None:
    x, w = placeholder(1, 3, 22, 22), placeholder(8, 3, 3, 3, name="w")
    c, r, q = (te.reduce_axis((0, 3), name) for name in ("c", "r", "q"))
    y = te.compute(
        (1, 8, 20, 20),
        lambda b, o, i, j: te.sum(x[b, c, i + r, j + q] * w[o, c, r, q], axis=[c, r, q]),
        name="y",
    )
    a, b = floats(1, 3, 22, 22), floats(8, 3, 3, 3, seed=1)
    out = np.zeros((1, 8, 20, 20), np.float32)
    kernel_of(prim_func(x, w, y)).function(a, b, out)
    expected = sum(
        np.einsum("nchw,oc->nohw", a[:, :, p : p + 20, s : s + 20], b[:, :, p, s])
        for p in range(3)
        for s in range(3)
    )
    np.testing.assert_allclose(out, expected, 1e-4, 1e-4)
