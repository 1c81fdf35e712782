"""What generated kernels must keep of a kernel's meaning: NaN, order, laziness, bounds, memory."""

import math
import warnings
from typing import Any

import numpy as np
import pytest

from relaxlab import te, topi
from relaxlab.codegen import Kernel, generate_numpy
from relaxlab.ir import Select, TensorLoad, Var, prim_ops
from relaxlab.ir.prim_ops import const
from relaxlab.runtime import tensor as make_tensor
from relaxlab.script import from_source
from relaxlab.tirx import (
    BufferStore,
    Evaluate,
    IfThenElse,
    PrimFunc,
    SeqStmt,
    decl_buffer,
)
from relaxlab.tirx.signature import evaluate_size
from tests.codegen.compare import assert_same, body_of, compile_te, is_vectorised
from tests.tirx.kernels import elementwise, literal, loops

NAN, INF = math.nan, math.inf
n = te.var("n", "int64")


def tensor(shape: tuple[Any, ...], name: str = "x", dtype: str = "float32") -> te.Tensor:
    return te.placeholder(shape, dtype, name)


def floats(*values: float) -> np.ndarray:
    return np.array(values, "float32")


def run(kernel: Kernel, *args: Any) -> None:
    kernel.function(*args)


# ---------------------------------------------------------------- NaN and infinities

SPECIAL = floats(NAN, 1, -1, 0, INF, -INF, NAN, 2)


@pytest.mark.parametrize("name", ["max", "min"])
def test_extrema_of_two_values_keep_a_nan_from_the_right_only(name: str) -> None:
    function = getattr(prim_ops, name)
    pair = elementwise(function, "float32", "float32")
    kernel = generate_numpy(pair, name)
    args = [SPECIAL, SPECIAL[::-1].copy(), np.zeros(8, "float32")]
    assert is_vectorised(kernel)
    assert_same(pair, kernel, args, exact=True)


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extrema_with_a_literal_forget_or_keep_nan_by_its_side(name: str, swap: bool) -> None:
    function = getattr(prim_ops, name)
    func = elementwise(lambda a: function(0.5, a) if swap else function(a, 0.5), "float32")
    kernel = generate_numpy(func, name)
    _, out = assert_same(func, kernel, [SPECIAL, np.zeros(8, "float32")], exact=True)
    assert math.isnan(out[0]) == swap
    assert "np.where" not in kernel.source


@pytest.mark.parametrize(
    "row",
    [
        (NAN, 1, 2),
        (1, NAN, 3),
        (5, NAN, 3),
        (1, 2, NAN),
        (NAN, NAN, NAN),
        (-INF, -INF, -INF),
        (-INF, 3, INF),
    ],
)
@pytest.mark.parametrize("fold", [topi.max, topi.min, topi.argmax, topi.argmin])
def test_folded_extrema_forget_nan_as_the_loop_does(fold: Any, row: tuple[float, ...]) -> None:
    x = tensor((2, 3))
    func, kernel = compile_te("fold", x, fold(x, axis=1))
    out = np.zeros(2, func.params[-1].ty.dtype.numpy())
    assert_same(func, kernel, [np.stack([floats(*row), floats(1, 3, 2)]), out], exact=True)


def test_argmax_prefers_the_first_of_equal_elements() -> None:
    x = tensor((1, 4))
    func, kernel = compile_te("argmax", x, topi.argmax(x, axis=1))
    out = np.zeros(1, func.params[-1].ty.dtype.numpy())
    run(kernel, floats(1, 7, 7, 0)[None], out)
    assert out.tolist() == [1]


def test_softmax_of_masked_rows_equals_the_interpreter() -> None:
    x = tensor((2, 3))
    func, kernel = compile_te("softmax", x, topi.nn.softmax(x))
    values = np.stack([floats(-INF, 1, 2), floats(-INF, -INF, -INF)])
    assert_same(func, kernel, [values, np.zeros((2, 3), "float32")])


def test_results_that_numpy_would_warn_of_are_silent() -> None:
    func = elementwise(lambda a, b: prim_ops.log(a) / b * prim_ops.exp(b), "float32", "float32")
    kernel = generate_numpy(func, "loud")
    before = np.geterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(kernel, floats(-1, 0, 1), floats(0, 0, 1e3), np.zeros(3, "float32"))
    assert np.geterr() == before


def test_the_error_state_is_restored_after_a_refused_index() -> None:
    x, i = tensor((3,)), tensor((2,), "i", "int64")
    _, kernel = compile_te("take", x, i, te.compute((2,), lambda k: x[i[k]] * 2.0, name="y"))
    before = np.geterr()
    with pytest.raises(IndexError):
        run(kernel, np.ones(3, "float32"), np.array([0, 5]), np.zeros(2, "float32"))
    assert np.geterr() == before


# ---------------------------------------------------------------- order and precision


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_sums_and_products_run_in_order_in_their_dtype(dtype: str) -> None:
    x, y = tensor((2, 300), "x", dtype), tensor((300, 3), "y", dtype)
    assert_same(*compile_te("sum", x, topi.sum(x, axis=1)), exact=True)
    assert_same(*compile_te("matmul", x, y, topi.matmul(x, y)), exact=True)


def test_a_long_sum_of_float16_ones_stops_growing() -> None:
    x = tensor((1, 4096), "x", "float16")
    _, kernel = compile_te("sum", x, topi.sum(x, axis=1))
    out = np.zeros(1, "float16")
    run(kernel, np.ones((1, 4096), "float16"), out)
    assert out[0] == 2048


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integer_folds_wrap(dtype: str) -> None:
    x, y = tensor((2, 40), "x", dtype), tensor((40, 3), "y", dtype)
    for name, out, given in (
        ("sum", topi.sum(x, axis=1), [x]),
        ("prod", topi.prod(x, axis=1), [x]),
        ("max", topi.max(x, axis=0), [x]),
        ("matmul", topi.matmul(x, y), [x, y]),
    ):
        func, kernel = compile_te(name, *given, out)
        arrays = [
            np.random.default_rng(1).integers(1, 100, [d.value for d in p.ty.shape]).astype(dtype)
            for p in func.params
        ]
        assert_same(func, kernel, arrays)


def test_integer_divisions_of_every_kind() -> None:
    a = np.array([-7, 7, -7, 7, -8, 0], "int32")
    b = np.array([2, -2, -2, 2, 3, 5], "int32")
    for name in ("floordiv", "floormod", "truncdiv", "truncmod"):
        func = elementwise(getattr(prim_ops, name), "int32", "int32")
        assert_same(func, generate_numpy(func, name), [a, b, np.zeros(6, "int32")])
        kernel = generate_numpy(func, name)
        with pytest.raises(ZeroDivisionError):
            run(kernel, a, b * 0, np.zeros(6, "int32"))


def test_shifts_by_data_are_checked() -> None:
    func = elementwise(lambda a, b: a << b, "int32", "int32")
    kernel = generate_numpy(func, "shift")
    assert_same(
        func, kernel, [np.array([1, -3], "int32"), np.array([3, 1], "int32"), np.zeros(2, "int32")]
    )
    with pytest.raises(ValueError, match="32 bits"):
        run(kernel, np.ones(1, "int32"), np.array([32], "int32"), np.zeros(1, "int32"))


def test_casts() -> None:
    for source, target in (
        ("float32", "int32"),
        ("int32", "int8"),
        ("float32", "bool"),
        ("bool", "float32"),
        ("int64", "float32"),
        ("float32", "bfloat16"),
    ):
        func = elementwise(lambda a, t=target: prim_ops.cast(t, a), source)
        kernel = generate_numpy(func, "cast")
        values = np.array([-2.7, 0, 2.7, 300], "float64").astype(func.params[0].ty.dtype.numpy())
        assert_same(
            func, kernel, [values, np.zeros(4, func.params[1].ty.dtype.numpy())], exact=True
        )


# ---------------------------------------------------------------- laziness and bounds


def test_a_guard_keeps_reads_inside_where_it_cannot_cut() -> None:
    x = tensor((4,))
    even = te.compute(
        (8,),
        lambda i: te.if_then_else(prim_ops.equal(i % 2, 0), x[i // 2], const(0.0)) + 1.0,
        name="y",
    )
    func, kernel = compile_te("dilate", x, even)
    assert is_vectorised(kernel)
    assert_same(func, kernel)
    odd = te.compute(
        (8,), lambda i: te.if_then_else(i % 3 < 1, x[i // 3 * 2], const(0.0)) * 2.0, name="y"
    )
    func, kernel = compile_te("guarded", x, odd)
    assert "guard_index" in kernel.source
    with pytest.raises(IndexError, match=r"reads x: index 4 .* \[0, 4\)"):
        run(kernel, np.ones(4, "float32"), np.zeros(8, "float32"))


def test_a_select_is_as_lazy_as_in_the_interpreter() -> None:
    x = tensor((4,))
    shifted = te.compute((5,), lambda i: Select(i < 1, const(0.0), x[i - 1]), name="y")
    assert_same(*compile_te("shift", x, shifted))


@pytest.mark.parametrize("bad", [-1, 4])
def test_indices_from_data_are_checked(bad: int) -> None:
    x, i = tensor((4, 2)), tensor((3,), "i", "int64")
    func, kernel = compile_te("take", x, i, te.compute((3, 2), lambda a, b: x[i[a], b], name="y"))
    out = np.zeros((3, 2), "float32")
    with pytest.raises(IndexError, match=rf"'take' reads x: index {bad} of dimension 0 .*\[0, 4\)"):
        run(kernel, np.ones((4, 2), "float32"), np.array([0, bad, 1]), out)
    assert_same(func, kernel, [np.ones((4, 2), "float32"), np.array([0, bad, 1]), out])
    assert (out == 0).all()


def test_linear_indices_that_leave_the_buffer_are_refused() -> None:
    x = tensor((4,))
    func, kernel = compile_te("late", x, te.compute((4,), lambda i: x[i + 1] * 2.0, name="y"))
    with pytest.raises(IndexError, match=r"index 4 of dimension 0 is outside \[0, 4\)"):
        run(kernel, np.ones(4, "float32"), np.zeros(4, "float32"))
    y = decl_buffer((4,), "float32", "y")
    write = PrimFunc((y,), loops((4,), lambda i: BufferStore(y, const(1.0), (i - 1,))))
    with pytest.raises(IndexError, match=r"writes y: index -1"):
        run(generate_numpy(write, "early"), np.zeros(4, "float32"))
    del func


def test_symbolic_bounds_are_checked_when_they_cannot_be_proved() -> None:
    x = tensor((n,))
    func, kernel = compile_te("head", x, te.compute((4,), lambda i: x[i] + 1.0, name="y"))
    assert_same(func, kernel, [np.ones(5, "float32"), np.zeros(4, "float32")])
    with pytest.raises(IndexError, match=r"\[0, 3\)"):
        run(kernel, np.ones(3, "float32"), np.zeros(4, "float32"))


@pytest.mark.parametrize("size", [0, 1])
def test_empty_and_single_rows(size: int) -> None:
    x, y = tensor((n, 3)), tensor((2, 3), "y")
    for name, out, given in (
        ("softmax", topi.nn.softmax(x), [x]),
        ("sum", topi.sum(x, axis=1), [x]),
        ("max", topi.max(x, axis=1), [x]),
        ("argmax", topi.argmax(x, axis=1), [x]),
        ("concat", topi.concatenate([x, y], axis=0), [x, y]),
        ("reshape", topi.reshape(x, (n * 3,)), [x]),
        ("transpose", topi.transpose(x), [x]),
    ):
        func, kernel = compile_te(name, *given, out)
        arrays = []
        for param in func.params:
            shape = [evaluate_size(dim, {n: size}, "test") for dim in param.ty.shape]
            arrays.append(np.ones(shape, param.ty.dtype.numpy()))
        assert_same(func, kernel, arrays)


def test_a_fold_of_nothing_is_its_identity() -> None:
    x = tensor((n, 3))
    for fold, expected in ((topi.sum, 0), (topi.prod, 1), (topi.argmax, -1)):
        func, kernel = compile_te("fold", x, fold(x, axis=0))
        out = np.full(3, 7, func.params[-1].ty.dtype.numpy())
        run(kernel, np.ones((0, 3), "float32"), out)
        assert out.tolist() == [expected] * 3


# ---------------------------------------------------------------- memory


def test_inputs_and_outputs_need_not_be_contiguous() -> None:
    x, y = tensor((3, 4)), tensor((4, 5), "y")
    func, kernel = compile_te("matmul", x, y, topi.matmul(x, y))
    rng = np.random.default_rng(0)
    a = rng.standard_normal((6, 8)).astype("float32")[::2, ::2]
    b = rng.standard_normal((5, 4)).astype("float32").T
    out = np.zeros((5, 3), "float32").T
    run(kernel, a, b, out)
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)
    reshape_func, reshape = compile_te("reshape", x, topi.reshape(x, (2, 6)))
    target = np.zeros((6, 2), "float32").T
    run(reshape, a, target)
    np.testing.assert_array_equal(target, a.reshape(2, 6))
    del func, reshape_func


def test_a_kernel_may_work_in_place() -> None:
    x = decl_buffer((n,), "float32", "x")
    func = PrimFunc(
        (x,), loops((n,), lambda i: BufferStore(x, TensorLoad(x, (i,)) * 2.0 + 1.0, (i,)))
    )
    kernel = generate_numpy(func, "inplace")
    assert is_vectorised(kernel)
    assert_same(func, kernel)


def test_outputs_are_no_scratch_memory_where_arguments_may_alias() -> None:
    func = elementwise(lambda a: (a + 1.0) * a, "float32")
    kernel = generate_numpy(func, "square")
    array = floats(1, 2, 3)
    run(kernel, array, array)
    assert array.tolist() == [2, 6, 12]


def test_each_element_may_need_the_one_before_it() -> None:
    x = decl_buffer((n,), "int64", "x")
    step = loops((n - 1,), lambda i: BufferStore(x, TensorLoad(x, (i,)) + 1, (i + 1,)))
    func = PrimFunc((x,), step)
    kernel = generate_numpy(func, "count")
    assert "for " in kernel.source
    array = np.zeros(5, "int64")
    run(kernel, array)
    assert array.tolist() == [0, 1, 2, 3, 4]


def test_a_copy_is_no_view_of_what_changes_later() -> None:
    func = from_source(
        """
        @T.prim_func(s_tir=True)
        def keep(x: T.Buffer((3,), "float32"), y: T.Buffer((3,), "float32")):
            t = T.sblock_alloc_buffer((3,))
            for i in range(3):
                with T.sblock("copy"):
                    v_i = T.axis.spatial(3, i)
                    t[v_i] = x[v_i]
            for i in range(3):
                with T.sblock("double"):
                    v_i = T.axis.spatial(3, i)
                    x[v_i] = x[v_i] * T.float32(2)
            for i in range(3):
                with T.sblock("back"):
                    v_i = T.axis.spatial(3, i)
                    y[v_i] = t[v_i]
        """
    )
    _, out = assert_same(func, generate_numpy(func, "keep"), [floats(1, 2, 3), floats(0, 0, 0)])
    assert out.tolist() == [1, 2, 3]


def test_dying_buffers_are_not_overwritten_while_a_view_of_them_lives() -> None:
    x = tensor((3, 3))
    t = te.compute((3, 3), lambda i, j: x[i, j] * 2.0, name="t")
    view = te.compute((3, 3), lambda i, j: t[j, i], name="view")
    last = te.compute((3, 3), lambda i, j: te.exp(t[i, j]), name="last")
    out = te.compute((3, 3), lambda i, j: view[i, j] + last[i, j], name="out")
    assert_same(*compile_te("live", x, out))


def test_dying_buffers_are_not_overwritten_while_they_are_read_again() -> None:
    x = tensor((3, 3))
    t = te.compute((3, 3), lambda i, j: x[i, j] * 2.0, name="t")
    u = te.compute((3, 3), lambda i, j: te.exp(t[i, j]) * t[j, i], name="u")
    out = te.compute((3, 3), lambda i, j: u[i, j] * u[j, i], name="out")
    assert_same(*compile_te("twice", x, out))


def test_tensors_arrays_and_numbers_are_taken() -> None:
    s = Var("s", "float32")
    x, y = decl_buffer((n,), "float32", "x"), decl_buffer((n,), "float32", "y")
    store = loops((n,), lambda i: BufferStore(y, TensorLoad(x, (i,)) * s, (i,)))
    kernel = generate_numpy(PrimFunc((x, s, y), store), "scale")
    for make in (np.array, lambda a: make_tensor(a)):
        out = make(floats(0, 0))
        run(kernel, make(floats(1, 2)), 0.5, out)
        assert np.asarray(out).tolist() == [0.5, 1.0]


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (
            [floats(1, 2), floats(1)],
            ValueError,
            r"'add' ?: argument 1 \(x1\): dimension 0 is 1, but n is 2",
        ),
        ([floats(1), np.zeros(1)], TypeError, r"\(x1\) must have dtype float32, got float64"),
        ([floats(1), [1.0]], TypeError, r"\(x1\) must be a tensor, got list"),
        ([floats(1), np.zeros((1, 1), "float32")], ValueError, r"\(x1\) must have 1 dimensions"),
    ],
)
def test_wrong_arguments_are_refused_in_words_and_change_nothing(
    bad: list[Any], error: type[Exception], message: str
) -> None:
    kernel = generate_numpy(elementwise(lambda a, b: a + b, "float32", "float32"), "add")
    out = np.full(len(bad[0]), 9, "float32")
    with pytest.raises(error, match=message):
        run(kernel, *bad, out)
    assert (out == 9).all()


# ---------------------------------------------------------------- control flow


def test_control_flow_around_array_statements() -> None:
    k = Var("k", "int64")
    x = decl_buffer((n,), "float32", "x")

    def fill(value: float) -> Any:
        return loops((n,), lambda i: BufferStore(x, TensorLoad(x, (i,)) + value, (i,)))

    func = PrimFunc((x, k), IfThenElse(k > 2, SeqStmt((fill(1.0), fill(2.0))), fill(-1.0)))
    kernel = generate_numpy(func, "choose")
    assert body_of(kernel)[0] == "if k > 2:"
    for number in (2, 3):
        assert_same(func, kernel, [floats(1, 2), number])


def test_what_has_no_text_is_interpreted() -> None:
    x = decl_buffer((2,), "float32", "x")
    body = SeqStmt(
        (
            loops((2,), lambda i: BufferStore(x, TensorLoad(x, (i,)) + 1.0, (i,))),
            Evaluate(prim_ops.call_packed("test.nothing", literal(1))),
        )
    )
    kernel = generate_numpy(PrimFunc((x,), body), "mixed")
    assert "a Evaluate statement, interpreted" in kernel.source
    assert "np.add(x, c0, out=x)" in kernel.source
