"""CallTIRRewrite: outputs are allocated and passed to the kernel."""

import pytest

from relaxlab.errors import InternalError
from relaxlab.relax.transform import CallTIRRewrite
from tests.relax.transform.checks import assert_becomes, assert_unchanged, module

KERNELS = """
@T.prim_func
def two(A: T.Buffer((2,), "float32"), B: T.Buffer((2,), "float32"), C: T.Buffer((2,), "float32")):
    for i in range(2):
        B[i] = A[i]

@T.prim_func
def one(A: T.Buffer((2,), "float32"), B: T.Buffer((2,), "float32")):
    for i in range(2):
        B[i] = A[i]
"""


def test_several_outputs_nested_and_in_place():
    assert_becomes(
        CallTIRRewrite(),
        KERNELS
        + """
@R.function
def f(x: R.Tensor((2,), "float32")):
    R.func_attr({"relax.force_pure": True})
    a = R.call_tir(
        Module.two, (x,), out_ty=[R.Tensor((2,), "float32"), R.Tensor((2,), "float32")]
    )
    b = R.call_tir_inplace(
        Module.one, (x, x), inplace_indices=[1], out_ty=R.Tensor((2,), "float32")
    )
    c = R.call_tir_inplace(
        Module.two,
        (x, b),
        inplace_indices=[0, -1],
        out_ty=[R.Tensor((2,), "float32"), R.Tensor((2,), "float32")],
    )
    return (a, c)
""",
        KERNELS
        + """
@R.function
def f(x: R.Tensor((2,), "float32")):
    R.func_attr({"relax.force_pure": True})
    alloc = R.builtin.alloc_tensor(
        R.shape([2]), R.dtype("float32"), 0, R.str("global"), ty_args=(R.Tensor((2,), "float32"),)
    )
    alloc1 = R.builtin.alloc_tensor(
        R.shape([2]), R.dtype("float32"), 0, R.str("global"), ty_args=(R.Tensor((2,), "float32"),)
    )
    Module.two(x, alloc, alloc1)
    a = (alloc, alloc1)
    Module.one(x, x)
    b = x
    alloc2 = R.builtin.alloc_tensor(
        R.shape([2]), R.dtype("float32"), 0, R.str("global"), ty_args=(R.Tensor((2,), "float32"),)
    )
    Module.two(x, b, alloc2)
    c = (x, alloc2)
    return (a, c)
""",
    )


def test_scalars_are_ordinary_arguments_and_names_go_on_across_functions():
    result = CallTIRRewrite()(
        module(
            """
            @R.function
            def f(x: R.Tensor(("n",), "float32")):
                n = T.int64()
                a = R.call_dps_packed("ext", (x, n), out_ty=R.Tensor((n, 2), "float16"))
                return a

            @R.function
            def g(x: R.Tensor((2,), "float32")):
                a = R.call_dps_packed("ext", (x,), out_ty=R.Tensor((2,), "float32"))
                return a
            """
        )
    ).script()
    assert '_: R.Any = R.call_packed("ext", x, n, alloc)' in result
    assert '_1: R.Any = R.call_packed("ext", x, alloc1)' in result
    assert 'R.builtin.alloc_tensor(R.shape([n, 2]), R.dtype("float16"), 0' in result


def test_virtual_device_gives_number_and_scope():
    mod = module(
        """
        I.module_global_infos(
            {"vdevice": [I.vdevice("llvm"), I.vdevice("llvm", 1, "shared")]}
        )

        @R.function
        def f(x: R.Tensor((2,), "float32")):
            a = R.call_dps_packed(
                "ext", (x,), out_ty=R.Tensor((2,), "float32", vdevice="llvm:1:shared")
            )
            return a
        """
    )
    assert 'R.dtype("float32"), 1, R.str("shared")' in CallTIRRewrite()(mod).script()


def test_dataflow_blocks_are_refused():
    mod = module(
        """
        @R.function
        def f(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.call_dps_packed("ext", (x,), out_ty=R.Tensor((2,), "float32"))
                R.output(a)
            return a
        """
    )
    text = mod.script()
    with pytest.raises(InternalError, match="run ToNonDataflow first"):
        CallTIRRewrite()(mod)
    assert mod.script() == text


def test_nothing_to_do():
    assert_unchanged(
        CallTIRRewrite(),
        """
        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32")):
            y = R.call_packed("g", x)
            return y
        """,
    )


def test_scalars_given_apart_come_last():
    mod = module(
        """
        @T.prim_func(private=True)
        def one(A: T.Buffer((2,), "float32"), B: T.Buffer((2,), "float32"), n: T.int64, m: T.int64):
            for i in range(2):
                B[i] = A[i] + T.Cast("float32", n + m)

        @R.function
        def f(x: R.Tensor((2,), "float32"), s: R.Shape(["n"])):
            n = T.int64()
            y = R.call_tir(
                Module.one, (x,), out_ty=R.Tensor((2,), "float32"), tir_vars=R.shape([n, n + 1])
            )
            return y
        """
    )
    assert "cls.one(x, alloc, n, n + 1)" in CallTIRRewrite()(mod).script()


def test_an_output_needs_a_dtype():
    mod = module(
        """
        @R.function
        def f(x: R.Tensor((2,), "float32")):
            y = R.call_dps_packed("ext", (x,), out_ty=R.Tensor((2,)))
            return y
        """
    )
    with pytest.raises(InternalError, match="an output of 'ext' has no dtype"):
        CallTIRRewrite()(mod)
