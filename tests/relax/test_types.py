"""How types relate, what they mention, and what calls of functions give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab import relax, te
from relaxlab.errors import InternalError
from relaxlab.ir import FuncType, PrimType, Target, Var, VDevice
from relaxlab.relax import analysis
from relaxlab.relax.analysis import BaseCheckResult, type_base_check, type_lca
from relaxlab.relax.call_type import prim_func_type
from relaxlab.relax.type import PACKED_FUNC
from relaxlab.relax.type_relations import is_base_of
from relaxlab.relax.type_variables import substitute
from relaxlab.tirx import const

N, M, K = (Var(name, "int64") for name in "nmk")
S = relax.Var("s", relax.ShapeType(ndim=2))
T, SHAPE, ANY = relax.TensorType, relax.ShapeType, relax.AnyType()
F16, F32 = "float16", "float32"
CPU, GPU = VDevice(Target("llvm")), VDevice(Target("cuda"))


@pytest.mark.parametrize(
    ("base", "derived", "expected"),
    [
        (T([N]), T([M]), 2),
        (T([N]), T([N]), 3),
        (T([N + 1]), T([relax.prim_value(1) + N]), 3),
        (T([N, 2]), T([M, 3]), 0),
        (T([N]), T([N + 1]), 2),
        (T(ndim=1), T([N]), 3),
        (T([N]), T(ndim=1), 2),
        (T([N]), T(ndim=2), 0),
        (T([N]), T(ndim=-1), 1),
        (T([N]), T([N], None), 1),
        (T([N], None), T([N]), 3),
        (T([N], F16), T([N]), 0),
        (SHAPE([N]), ANY, 1),
        (T(S), T(S), 3),
        (T(S), T([2, 3]), 2),
        (T([2, 3]), T(S), 2),
        (T(S), T([2]), 0),
        (T(S), T(), 1),
        (T([2]), T([2], F32, CPU), 3),
        (T([2], F32, CPU), T([2]), 1),
        (T([2], F32, CPU), T([2], F32, GPU), 0),
        (PrimType("int64"), ANY, 1),
        (PrimType("int64"), PrimType("int32"), 0),
        (PrimType("int64"), T([], "int64"), 0),
        (relax.TupleType(()), relax.TupleType(()), 3),
        (relax.TupleType((ANY,)), relax.TupleType(()), 0),
        (relax.TupleType((T([2]), T([N]))), relax.TupleType((T([2]), T([3]))), 2),
        (ANY, SHAPE([N]), 3),
        (FuncType((T([2]),), T([2])), FuncType((T([2]),), T([2]), False), 0),
        (FuncType((T([2]),), T([2]), False), FuncType((T([2]),), T([2])), 3),
        (FuncType((SHAPE([N]),), SHAPE([N])), FuncType((SHAPE([M]),), SHAPE([M])), 3),
        (FuncType((T([2]),), ANY), FuncType((), ANY), 0),
        (FuncType.opaque_func(), PACKED_FUNC, 3),
        (PACKED_FUNC, FuncType((), ANY), 2),
        (FuncType((), ANY, False), FuncType.opaque_func(), 2),
    ],
)
def test_subtype_is_proved_as_far_as_tvm_proves_it(
    base: relax.Type, derived: relax.Type, expected: int
) -> None:
    assert type_base_check(base, derived) is BaseCheckResult(expected)


@pytest.mark.parametrize(
    ("lhs", "rhs", "expected"),
    [
        (T([N]), T([M]), 'R.Tensor(dtype="float32", ndim=1)'),
        (T([N]), T([N, M]), 'R.Tensor(dtype="float32")'),
        (T([N]), T([N], F16), "R.Tensor((n,))"),
        (T([N + 1]), T([relax.prim_value(1) + N]), 'R.Tensor((n + 1,), dtype="float32")'),
        (T(S), T(S), 'R.Tensor(s, dtype="float32")'),
        (T(S), T([2, 3]), 'R.Tensor(dtype="float32", ndim=2)'),
        (T([2], F32, CPU), T([2]), 'R.Tensor((2,), dtype="float32")'),
        (SHAPE([N]), SHAPE([M]), "R.Shape(ndim=1)"),
        (SHAPE([N]), SHAPE(ndim=2), "R.Shape(ndim=-1)"),
        (SHAPE([N]), T([N]), "R.Any"),
        (PrimType("int64"), PrimType("int64"), "int64"),
        (PrimType("int64"), PrimType("int32"), "R.Any"),
        (
            relax.TupleType((SHAPE([N]), SHAPE([M]))),
            relax.TupleType((SHAPE([N]), SHAPE([2]))),
            "T.Tuple(R.Shape([n]), R.Shape(ndim=1))",
        ),
        (relax.TupleType((ANY,)), relax.TupleType(()), "R.Any"),
        (
            FuncType((T([2]),), T([2])),
            FuncType((T(ndim=1),), T([2]), False),
            f"R.Callable(({T(ndim=1)},), {T([2])}, False)",
        ),
        (
            FuncType((SHAPE([2]),), SHAPE([2])),
            FuncType((), SHAPE([2])),
            "R.Callable(ret=R.Shape([2]), purity=True)",
        ),
    ],
)
def test_common_ancestor_keeps_what_both_share(
    lhs: relax.Type, rhs: relax.Type, expected: str
) -> None:
    assert str(type_lca(lhs, rhs)) == expected


DIMS = st.sampled_from([1, 2, N, M, N + 1])
TENSORS = st.builds(
    lambda dims, dtype: T(dims, dtype),
    st.one_of(st.none(), st.lists(DIMS, max_size=2)),
    st.sampled_from([None, F16, F32]),
)
TYPES = st.recursive(
    st.one_of(TENSORS, st.just(ANY), st.builds(SHAPE, st.lists(DIMS, max_size=2))),
    lambda inner: st.builds(relax.TupleType, st.lists(inner, max_size=2).map(tuple)),
    max_leaves=4,
)


@given(TYPES, TYPES)
def test_common_ancestor_is_a_base_of_both(lhs: relax.Type, rhs: relax.Type) -> None:
    joined = type_lca(lhs, rhs)
    assert is_base_of(joined, lhs)
    assert is_base_of(joined, rhs)


@given(TYPES)
def test_every_type_is_its_own_base_and_ancestor(ty: relax.Type) -> None:
    assert is_base_of(ty, ty)
    assert type_lca(ty, ty) is ty
    erased = analysis.erase_to_well_defined(ty)
    assert is_base_of(erased, ty)
    assert not analysis.tir_vars_in_type(erased)


def test_variables_of_a_type() -> None:
    ty = relax.TupleType((T([N * 2, M]), SHAPE([K, N]), FuncType((SHAPE([N]),), SHAPE([N]))))
    assert analysis.definable_tir_vars_in_type(ty) == [M, K, N]
    assert analysis.tir_vars_in_type(ty) == [N, M, K]


def test_erasing_replaces_the_known_and_drops_the_rest() -> None:
    erase = analysis.erase_to_well_defined
    assert str(erase(T([N * 2, M]), {N: M, M: M})) == 'R.Tensor((m * 2, m), dtype="float32")'
    four = relax.prim_value(4)
    assert str(erase(T([N * 2, M]), {N: four, M: M})) == 'R.Tensor((8, m), dtype="float32")'
    assert str(erase(T([N * 2, M]), {N: M})) == 'R.Tensor(dtype="float32", ndim=2)'
    assert str(erase(T(S), None, {S: relax.ShapeExpr([N, 3])})) == (
        'R.Tensor((n, 3), dtype="float32")'
    )
    assert str(erase(T(S), {N: N})) == 'R.Tensor(dtype="float32", ndim=2)'
    kept = T([N, 2])
    assert erase(kept, {N: N}) is kept
    function = FuncType((T([N]),), T([M]))
    assert erase(function) is function


def test_static_type_has_no_shapes() -> None:
    ty = relax.TupleType((T([2, M]), FuncType((T([N]),), T([3]), False), PrimType("int64")))
    assert str(analysis.get_static_type(ty)) == (
        'T.Tuple(R.Tensor(dtype="float32", ndim=2), R.Callable((R.Tensor(dtype="float32", '
        'ndim=1),), R.Tensor(dtype="float32", ndim=1), False), T.int64)'
    )


def test_substitution_folds_and_keeps_what_does_not_change() -> None:
    ty = T([N * 2 + 1, M])
    assert str(substitute(ty, {N: relax.prim_value(3)})) == 'R.Tensor((7, m), dtype="float32")'
    assert substitute(ty, {K: relax.prim_value(3)}) is ty
    assert substitute(ty, {}) is ty
    shape = substitute(relax.ShapeExpr([N, 2]), {N: M})
    assert str(shape.ty) == "R.Shape([m, 2])"


# --- calls --------------------------------------------------------------------------------------


def derive(ty: FuncType, *args: relax.Expr) -> str:
    call = relax.Call(relax.Var("f", ty), args)
    return str(analysis.derive_call_ret_type(ty, call, relax.BlockBuilder()))


def arg(ty: relax.Type) -> relax.Var:
    return relax.Var("arg", ty)


def test_call_binds_left_to_right_and_erases_the_unknown() -> None:
    ty = FuncType((T([N, 4]), T([N, 4])), T([N * 2, 4]))
    double = 'R.Tensor((m * 2, 4), dtype="float32")'
    assert derive(ty, arg(T([M, 4])), arg(T([M, 4]))) == double
    assert derive(ty, arg(T([M, 4])), arg(T([2, 4]))) == double
    assert derive(ty, arg(T(ndim=2)), arg(T([2, 4]))) == 'R.Tensor((4, 4), dtype="float32")'
    assert derive(ty, arg(T(ndim=2)), arg(T(ndim=2))) == 'R.Tensor(dtype="float32", ndim=2)'


def test_call_binds_through_shapes_tuples_and_whole_shapes() -> None:
    shape = FuncType((SHAPE([N]), T([K, N]), PrimType("int64")), T([N, K]))
    assert derive(shape, relax.ShapeExpr([M + 1]), arg(T([2, 4])), relax.prim_value(3)) == (
        'R.Tensor((m + 1, 2), dtype="float32")'
    )
    pair = FuncType((relax.TupleType((SHAPE([N]), T([N]))),), SHAPE([N]))
    assert derive(pair, relax.Tuple((relax.ShapeExpr([3]), arg(T([M]))))) == "R.Shape([3])"
    whole = FuncType((S.ty, T(S)), T(S))
    assert derive(whole, arg(SHAPE([2, 3])), arg(T([2, 3]))) == 'R.Tensor((2, 3), dtype="float32")'


def test_call_with_wrong_arguments_is_refused() -> None:
    ty = FuncType((T([N, 4]),), T([N, 4]))
    with pytest.raises(ValueError, match=r"expected .*given R\.Any"):
        derive(ty, arg(ANY))
    with pytest.raises(ValueError, match=r"accepts 1 parameters, but was called with 2 arguments"):
        derive(ty, arg(T([2, 4])), arg(T([2, 4])))
    with pytest.raises(ValueError, match="Argument 0 type mismatch"):
        derive(ty, arg(T([2, 5])))


def test_call_of_a_function_known_by_name_has_the_declared_type() -> None:
    extern, x = relax.ExternFunc("f"), arg(T([2]))
    types = [(), (T([2]),), (T([2]), SHAPE([3]))]
    shown = [
        str(relax.BlockBuilder().normalize(relax.Call(extern, [x], ty_args=given)).ty)
        for given in types
    ]
    assert shown == [
        "R.Any",
        'R.Tensor((2,), dtype="float32")',
        'T.Tuple(R.Tensor((T.int64(2),), dtype="float32"), R.Shape([T.int64(3)]))',
    ]


def test_kernel_signature_as_relax_sees_it() -> None:
    x = te.placeholder((N, 4), "float32", name="x")
    kernel = te.create_prim_func(
        [x, te.compute((N, 4), lambda i, j: x[i, j] + const(1, "float32"), name="y")]
    )
    ty = prim_func_type(kernel)
    assert not ty.purity
    assert ty.params is not None
    assert [str(p) for p in ty.params] == ['R.Tensor((n, 4), dtype="float32")'] * 2
    assert ty.ret == relax.TupleType(())


# --- functions ----------------------------------------------------------------------------------


def test_result_type_is_what_callers_can_express() -> None:
    x = relax.Var("x", T([N, 4]))
    assert str(relax.Function([x], relax.ShapeExpr([N, M])).ret_ty) == "R.Shape(ndim=2)"
    assert str(relax.Function([x], relax.ShapeExpr([N * 2])).ret_ty) == "R.Shape([n * 2])"


def test_declared_result_type_gives_way_to_a_more_precise_one() -> None:
    x = relax.Var("x", T([4]))
    assert str(relax.Function([x], x, T(ndim=1)).ret_ty) == 'R.Tensor((4,), dtype="float32")'
    assert str(relax.Function([x], x, T([2, 3])).ret_ty) == 'R.Tensor((2, 3), dtype="float32")'


def test_function_without_any_result_type_is_refused() -> None:
    x = relax.Var("x", T([4]))
    with pytest.raises(InternalError, match="explicit type for the return type"):
        relax.Function([x], relax.op.exp(x))


def test_tuple_and_shape_types_always_follow_their_parts() -> None:
    import dataclasses  # noqa: PLC0415  # only here

    shape = dataclasses.replace(relax.ShapeExpr([2]), values=relax.ShapeExpr([3, 4]).values)
    assert str(shape.ty) == "R.Shape([3, 4])"
    pair = dataclasses.replace(relax.Tuple((arg(T([2])),)), fields=(arg(ANY),))
    assert pair.ty == relax.TupleType((ANY,))
