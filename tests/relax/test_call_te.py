import pytest

from relaxlab import te, topi
from relaxlab.ir import TupleType, Var, free_vars, prim_ops
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.call_te import make_kernel
from relaxlab.relax.expr import ShapeExpr
from relaxlab.relax.literals import const
from relaxlab.relax.op import exp
from relaxlab.relax.type import ShapeType, TensorType


@pytest.fixture
def n():
    return Var("n", "int64")


@pytest.fixture
def x(n):
    return Var("x", TensorType([n, 4]))


def names(kernel):
    return [param.name for param in kernel.params]


def test_placeholders_are_named_by_variable_or_by_place_in_the_alphabet(x):
    kernel, args, _ = make_kernel(lambda a, b, c: topi.where(a, b, c), mask_and(x), {})
    assert names(kernel) == ["mask", "B", "x", "T_where"]
    assert len(args) == 3


def mask_and(x):
    n = x.ty.shape.values[0]
    return Var("mask", TensorType([n, 4], "bool")), const(1.0), x


def test_the_kernel_has_its_own_symbolic_variables_and_the_call_those_of_the_caller(n, x):
    kernel, _, out_ty = make_kernel(topi.exp, (x,), {})
    assert kernel.params[0].ty.shape[0] is not n
    assert out_ty.shape.values[0] is n
    assert "global_symbol" not in kernel.attrs
    assert kernel.attrs["tirx.noalias"] is True


def test_several_results_give_a_list_of_types_and_one_in_a_list_a_single(n, x):
    _, _, several = make_kernel(topi.split, (x, 2, 1), {})
    _, _, single = make_kernel(lambda a: [topi.exp(a)], (x,), {})
    assert isinstance(several, list)
    assert len(several) == 2
    assert isinstance(single, TensorType)


def test_a_variable_that_no_shape_defines_is_passed_behind_the_tensors(n):
    y = Var("y", TensorType([n * 2]))
    kernel, args, _ = make_kernel(topi.exp, (y,), {})
    assert names(kernel) == ["y", "n", "compute"]
    assert args == [y, n]


def test_a_variable_that_only_the_result_defines_is_not_passed(n):
    kernel, args, _ = make_kernel(topi.arange, (0, n, 1, "int64"), {})
    assert names(kernel) == ["T_arange"]
    assert args == []


def test_shapes_and_scalars_become_expressions_of_the_kernel(n, x):
    kernel, args, out_ty = make_kernel(topi.reshape, (x, ShapeExpr([n * 4])), {})
    assert names(kernel) == ["x", "T_reshape"]
    assert args == [x]
    assert out_ty.ndim == 1


def test_arguments_in_dicts_and_lists_are_found(x):
    def joined(d):
        return topi.concatenate([d["a"], d["rest"][0]], 0)

    kernel, args, _ = make_kernel(joined, ({"a": x, "rest": (x,)},), {})
    assert names(kernel) == ["x", "x", "T_concat"]
    assert args == [x, x]


def test_more_attributes_can_be_given(x):
    kernel, _, _ = make_kernel(topi.exp, (x,), {}, {"op_pattern": 0})
    assert kernel.attrs["op_pattern"] == 0


# Where TVM 0.27 makes a kernel that cannot work.


def test_a_result_that_is_an_argument_is_copied(x):
    kernel, _, _ = make_kernel(lambda a: a, (x,), {})
    assert names(kernel) == ["x", "compute"]
    assert kernel.params[0] is not kernel.params[1]


def test_a_captured_variable_is_passed_too(n, x):
    m = Var("m", "int64")

    def shifted(a):
        return te.compute(a.shape, lambda i, j: a[i, j] + prim_ops.cast("float32", m), name="q")

    kernel, args, _ = make_kernel(shifted, (x,), {})
    assert names(kernel) == ["x", "m", "q"]
    assert args == [x, m]
    assert [v.name for v in free_vars(kernel)] == ["n"]  # which x defines


# Errors of TVM's types.


def test_an_unknown_shape_is_refused():
    with pytest.raises(AssertionError, match="only supports Tensor that has ShapeExpr shape"):
        make_kernel(topi.exp, (Var("u", TensorType(dtype="float32", ndim=2)),), {})


def test_a_shape_variable_is_refused(x):
    shape = Var("s", ShapeType(ndim=1))
    with pytest.raises(AssertionError, match="emit_te now only supports ShapeExpr"):
        make_kernel(topi.reshape, (x, shape), {})


def test_a_result_that_is_no_tensor_is_refused(x):
    with pytest.raises(AssertionError, match=r"only support te\.tensor .* got 3"):
        make_kernel(lambda a: 3, (x,), {})


def test_a_te_tensor_as_argument_is_refused(x):
    with pytest.raises(TypeError, match="not supported type in emit_te"):
        make_kernel(topi.add, (x, te.placeholder((4,))), {})


# In the builder.


def test_a_kernel_is_shared_and_named_by_its_function(x):
    bb = BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            a = bb.emit_te(topi.exp, x)
            b = bb.emit_te(topi.exp, a, primfunc_name_hint="other")
            c = bb.emit_te(topi.multiply, a, b)
            out = bb.emit_output(c)
        bb.emit_func_output(out)
    mod = bb.get()
    assert [gvar.name_hint for gvar in mod.functions] == ["exp", "multiply", "main"]


def test_an_argument_that_is_no_leaf_is_emitted_first(x):
    bb = BlockBuilder()
    with bb.function("main", [x]):
        call = bb.call_te(topi.add, bb.normalize(exp(x)), x)
        out = bb.emit(call)
        bb.emit_func_output(out)
    text = bb.get().script()
    assert 'gv: R.Tensor((n, 4), dtype="float32") = R.exp(x)' in text
    assert "R.call_tir(cls.add, (gv, x)" in text
    assert "def add(A: T.Buffer(" in text


def test_the_type_of_a_call_with_several_results_is_a_tuple(x):
    bb = BlockBuilder()
    with bb.function("main", [x]):
        out = bb.emit_te(topi.split, x, 2, 1)
        bb.emit_func_output(out)
    assert isinstance(out.ty, TupleType)
    assert "out_ty=[R.Tensor((n, 2)" in bb.get().script()
