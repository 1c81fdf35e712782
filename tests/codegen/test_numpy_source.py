"""The text that is generated: views, BLAS, no copies, no needless temporaries."""

import numpy as np
import pytest

from relaxlab import te, topi
from relaxlab.codegen import generate_numpy
from relaxlab.ir import TensorLoad, Var, prim_ops
from relaxlab.ir.prim_ops import const
from relaxlab.tirx import BufferStore, PrimFunc, Return, SeqStmt, decl_buffer
from tests.codegen.compare import assert_same, body_of, compile_te, is_vectorised
from tests.tirx.kernels import literal, loops

n = te.var("n", "int64")


def tensor(shape: tuple[object, ...], name: str = "x", dtype: str = "float32") -> te.Tensor:
    return te.placeholder(shape, dtype, name)


def test_elementwise_kernels_write_straight_into_the_output() -> None:
    x, y = tensor((n, 4)), tensor((4,), "y")
    func, kernel = compile_te("add", x, y, topi.add(x, y))
    assert body_of(kernel) == ["np.add(x, y, out=T_add)"]
    assert_same(func, kernel)


def test_chains_reuse_one_array() -> None:
    x = tensor((8, 8))
    inner = topi.multiply(x, const(0.5))
    gelu = topi.multiply(x, topi.add(topi.erf(inner), const(1.0)))
    func, kernel = compile_te("gelu", x, gelu)
    assert body_of(kernel) == [
        "T_multiply_1 = np.multiply(x, c0)",
        "erf(T_multiply_1, out=T_multiply_1)",
        "compute = T_multiply_1",
        "np.add(compute, c1, out=compute)",
        "T_add = compute",
        "np.multiply(x, T_add, out=T_multiply)",
    ]
    assert_same(func, kernel)


def test_softmax() -> None:
    x = tensor((n, 5))
    func, kernel = compile_te("softmax", x, topi.nn.softmax(x))
    assert body_of(kernel) == [
        "T_softmax_maxelem = extremum_reduce(x, 1, c0, True)",
        "T_softmax_exp = np.subtract(x, T_softmax_maxelem[:, None])",
        "np.exp(T_softmax_exp, out=T_softmax_exp)",
        "T_softmax_expsum = np.add.reduce(T_softmax_exp, -1)",
        "np.divide(T_softmax_exp, T_softmax_expsum[:, None], out=T_softmax_norm)",
    ]
    assert_same(func, kernel)


def test_matrix_products_go_to_blas() -> None:
    x, y = tensor((n, 5)), tensor((5, 6), "y")
    func, kernel = compile_te("matmul", x, y, topi.matmul(x, y))
    assert body_of(kernel) == ["np.matmul(x, y, out=matmul_1)"]
    assert_same(func, kernel)


def test_a_transposed_operand_is_a_view() -> None:
    x, w = tensor((1, 5)), tensor((6, 5), "w")
    func, kernel = compile_te("nt_matmul", x, w, topi.matmul(x, topi.transpose(w)))
    assert body_of(kernel) == ["T_transpose = w.T", "np.matmul(x, T_transpose, out=matmul)"]
    assert_same(func, kernel)


def test_products_contract_any_axes() -> None:
    k, l = te.reduce_axis((0, 3), "k"), te.reduce_axis((0, 2), "l")
    x, y = tensor((4, 3, 2)), tensor((2, 5, 3), "y")
    product = te.compute(
        (5, 4), lambda i, j: te.sum(x[j, k, l] * y[l, i, k], axis=[k, l]), name="p"
    )
    func, kernel = compile_te("contract", x, y, product)
    assert "np.matmul" in kernel.source
    assert_same(func, kernel)


def test_a_sum_of_products_that_is_no_matrix_product_is_a_plain_sum() -> None:
    k = te.reduce_axis((0, 3), "k")
    x, y = tensor((4, 3)), tensor((2,), "y")
    spread = te.compute((4, 2), lambda i, j: te.sum(x[i, k] * y[j], axis=[k]))
    func, kernel = compile_te("spread", x, y, spread)
    assert is_vectorised(kernel)
    assert "np.add.reduce" in kernel.source
    assert_same(func, kernel)


def test_batched_products_with_several_row_axes_are_one_matrix_product() -> None:
    x, y = tensor((n, 3, 5)), tensor((5, 6), "y")
    func, kernel = compile_te("matmul", x, y, topi.matmul(x, y))
    assert "np.matmul(x.reshape(n * 3, 5), y, out=matmul_1.reshape(n * 3, 6))" in body_of(kernel)
    assert_same(func, kernel)
    out = np.zeros((6, 3, 2), "float32").transpose(2, 1, 0)
    assert_same(func, kernel, [np.ones((2, 3, 5), "float32"), np.ones((5, 6), "float32"), out])


def test_convolutions_are_matrix_products_of_a_strided_view() -> None:
    rc, ry = te.reduce_axis((0, 2), "rc"), te.reduce_axis((0, 3), "ry")
    x, w = tensor((2, 9)), tensor((4, 2, 3), "w")
    conv = te.compute((4, 4), lambda f, y: te.sum(x[rc, y * 2 + ry] * w[f, rc, ry], axis=[rc, ry]))
    func, kernel = compile_te("conv", x, w, conv)
    assert "strided_view" in kernel.source
    assert "np.matmul" in kernel.source
    assert_same(func, kernel)


def test_concatenation_is_two_copies() -> None:
    x, y = tensor((n, 4)), tensor((3, 4), "y")
    func, kernel = compile_te("concat", x, y, topi.concatenate([x, y], axis=0))
    assert body_of(kernel) == [
        "if 0 < n:",
        "T_concat[:n, :] = x",
        "T_concat[n:, :] = y",
    ]
    assert_same(func, kernel)


def test_padding_fills_the_frame_and_copies_the_middle() -> None:
    x = tensor((2, 3))
    func, kernel = compile_te("pad", x, topi.nn.pad(x, [1, 0], [1, 2]))
    assert "np.where" not in kernel.source
    assert is_vectorised(kernel)
    assert_same(func, kernel)


@pytest.mark.parametrize("shape", [(6, 4), (2, 12), (24,), (4, 3, 2)])
def test_reshape_is_numpys(shape: tuple[int, ...]) -> None:
    x = tensor((2, 3, 4))
    func, kernel = compile_te("reshape", x, topi.reshape(x, shape))
    dims = ", ".join(map(str, shape))
    assert body_of(kernel) == [f"T_reshape[...] = x.reshape({dims})"]
    assert_same(func, kernel)


def test_symbolic_reshape_is_numpys() -> None:
    x = tensor((n, 3, 4))
    func, kernel = compile_te("reshape", x, topi.reshape(x, (n, 12)))
    assert body_of(kernel) == ["T_reshape[...] = x.reshape(n, 12)"]
    assert_same(func, kernel)


def test_transpose_is_a_view_copied_once() -> None:
    x = tensor((2, 3, 4))
    func, kernel = compile_te("transpose", x, topi.transpose(x, (2, 0, 1)))
    assert body_of(kernel) == ["T_transpose[...] = x.transpose(2, 0, 1)"]
    assert_same(func, kernel)


def test_slices_are_slices() -> None:
    x = tensor((8, 5))
    func, kernel = compile_te("slice", x, topi.strided_slice(x, [1, 0], [7, 5], [2, 1]))
    assert len(body_of(kernel)) == 1
    assert "x[1:6:2, :]" in kernel.source
    assert_same(func, kernel)


def test_reversed_reads_are_views() -> None:
    x = tensor((4, 3))
    func, kernel = compile_te("flip", x, te.compute((4, 3), lambda i, j: x[3 - i, j], name="y"))
    assert body_of(kernel) == ["y[...] = x[::-1, :]"]
    assert_same(func, kernel)


def test_rows_are_taken_straight_into_the_output() -> None:
    table, ids = tensor((10, 4), "table"), tensor((n,), "ids", "int32")
    func, kernel = compile_te("take", table, ids, topi.take(table, ids, axis=0, mode="fast"))
    assert body_of(kernel) == [
        "index = check_index(ids, 10, 'take', 'table', 0)",
        'np.take(table, index, 0, out=T_take, mode="clip")',
    ]
    assert_same(func, kernel)


def test_clipped_indices_need_no_check() -> None:
    table, ids = tensor((7, 4), "table"), tensor((3,), "ids", "int64")
    func, kernel = compile_te("take", table, ids, topi.take(table, ids, axis=0, mode="clip"))
    assert "check_index" not in kernel.source
    assert_same(func, kernel)


def test_argmax_is_numpys() -> None:
    x = tensor((4, 6))
    func, kernel = compile_te("argmax", x, topi.argmax(x, axis=1))
    assert is_vectorised(kernel)
    assert "arg_reduce(x" in kernel.source
    assert_same(func, kernel)


def test_host_functions_are_plain_python() -> None:
    heap = decl_buffer((3,), "int64", "H")
    size = prim_ops.multiply(TensorLoad(heap, (literal(0),)), 4)
    body = SeqStmt(
        (
            BufferStore(heap, size, (literal(1),)),
            BufferStore(heap, (TensorLoad(heap, (literal(1),)) + 1) // 2, (literal(2),)),
        )
    )
    func = PrimFunc((heap,), body).with_attr("tirx.is_host_func", True)
    kernel = generate_numpy(func, "shape_func")
    assert body_of(kernel) == ["H[1] = H.item(0) * 4", "H[2] = (H.item(1) + 1) // 2"]
    (after,) = assert_same(func, kernel, [np.array([3, 0, 0], "int64")])
    assert after.tolist() == [3, 12, 6]


def test_computed_numbers_are_returned() -> None:
    k = Var("k", "int64")
    kernel = generate_numpy(PrimFunc((k,), Return((k + 1) // 2 * 4)), "compute")
    assert kernel.source == "def compute(k_arg):\n    k = int(k_arg)\n    return (k + 1) // 2 * 4\n"
    assert kernel.function(5) == 12


def test_names_are_made_safe_and_different() -> None:
    x, y = decl_buffer((2,), name="lambda"), decl_buffer((2,), name="np")
    copy = loops((2,), lambda i: BufferStore(y, TensorLoad(x, (i,)), (i,)))
    kernel = generate_numpy(PrimFunc((x, y), copy), "erf")
    out = np.zeros(2, "float32")
    kernel.function(np.ones(2, "float32"), out)
    assert out.tolist() == [1, 1]


def test_scans_stay_loops_and_are_right() -> None:
    x = tensor((3, 4))
    func, kernel = compile_te("cumsum", x, topi.cumsum(x, axis=1))
    assert "for v in range(3):" in kernel.source
    assert "interpret" not in kernel.source
    assert_same(func, kernel)
