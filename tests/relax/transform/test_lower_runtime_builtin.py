"""LowerRuntimeBuiltin: each operator and the builtin it becomes."""

import pytest

from relaxlab.errors import InternalError
from relaxlab.ir import Call, Op
from relaxlab.relax import transform
from relaxlab.relax.expr import ExternFunc
from relaxlab.relax.transform import LowerRuntimeBuiltin
from tests.relax.transform.checks import assert_becomes, assert_unchanged, module


def test_closures():
    assert_becomes(
        LowerRuntimeBuiltin(),
        """
        @R.function(private=True)
        def g(
            x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")
        ) -> R.Tensor((2,), "float32"):
            return x

        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            c = R.make_closure(Module.g, (x,))
            y = R.invoke_closure(c, (x,), ty_args=R.Tensor((2,), "float32"))
            return y
        """,
        """
        @R.function(private=True)
        def g(
            x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")
        ) -> R.Tensor((2,), "float32"):
            return x

        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            c = R.call_packed("vm.builtin.make_closure", Module.g, x, ty_args=R.Object)
            y = R.call_builtin_with_ctx("vm.builtin.invoke_closure", (c, x), ty_args=R.Object)
            return y
        """,
    )


def test_views_with_explicit_defaults():
    assert_becomes(
        LowerRuntimeBuiltin(),
        """
        @R.function(pure=False)
        def f(x: R.Tensor((4,), "float32")):
            a = R.memory.view(x)
            b = R.memory.view(x, R.shape([2, 2]))
            c = R.memory.view(x, R.shape([2]), "int32", 8)
            d = R.memory.ensure_zero_offset(c)
            return (a, b, d)
        """,
        """
        @R.function(pure=False)
        def f(x: R.Tensor((4,), "float32")):
            gv = R.null_value()
            a = x
            gv2 = R.null_value()
            b: R.Tensor((2, 2), "float32") = R.call_packed(
                "runtime.TVMTensorCreateView", x, R.shape([2, 2]), R.dtype("float32"), 0
            )
            c: R.Tensor((2,), "int32") = R.call_packed(
                "runtime.TVMTensorCreateView", x, R.shape([2]), R.dtype("int32"), 8
            )
            d = R.call_packed(
                "vm.builtin.ensure_zero_offset", c, ty_args=R.Tensor((2,), "int32")
            )
            return (a, b, d)
        """,
    )


def test_dynamic_kernel_calls_and_python_functions():
    mod = module(
        """
        @T.prim_func
        def k(A: T.Buffer((4,), "float32"), n: T.int64):
            for i in range(4):
                A[i] = T.float32(0)

        @R.function(pure=False)
        def f(x: R.Tensor((4,), "float32"), s: R.Shape(ndim=1)):
            R.vm.call_tir_dyn(Module.k, (x, s))
            y = R.call_py_func("p", (x,), out_ty=R.Tensor((4,), "float32"))
            return y
        """
    )
    text = LowerRuntimeBuiltin()(mod).script()
    assert 'R.call_packed("vm.builtin.call_tir_dyn", cls.k, x, s, ty_args=(R.Tuple,))' in text
    assert 'R.call_packed("vm.builtin.call_py_func", (R.str("p"), (x,)), ' in text


def test_device_copies():
    mod = module(
        """
        I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 3)]})

        @R.function
        def f(x: R.Tensor((4,), "float32")):
            y = R.to_vdevice(x, "cuda")
            return y
        """
    )
    text = LowerRuntimeBuiltin()(mod).script()
    assert 'R.call_packed("vm.builtin.to_device", x, 2, 3, R.str("global"), ' in text


def test_unplanned_allocations_are_refused():
    mod = module(
        """
        @R.function(pure=False)
        def f(x: R.Tensor((4,), "float32")):
            a = R.builtin.alloc_tensor(R.shape([2]), R.dtype("float32"), 0)
            return a
        """
    )
    with pytest.raises(InternalError, match="run LowerAllocTensor before"):
        LowerRuntimeBuiltin()(mod)


def test_operators_may_bring_their_own_lowering(monkeypatch):
    def lower(builder, call):
        return Call(ExternFunc("my.exp"), call.args, None, (call.ty,))

    monkeypatch.setitem(Op.get("relax.exp")._table, "FLowerBuiltin", lower)
    mod = module(
        """
        @R.function(pure=False)
        def f(x: R.Tensor((4,), "float32")):
            y = R.exp(x)
            return y
        """
    )
    text = LowerRuntimeBuiltin()(mod).script()
    assert 'R.call_packed("my.exp", x, ty_args=(R.Tensor((4,), dtype="float32"),))' in text


def test_the_former_name():
    assert transform.VMBuiltinLower is LowerRuntimeBuiltin


def test_nothing_to_do():
    assert_unchanged(
        LowerRuntimeBuiltin(),
        """
        @R.function
        def f(x: R.Tensor((2,), "float32")):
            return x
        """,
    )


def test_memory_and_shapes():
    assert_becomes(
        LowerRuntimeBuiltin(),
        """
        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32")):
            s = R.memory.alloc_storage(R.shape([8]), 1, R.str("shared"), R.dtype("float32"))
            a = R.memory.alloc_tensor(s, 4, R.shape([1]), R.dtype("float32"), 1)
            _ = R.memory.kill_tensor(a)
            _1 = R.memory.kill_storage(s)
            b = R.shape_of(x)
            c = R.reshape(x, R.shape([1, 2]))
            return c
        """,
        """
        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32")):
            s = R.vm.alloc_storage(R.shape([8]), 1, R.dtype("uint8"), R.str("shared"))
            a = R.vm.alloc_tensor(s, 4, R.shape([1]), R.dtype("float32"), 1)
            R.vm.kill_object(a)
            R.vm.kill_object(s)
            b = R.call_packed("vm.builtin.shape_of", x, ty_args=(R.Shape([2]),))
            c = R.call_packed(
                "vm.builtin.reshape", x, R.shape([1, 2]), ty_args=(R.Tensor((1, 2), "float32"),)
            )
            return c
        """,
    )
