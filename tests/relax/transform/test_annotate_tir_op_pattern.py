"""AnnotateTIROpPattern: kernels learn their kind, in place."""

from relaxlab.relax.transform import AnnotateTIROpPattern
from tests.relax.transform.checks import assert_becomes, module

KERNEL = """
    for i in T.serial(T.int64(2)):
        with T.sblock("b"):
            vi = T.axis.spatial(T.int64(2), i)
            B[vi] = A[vi]
"""


def program(attrs):
    return f"""
@T.prim_func(private=True, s_tir=True)
def k(A: T.Buffer((T.int64(2),)), B: T.Buffer((T.int64(2),))):
    {attrs}
{KERNEL}
@R.function
def f(x: R.Tensor((2,), "float32")):
    y = R.call_tir(Module.k, (x,), out_ty=R.Tensor((2,), "float32"))
    return y
"""


def test_kind_is_added_and_the_function_untouched():
    result = assert_becomes(
        AnnotateTIROpPattern(),
        program('T.func_attr({"tirx.noalias": True})'),
        program('T.func_attr({"op_pattern": 0, "tirx.noalias": True})'),
    )
    assert [gvar.name_hint for gvar in result.functions] == ["k", "f"]


def test_a_kind_given_by_hand_stays():
    mod = module(program('T.func_attr({"op_pattern": 8, "tirx.noalias": True})'))
    assert AnnotateTIROpPattern()(mod) is mod
