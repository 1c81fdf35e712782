"""Operators: how calls are built, what is refused, what differs from TVM on purpose."""

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab import relax
from relaxlab.errors import InternalError
from relaxlab.ir import Op, Target, Var, VDevice
from relaxlab.relax import op
from relaxlab.runtime import cpu

N, M = Var("n", "int64"), Var("m", "int64")


def tensor(*shape: int | relax.Expr, dtype: str | None = "float32") -> relax.Var:
    return relax.Var("x", relax.TensorType(shape, dtype))


def unknown(ndim: int = -1, dtype: str | None = "float32") -> relax.Var:
    return relax.Var("x", relax.TensorType(None, dtype, ndim=ndim))


def infer(call: relax.Expr) -> str:
    bb = relax.BlockBuilder()
    bb.begin_scope([tensor(N, M)])
    bb.begin_block(is_dataflow=False)
    return str(bb.normalize(call).ty)


# --- declarations -------------------------------------------------------------------------------


def test_every_public_name_is_documented_and_exists() -> None:
    for package in (op, op.nn, op.memory, op.vm, op.builtin):
        assert package.__all__ == sorted(package.__all__)
        for name in package.__all__:
            target = getattr(package, name)
            assert inspect.getdoc(target), f"{package.__name__}.{name} has no docstring"


def test_every_operator_infers() -> None:
    relax_ops = [n for n in Op.list_op_names() if n.startswith("relax.") and ".test." not in n]
    assert len(relax_ops) > 120
    assert [n for n in relax_ops if Op.get(n).get_attr("FInferType") is None] == []


def test_names_that_shadow_builtins_do_not_leak() -> None:
    assert max([1, 2]) == 2
    assert op.max is not max


# --- arguments ----------------------------------------------------------------------------------


def test_wrong_number_of_arguments() -> None:
    call = relax.Call(Op.get("relax.exp"), [tensor(2), tensor(2)])
    message = r"Operator relax\.exp expects 1 arguments, but was called with 2 arguments"
    with pytest.raises(ValueError, match=message):
        infer(call)
    with pytest.raises(ValueError, match=r"strided_slice expects 4 to 5 arguments"):
        infer(relax.Call(Op.get("relax.strided_slice"), [tensor(2)]))


def test_argument_that_is_no_tensor() -> None:
    shape = relax.Var("s", relax.ShapeType([N]))
    message = (
        r"Operator relax\.exp requires argument 0 \(x\) to be a tensor\.  However, the argument s "
        r"is instead of type R\.Shape\(\[n\]\)"
    )
    with pytest.raises(TypeError, match=message):
        infer(op.exp(shape))
    with pytest.raises(TypeError, match=r"has LHS s, which has Type R\.Shape"):
        infer(op.add(shape, tensor(2)))
    with pytest.raises(TypeError, match="expects the input to be a Tuple of Tensors"):
        infer(op.concat(tensor(2)))


def test_missing_attributes_are_named() -> None:
    with pytest.raises(TypeError, match=r"a call of relax\.sum needs its attributes"):
        infer(relax.Call(Op.get("relax.sum"), [tensor(2)]))


def test_python_operators_build_calls_and_refuse_numbers() -> None:
    x = tensor(2)
    built = [x + x, x - x, x * x, x / x, x // x, x % x, x**x, -x, x < x, x <= x, x > x, x >= x]
    assert [call.op.name.removeprefix("relax.") for call in built] == [
        *("add", "subtract", "multiply", "divide", "floor_divide", "mod", "power", "negative"),
        *("less", "less_equal", "greater", "greater_equal"),
    ]
    for number in (1, 1.5, np.float32(1)):
        with pytest.raises(TypeError, match=f"Please convert {number} with `const` first"):
            x + number
        with pytest.raises(TypeError, match="with `const` first"):
            number + x
    with pytest.raises(TypeError, match="not supported"):
        x + None
    for refused in (lambda: x & x, lambda: x << x, lambda: ~x):
        with pytest.raises(TypeError, match="Operator overloading is not supported"):
            refused()


def test_indexing_a_tuple_variable() -> None:
    pair = relax.Var("t", relax.TupleType((tensor(2).ty, tensor(3).ty)))
    assert str(pair[1].ty) == 'R.Tensor((3,), dtype="float32")'
    with pytest.raises(IndexError):
        pair[2]
    with pytest.raises(IndexError, match="exactly one index"):
        pair[0, 1]
    with pytest.raises(InternalError, match="must be TupleType"):
        infer(tensor(2)[0])


# --- shapes that are not known ------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        lambda: op.reshape(unknown(2), (3, -1)),
        lambda: op.dynamic_strided_slice(tensor(4, 5), *[unknown(1, "int64")] * 3),
        lambda: op.call_tir(relax.GlobalVar("k"), (tensor(2),), unknown(2).ty),
    ],
    ids=["reshape", "dynamic_strided_slice", "call_tir"],
)
def test_unknown_shape_names_the_operator_the_shape_and_the_way_out(build: object) -> None:
    with pytest.raises(InternalError) as caught:
        infer(build())  # type: ignore[operator]  # a lambda above
    message = str(caught.value)
    for word in ("shape", "match_cast"):
        assert word in message
    assert any(name in message for name in ("reshape", "dynamic_strided_slice", "call_tir"))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (op.add(unknown(2), tensor(2, 3)), 'R.Tensor(dtype="float32", ndim=2)'),
        (op.matmul(unknown(1), unknown(2)), 'R.Tensor(dtype="float32", ndim=1)'),
        (op.matmul(unknown(1), unknown(1)), 'R.Tensor(dtype="float32", ndim=0)'),
        (op.sum(unknown(), keepdims=False), 'R.Tensor((), dtype="float32")'),
        (op.concat([unknown(), tensor(M, 2)]), 'R.Tensor(dtype="float32", ndim=2)'),
        (op.permute_dims(unknown(2), [0, 1]), 'R.Tensor(dtype="float32", ndim=2)'),
        (op.take(tensor(N), unknown(3, "int32")), 'R.Tensor(dtype="float32", ndim=3)'),
        (op.strided_slice(unknown(), [0], [1], [2]), 'R.Tensor(dtype="float32")'),
        (op.flatten(unknown()), 'R.Tensor(dtype="float32", ndim=1)'),
    ],
    ids=str,
)
def test_what_follows_from_an_unknown_shape(call: relax.Expr, expected: str) -> None:
    assert infer(call) == expected


# --- where we are right and TVM is not ----------------------------------------------------------


@given(
    st.integers(1, 12),
    st.integers(-14, 14),
    st.integers(-14, 14),
    st.integers(-4, 4).filter(bool),
)
def test_length_of_a_slice_is_pythons(length: int, begin: int, end: int, stride: int) -> None:
    # TVM: negative lengths for empty slices
    got = infer(op.strided_slice(tensor(length), [0], [begin], [end], [stride]))
    expected = len(range(length)[begin:end:stride])
    assert got == f'R.Tensor(({expected},), dtype="float32")'


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-4, 4).filter(bool))
def test_length_of_arange_is_numpys(start: int, end: int, step: int) -> None:
    # TVM: negative lengths for empty ranges, one too many for some negative steps
    expected = len(np.arange(start, end, step))
    assert infer(op.arange(start, end, step)) == f'R.Tensor(({expected},), dtype="int64")'


@given(st.integers(0, 12), st.integers(1, 6))
def test_sections_of_a_split_add_up(length: int, sections: int) -> None:
    # TVM: a negative last section when there are more sections than elements
    bb = relax.BlockBuilder()
    ty = bb.normalize(op.split(tensor(length), sections)).ty
    fields = ty.fields if isinstance(ty, relax.TupleType) else (ty,)
    lengths = [int(f.shape.values[0]) for f in fields]  # type: ignore[union-attr]  # tensors
    assert sum(lengths) == length
    assert min(lengths) >= 0
    assert len(lengths) == sections


def test_steps_of_zero_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"relax\.strided_slice: a stride is 0"):
        infer(op.strided_slice(tensor(4), [0], [0], [2], [0]))
    with pytest.raises(ValueError, match=r"relax\.arange: the step is 0"):
        infer(op.arange(0, 4, 0))


def test_views_stay_inside_their_tensor() -> None:
    x = tensor(2)
    assert infer(op.memory.view(x, (4,), "int8", 4)) == 'R.Tensor((4,), dtype="int8")'
    with pytest.raises(ValueError, match=r"would occur at byte .*9"):
        infer(op.memory.view(x, (4,), "int8", 5))
    with pytest.raises(ValueError, match="cannot begin before"):  # TVM accepts it
        infer(op.memory.view(x, (4,), "int8", -1))
    with pytest.raises(TypeError, match="int64 scalar"):
        infer(op.memory.view(x, (4,), "int8", 1.0))


def test_scans_check_their_axis_and_know_their_rank() -> None:
    assert infer(op.cumsum(unknown(2))) == 'R.Tensor(dtype="float32", ndim=1)'  # TVM: ndim=2
    with pytest.raises(ValueError, match="axis 2 is out of range"):  # TVM accepts it
        infer(op.cumsum(tensor(2, 3), 2))


# --- calls of kernels and functions -------------------------------------------------------------


def test_in_place_indices_are_checked() -> None:
    x, gvar = tensor(4), relax.GlobalVar("k")

    def refused(indices: list[int], out: object, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            infer(op.call_tir_inplace(gvar, (x, x), indices, out))  # type: ignore[arg-type]  # types

    refused([-1], x.ty, "At least one index")
    refused([2], x.ty, "out of range")
    refused([0, 0], [x.ty, x.ty], "index 0 appears more than once")
    refused([0], [x.ty, x.ty], "for each output")
    refused([0], relax.TensorType([3]), "identical shape and dtype")
    assert infer(op.call_tir_inplace(gvar, (x, x), [0, -1], [x.ty, x.ty])).startswith("T.Tuple")
    with pytest.raises(ValueError, match="does not match that for the in-place argument"):
        infer(op.call_inplace_packed("f", x, inplace_indices=0, ty_args=relax.TensorType([3])))


def test_packed_calls() -> None:
    x = tensor(4)
    assert infer(op.call_packed("f", x)) == "R.Any"
    assert infer(op.call_pure_packed("f", x, ty_args=x.ty)) == 'R.Tensor((4,), dtype="float32")'
    assert infer(op.call_builtin_with_ctx("vm.f", (x, 1))) == "None"
    with pytest.raises(InternalError, match="at most one type argument"):
        infer(op.call_builtin_with_ctx("vm.f", (x,), ty_args=[x.ty, x.ty]))
    with pytest.raises(TypeError, match="out_ty of call_dps_packed must be a TensorType"):
        op.call_dps_packed("f", (x,), relax.ShapeType([2]))
    with pytest.raises(InternalError, match="GlobalVar referring to a TIR PrimFunc"):
        op.call_tir("k", (x,), x.ty)  # type: ignore[arg-type]  # on purpose


def test_formats_are_strings() -> None:
    x = tensor(4)
    assert infer(op.print(x, format="{}")) == "None"
    with pytest.raises(TypeError, match="a format must be a string"):
        op.print(x, format=x)
    with pytest.raises(TypeError, match="boolean scalar, but received R"):
        infer(op.assert_op(relax.Var("a", relax.AnyType())))


def test_allocation_operators_have_tvms_argument_order() -> None:
    size, storage = relax.ShapeExpr([64]), relax.Var("s", relax.AnyType())
    calls = [
        op.vm.alloc_storage(size, 0, "uint8"),
        op.vm.alloc_tensor(storage, 0, (2, N), "float32"),
        op.memory.alloc_storage(size, 0, "global", "uint8"),
        op.memory.alloc_tensor(storage, 0, (2, N), "float32"),
        op.builtin.alloc_tensor((2, N), "float32", 0),
    ]
    assert [str(call).splitlines()[-1] for call in calls] == [
        'R.vm.alloc_storage(R.shape([64]), 0, R.dtype("uint8"), R.str("global"))',
        'R.vm.alloc_tensor(s, 0, R.shape([2, n]), R.dtype("float32"), 0)',
        'R.memory.alloc_storage(R.shape([64]), 0, R.str("global"), R.dtype("uint8"))',
        'R.memory.alloc_tensor(s, 0, R.shape([2, n]), R.dtype("float32"), 0)',
        'R.builtin.alloc_tensor(R.shape([2, n]), R.dtype("float32"), 0, R.str("global"))',
    ]
    types = [infer(call) for call in calls]
    tensor_type = 'R.Tensor((2, n), dtype="float32")'
    assert types == ["R.Any", tensor_type, "R.Any", tensor_type, tensor_type]
    with pytest.raises(TypeError, match="expects argument 3 to be a dtype"):
        infer(relax.Call(calls[1].op, (*calls[1].args[:3], size, size)))


def test_shape_of_a_tensor_as_an_expression() -> None:
    x = tensor(2, N)
    assert relax.get_shape_of(x) is x.ty.shape  # type: ignore[union-attr]  # a tensor type
    assert str(relax.get_shape_of(unknown(2))) == "R.shape_of(x)"


def test_placement() -> None:
    device = VDevice(Target("llvm"))
    moved = op.to_vdevice(tensor(4), device)
    bb = relax.BlockBuilder()
    ty = bb.normalize(moved).ty
    assert isinstance(ty, relax.TensorType)
    assert ty.vdevice is device
    hint = op.hint_on_device(tensor(4), cpu(0))
    assert hint.attrs is not None
    assert (hint.attrs.device_type, hint.attrs.index) == (1, 0)
    with pytest.raises(TypeError, match="needs a VDevice"):
        op.to_vdevice(tensor(4), "llvm")  # type: ignore[arg-type]  # on purpose
