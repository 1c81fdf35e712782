import pytest

from relaxlab import te, topi
from relaxlab.ir import IntImm, Var
from relaxlab.te import TensorRead, TensorSlice


def test_ints_in_a_shape_are_int32_and_expressions_stay():
    n = Var("n", "int64")
    a = te.placeholder((4, n), "float32", "a")
    assert str(a.shape[0].dtype) == "int32"
    assert a.shape[1] is n
    assert (a.ndim, str(a.dtype), a.name) == (2, "float32", "a")


def test_a_read_has_one_index_per_dimension_and_the_dtype_of_the_tensor():
    a = te.placeholder((4, 8), "float16", "a")
    read = a[1, 2]
    assert isinstance(read, TensorRead)
    assert str(read.dtype) == "float16"
    assert a(1, 2).tensor is a
    assert [i.value for i in a[1][2].indices] == [1, 2]
    assert isinstance(a[1], TensorSlice)


def test_a_plain_index_takes_the_dtype_of_its_dimension():
    a = te.placeholder((Var("n", "int64"), 8), name="a")
    first, second = a[1, 2].indices
    assert (str(first.dtype), str(second.dtype)) == ("int64", "int32")


def test_a_wrong_number_of_indices_names_the_tensor():
    a = te.placeholder((4, 8), name="a")
    with pytest.raises(ValueError, match=r"'a' has 2 dimension\(s\), but was read with 3"):
        a[1, 2, 3]


def test_loop_names_are_those_of_the_parameters():
    a = te.placeholder((4, 8), name="a")
    named = te.compute((4, 8), lambda row, column: a[row, column])
    counted = te.compute((4, 8), lambda *i: a(*i))
    mixed = te.compute((4, 8), lambda row, *rest: a(row, *rest))
    chosen = te.compute((4, 8), lambda *i: a(*i), varargs_names=["ax0", "ax1"])
    names = [[axis.var.name for axis in t.op.axis] for t in (named, counted, mixed, chosen)]
    assert names == [["row", "column"], ["i0", "i1"], ["row", "i0"], ["ax0", "ax1"]]


def test_several_values_are_several_tensors_of_one_operation():
    a = te.placeholder((4,), name="a")
    double, half = te.compute((4,), lambda i: (a[i] * 2.0, a[i] * 0.5), name="both")
    assert double.op is half.op
    assert double.op.num_outputs == 2
    assert double.op.outputs == (double, half)


def test_input_tensors_come_in_the_order_of_a_walk_inner_reads_first():
    table, ids, b = (
        te.placeholder((4,), d, n) for d, n in (("float32", "t"), ("int32", "i"), ("float32", "b"))
    )
    c = te.compute((4,), lambda i: table[ids[i]] + b[i] + table[0], name="c")
    assert [t.name for t in c.op.input_tensors] == ["i", "t", "b"]


def test_a_function_of_too_few_parameters_is_refused():
    a = te.placeholder((4, 8), name="a")
    with pytest.raises(ValueError, match=r"2 dimension\(s\), but its function takes 1"):
        te.compute((4, 8), lambda i: a[i, 0])
    with pytest.raises(ValueError, match="without defaults"):
        te.compute((4,), lambda i, j=0: a[i, j])


def test_a_value_that_is_no_scalar_is_refused():
    a = te.placeholder((4,), name="a")
    with pytest.raises(TypeError, match="expected a scalar expression for an element, got Tensor"):
        te.compute((4,), lambda i: a)
    with pytest.raises(ValueError, match="has 2 dimension"):
        te.compute((4,), lambda i: te.placeholder((4, 4), name="m")[i])


def test_a_reduction_inside_an_expression_is_refused():
    a = te.placeholder((4, 8), name="a")
    k = te.reduce_axis((0, 8), "k")
    with pytest.raises(ValueError, match="a reduction must be the whole value"):
        te.compute((4,), lambda i: te.sum(a[i, k], axis=k) + 1.0)


def test_a_reduce_axis_takes_the_dtype_of_its_bound_and_may_begin_anywhere():
    n = Var("n", "int64")
    axis = te.reduce_axis((1, n), "k")
    assert axis.var.name == "k"
    assert str(axis.var.dtype) == "int64"
    assert isinstance(axis.dom.min, IntImm)
    assert (axis.dom.min.value, str(axis.dom.min.dtype)) == (1, "int64")


def test_reducers_given_values_combine_them():
    assert te.max(IntImm("int32", 3), IntImm("int32", 5)).value == 5
    assert te.sum(IntImm("int32", 3), IntImm("int32", 5), IntImm("int32", 1)).value == 9


def test_arithmetic_on_tensors_is_that_of_topi():
    a, b = te.placeholder((4,), name="a"), te.placeholder((4,), name="b")
    assert topi.add(a, b).name == "T_add"  # importing topi gives the operators their meaning
    names = [t.name for t in (a + b, a - 1.0, 2.0 * a, a / b, -a)]
    assert names == ["T_add", "T_subtract", "T_multiply", "T_divide", "compute"]


def test_extern_needs_a_dtype_when_its_inputs_differ():
    a, b = te.placeholder((4,), "int32", "a"), te.placeholder((4,), "float32", "b")
    with pytest.raises(ValueError, match=r"needs a dtype: its inputs have \['float32', 'int32'\]"):
        te.extern((4,), [a, b], lambda ins, outs: None, name="e")
