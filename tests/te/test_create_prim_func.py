# ruff: noqa: E501  # programs as they print
from textwrap import dedent

import pytest

from relaxlab import te
from relaxlab.errors import InternalError
from relaxlab.ir import IntImm, TensorLoad, Var, prim_ops
from relaxlab.script.printer import script
from relaxlab.tirx import BufferStore, For, ForKind


def body_of(func) -> str:
    """Return the printed function without the header and the decorator."""
    text = script(func)
    return text[text.index("def main") :].rstrip()


def expect(func, text):
    assert body_of(func) == dedent(text).strip()


def test_a_reduction_has_init_reads_writes_and_annotations():
    a, b = te.placeholder((4, 8), "float32", "A"), te.placeholder((8,), name="B")
    k = te.reduce_axis((0, 8), "k")
    attrs = {"foo": 1, "layout_free_placeholders": [b]}
    c = te.compute((4,), lambda i: te.sum(a[i, k] * b[k], axis=k), name="C", attrs=attrs)
    expect(
        te.create_prim_func([a, b, c]),
        """
        def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((4,), "float32")):
            T.func_attr({"layout_free_buffers": [1], "tirx.noalias": True})
            # with T.sblock("root"):
            for i, k in T.grid(4, 8):
                with T.sblock("C"):
                    v_i, v_k = T.axis.remap("SR", [i, k])
                    T.reads(A[v_i, v_k], B[v_k])
                    T.writes(C[v_i])
                    T.sblock_attr({"foo": 1})
                    with T.init():
                        C[v_i] = T.float32(0.0)
                    C[v_i] = C[v_i] + A[v_i, v_k] * B[v_k]
        """,
    )


def test_an_index_dtype_override_reaches_loops_shapes_indices_and_conditions():
    a = te.placeholder((4, 8), "float32", "A")
    c = te.compute(
        (8, 8),
        lambda i, j: (
            te.if_then_else(i < 4, a[i, j], a[i - 4, j]) + prim_ops.cast("float32", i) * 2 + j
        ),
        name="C",
    )
    expect(
        te.create_prim_func([a, c], index_dtype_override="int64"),
        """
        def main(A: T.Buffer((T.int64(4), T.int64(8)), "float32"), C: T.Buffer((T.int64(8), T.int64(8)), "float32")):
            T.func_attr({"tirx.noalias": True})
            # with T.sblock("root"):
            for i, j in T.grid(T.int64(8), T.int64(8)):
                with T.sblock("C"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    T.reads(A[v_i - T.int64(4):v_i - T.int64(4) + T.int64(5), v_j])
                    T.writes(C[v_i, v_j])
                    C[v_i, v_j] = T.if_then_else(v_i < T.int64(4), A[v_i, v_j], A[v_i - T.int64(4), v_j]) + T.Cast("float32", v_i) * T.float32(2.0) + T.Cast("float32", v_j)
        """,
    )


def test_a_stored_value_keeps_its_dtype_under_the_override():
    a = te.placeholder((4,), "float32", "A")
    c = te.compute((4,), lambda i: i + 1, name="C")
    func = te.create_prim_func([a, c], index_dtype_override="int64")
    assert 'C[v_i] = T.Cast("int32", v_i + T.int64(1))' in body_of(func)


def test_two_values_reduced_together_are_stored_after_both_are_computed():
    def combine(x, y):
        ahead = prim_ops.greater_equal(x[1], y[1])
        return prim_ops.select(ahead, x[0], y[0]), prim_ops.select(ahead, x[1], y[1])

    best = te.comm_reducer(combine, lambda t0, t1: (te.const(-1, t0), te.min_value(t1)))
    idx, val = te.placeholder((4, 8), "int32", "idx"), te.placeholder((4, 8), name="val")
    k = te.reduce_axis((0, 8), "k")
    t0, t1 = te.compute((4,), lambda i: best((idx[i, k], val[i, k]), axis=k), name="T")
    expect(
        te.create_prim_func([idx, val, t0, t1]),
        """
        def main(idx: T.Buffer((4, 8), "int32"), val: T.Buffer((4, 8), "float32"), T_v0: T.Buffer((4,), "int32"), T_v1: T.Buffer((4,), "float32")):
            T.func_attr({"tirx.noalias": True})
            # with T.sblock("root"):
            for i, k in T.grid(4, 8):
                with T.sblock("T"):
                    v_i, v_k = T.axis.remap("SR", [i, k])
                    T.reads(val[v_i, v_k], idx[v_i, v_k])
                    T.writes(T_v0[v_i], T_v1[v_i])
                    with T.init():
                        T_v0[v_i] = -1
                        T_v1[v_i] = T.float32(-340282346638528859811704183484516925440.0)
                    v_T_v0: T.let[T.int32] = T.Select(T_v1[v_i] >= val[v_i, v_k], T_v0[v_i], idx[v_i, v_k])
                    v_T_v1: T.let[T.float32] = T.Select(T_v1[v_i] >= val[v_i, v_k], T_v1[v_i], val[v_i, v_k])
                    T_v0[v_i] = v_T_v0
                    T_v1[v_i] = v_T_v1
        """,
    )


def test_elementwise_results_of_one_compute_share_the_loops():
    a = te.placeholder((4,), "float32", "A")
    two = te.compute((4,), lambda i: (a[i], a[i] + 1.0), name="two")
    text = body_of(te.create_prim_func([a, *two]))
    assert text.count("for i in range(4):") == 1
    assert 'with T.sblock("two_v0"):' in text
    assert 'with T.sblock("two_v1"):' in text


def test_a_computation_without_dimensions_gets_an_iteration_of_one():
    z = te.placeholder((), name="Z")
    expect(
        te.create_prim_func([z, te.compute((), lambda: z() + 1.0, name="s")]),
        """
        def main(Z: T.Buffer((), "float32"), s: T.Buffer((), "float32")):
            T.func_attr({"tirx.noalias": True})
            # with T.sblock("root"):
            with T.sblock("s"):
                vi = T.axis.spatial(1, 0)
                T.reads(Z[()])
                T.writes(s[()])
                s[()] = Z[()] + T.float32(1.0)
        """,
    )


def test_what_is_no_parameter_belongs_to_the_root_block_and_names_are_unique():
    a = te.placeholder((4,), "float32", "A")
    b = te.compute((4,), lambda i: a[i] * 2.0, name="c")
    c = te.compute((4,), lambda i: b[i] + 1.0, name="c")
    text = body_of(te.create_prim_func([a, c]))
    assert "c_1 = T.sblock_alloc_buffer((4,))" in text
    assert 'with T.sblock("c"):' in text
    assert 'with T.sblock("c_1"):' in text


def test_loops_are_simplified_and_shapes_are_not():
    n = te.var("n", "int64")
    x = te.placeholder((n,), name="x")
    c = te.compute(((n + 2 - 1) // 2,), lambda i: x[i], name="c")
    text = body_of(te.create_prim_func([x, c]))
    assert 'c: T.Buffer(("(n + T.int64(2) - T.int64(1)) // T.int64(2)",), "float32")' in text
    assert "for i in range((n + T.int64(1)) // T.int64(2)):" in text


def test_a_scalar_variable_may_be_a_parameter():
    n = te.var("n", "int64")
    x = te.placeholder((n * 2,), name="x")
    func = te.create_prim_func([x, n, te.compute((n * 2,), lambda i: x[i], name="c")])
    assert [p.name for p in func.params] == ["x", "n", "c"]


# Where TVM 0.27 drops what the reducer was given, without a word.


def test_where_of_a_reduction_counts():
    a = te.placeholder((4, 8), "float32", "A")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((4,), lambda i: te.max(a[i, k], axis=k, where=k.var < 5), name="C")
    text = body_of(te.create_prim_func([a, c]))
    assert "if v_k < 5:\n" in text
    assert "C[v_i] = T.max(C[v_i], A[v_i, v_k])" in text


def test_init_of_a_reduction_counts():
    a, b = te.placeholder((4, 8), "float32", "A"), te.placeholder((4,), name="B")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((4,), lambda i: te.sum(a[i, k], axis=k, init=b[i]), name="C")
    text = body_of(te.create_prim_func([a, b, c]))
    assert "            with T.init():\n                C[v_i] = B[v_i]" in text
    assert "T.reads(B[v_i], A[v_i, v_k])" in text


def test_an_extern_statement_names_the_buffers_and_is_the_root():
    a = te.placeholder((4,), "float32", "A")

    def body(inputs, outputs):
        i = Var("i", "int32")
        store = BufferStore(outputs[0], TensorLoad(inputs[0], (i,)), (i,))
        return For(i, IntImm("int32", 0), IntImm("int32", 4), ForKind.SERIAL, store)

    out = te.extern((4,), [a], body, name="copy", dtype="float32")
    text = body_of(te.create_prim_func([a, out]))
    assert "# with T.sblock" not in text
    assert 'with T.sblock("copy"):\n        T.reads()\n        T.writes()\n' in text
    assert "copy[i] = A[i]" in text


def test_an_extern_result_inside_a_graph_is_owned_by_the_root_block():
    a = te.placeholder((4,), "float32", "A")

    def body(inputs, outputs):
        return BufferStore(outputs[0], IntImm("int32", 0), (IntImm("int32", 0),))

    made = te.extern((4,), [a], body, name="made", dtype="int32")
    c = te.compute((4,), lambda i: made[i] + 1, name="c")
    text = body_of(te.create_prim_func([a, c]))
    assert 'made = T.sblock_alloc_buffer((4,), "int32")' in text
    assert "made[0] = 0" in text


def test_a_given_tensor_that_is_no_parameter_is_refused():
    a = te.placeholder((4,), "float32", "A")
    with pytest.raises(InternalError, match="reads tensor 'A', which is given from outside"):
        te.create_prim_func([te.compute((4,), lambda i: a[i])])


def test_a_parameter_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="tensors and scalar variables as parameters, got int"):
        te.create_prim_func([3])


def test_an_expression_may_be_deep():
    # a concat of sixty tensors nests as many choices
    a = te.placeholder((4,), "float32", "A")

    def body(i):
        value = a[i]
        for j in range(60):
            value = te.if_then_else(i < j, a[i], value)
        return value

    func = te.create_prim_func([a, te.compute((4,), body, name="c")])
    assert [p.name for p in func.params] == ["A", "c"]
