"""AttachGlobalSymbol: every function gets the name it has in the executable."""

from relaxlab.relax.transform import AttachGlobalSymbol
from tests.relax.transform.checks import assert_becomes, assert_unchanged, module

KERNEL = """
    for i in range(2):
        B[i] = A[i]
"""
PRIVATE = f"""
@T.prim_func(private=True)
def k(A: T.Buffer((2,), "float32"), B: T.Buffer((2,), "float32")):{KERNEL}
@R.function(private=True)
def f(x: R.Tensor((2,), "float32")):
    y = R.call_tir(Module.k, (x,), out_ty=R.Tensor((2,), "float32"))
    return y
"""


def test_private_functions_become_public():
    assert_becomes(AttachGlobalSymbol(), PRIVATE, PRIVATE.replace("(private=True)", ""))


def test_the_prefix_is_for_kernels_and_is_added_once():
    prefixed = PRIVATE.replace("(private=True)", "").replace("k(A", "lib_k(A")
    attrs = 'I.module_attrs({"system_lib_prefix": "lib_"})\n'
    result = assert_becomes(
        AttachGlobalSymbol(), attrs + PRIVATE, attrs + prefixed.replace("Module.k", "Module.lib_k")
    )
    assert result["lib_k"].attrs["global_symbol"] == "lib_k"
    assert result["f"].attrs["global_symbol"] == "f"


def test_public_functions_stay():
    assert_unchanged(AttachGlobalSymbol(), PRIVATE.replace("(private=True)", ""))


def test_the_input_keeps_its_symbols():
    mod = module(PRIVATE)
    AttachGlobalSymbol()(mod)
    assert "global_symbol" not in mod["f"].func_attrs
