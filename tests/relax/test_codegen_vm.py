"""Code generation: bytecode of lowered functions, and what is refused with its name."""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.errors import InternalError
from relaxlab.ir import GlobalVar, IRModule
from relaxlab.relax.codegen_vm import codegen
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.relax.transform import AttachGlobalSymbol
from tests.relax.transform.checks import module


def bytecode(functions):
    builder = ExecBuilder()
    codegen(builder, AttachGlobalSymbol()(module(functions)))
    return builder.get()


def instructions(functions):
    """Return the instructions of the first function as text; the texts here are TVM's (run)."""
    first = bytecode(functions).as_text().split("\n\n")[0]
    return [" ".join(line.split()) for line in first.splitlines()[1:]]


def test_values_and_calls():
    assert instructions(
        """
        @R.function(pure=False)
        def main(x: R.Object, y: R.Object):
            t = (x, y, 3, R.str("s"), R.shape([1, 2]))
            u = t[1]
            a = R.call_packed("f", u, R.dtype("float32"), T.float32(2.5))
            R.call_packed("g", a, ty_args=R.Tuple)
            return a
        """
    ) == [
        "call vm.builtin.make_tuple in: %0, %1, i3, c[0], c[1] dst: %2",
        "call vm.builtin.tuple_getitem in: %2, i1 dst: %3",
        "call f in: %3, c[2], c[3] dst: %4",
        "call g in: %4 dst: %void",
        "ret %4",
    ]


def test_branches_meet_in_one_register():
    assert instructions(
        """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Object):
            if c:
                r = x
            else:
                r = R.null_value()
            return r
        """
    ) == [
        "call vm.builtin.read_if_cond in: %0 dst: %2",
        "If %2, 3",
        "call vm.builtin.copy in: %1 dst: %3",
        "goto 2",
        "call vm.builtin.copy in: %void dst: %3",
        "ret %3",
    ]


def test_another_name_is_another_register():
    """So that the end of one name does not end the other."""
    assert instructions(
        """
        @R.function(pure=False)
        def main(x: R.Object):
            y = x
            R.vm.kill_object(x)
            return y
        """
    ) == [
        "call vm.builtin.copy in: %0 dst: %1",
        "call vm.builtin.null_value in: dst: %0",
        "ret %1",
    ]


def test_functions_as_values_and_closures():
    assert instructions(
        """
        @R.function(pure=False)
        def main(f: R.Object, x: R.Object):
            a = R.call_packed("apply", Module.other, R.ExternFunc("ext"), x)
            b = Module.other(x)
            return (a, b)

        @R.function(pure=False)
        def other(x: R.Object) -> R.Object:
            return x
        """
    )[:2] == [
        "call apply in: f[other], f[ext], %1 dst: %2",
        "call other in: %1 dst: %3",
    ]


def test_memory_scopes_of_virtual_devices():
    lines = instructions(
        """
        I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("llvm", 0, "shared")]})

        @R.function(pure=False)
        def main(x: R.Object):
            s = R.vm.alloc_storage(R.shape([8]), 1, R.dtype("uint8"), R.str("shared"))
            a = R.vm.alloc_tensor(s, 0, R.shape([2]), R.dtype("float32"), 1)
            b = R.vm.alloc_tensor(s, 0, R.shape([2]), R.dtype("float32"), 7)
            return (a, b)
        """
    )
    assert lines[:3] == [
        "call vm.builtin.alloc_storage in: %vm, c[0], i1, c[1], c[2] dst: %1",
        "call vm.builtin.alloc_tensor in: %1, i0, c[3], c[4], c[2] dst: %2",
        "call vm.builtin.alloc_tensor in: %1, i0, c[3], c[4] dst: %3",
    ]


@pytest.mark.parametrize(
    ("body", "params", "message"),
    [
        ("return R.exp(x)", 'x: R.Tensor((2,), "float32")', r"'main' met .*'relax\.exp'"),
        ('return R.call_packed("f", R.shape([n]))', 'n: R.Prim("int64")', "a symbolic shape"),
        ('return R.call_packed("f", n + 1)', 'n: R.Prim("int64")', r"a \w+ expression: n \+"),
        ("R.vm.kill_object(R.str('a'))\n    return x", "x: R.Object", "needs a register"),
        (
            "with R.dataflow():\n        y = R.exp(x)\n        R.output(y)\n    return y",
            'x: R.Tensor((2,), "float32")',
            "run LegalizeOps",
        ),
    ],
)
def test_what_is_not_lowered_is_named(body, params, message):
    with pytest.raises(InternalError, match=message):
        bytecode(f"@R.function(pure=False)\ndef main({params}):\n    {body}\n")


def test_functions_need_a_symbol():
    mod = module("@R.function(private=True)\ndef main(x: R.Object):\n    return x\n")
    with pytest.raises(InternalError, match="'main' has no global_symbol; run AttachGlobalSymbol"):
        codegen(ExecBuilder(), mod)


def test_an_undefined_variable():
    func = relax.Function((), relax.SeqExpr((), relax.Var("v", relax.AnyType())), relax.AnyType())
    mod = IRModule({GlobalVar("main"): func.with_attr("global_symbol", "main")})
    with pytest.raises(InternalError, match="variable 'v' of 'main' is not defined"):
        codegen(ExecBuilder(), mod)


def test_what_is_left_of_the_module():
    mod = AttachGlobalSymbol()(
        module(
            """
            @T.prim_func
            def kernel(A: T.Buffer((2,), "float32")):
                A[0] = T.float32(1)

            @R.function
            def main(x: R.Object):
                return x
            """
        )
    )
    rest = codegen(ExecBuilder(), mod)
    assert [gvar.name_hint for gvar in rest.functions] == ["kernel"]
    assert len(mod.functions) == 2


# ---------------------------------------------------------------- relax.build


IDENTITY = '@R.function\ndef main(x: R.Tensor((2,), "float32")):\n    return x\n'


def test_a_constant_is_returned():
    ex = relax.build(
        module('@R.function\ndef main():\n    return R.const([1.0, 2.0], "float32")\n'), "numpy"
    )
    assert relax.VirtualMachine(ex, runtime.cpu())["main"]().numpy().tolist() == [1, 2]


def test_unknown_modes_and_pipelines():
    with pytest.raises(ValueError, match="Unknown exec_mode 'fast'"):
        relax.build(module(IDENTITY), "numpy", exec_mode="fast")
    with pytest.raises(ValueError, match="Unknown pre-built pipeline fast"):
        relax.build(module(IDENTITY), "numpy", relax_pipeline="fast")


def test_params_without_external_modules():
    with pytest.raises(ValueError, match=r"params \['w'\] .*BindParams before building"):
        relax.build(module(IDENTITY), "numpy", params={"w": np.zeros(2)})


def test_a_pass_over_the_kernels():
    seen = []

    @relax.transform.module_pass(opt_level=0)
    def note(mod, ctx):
        seen.extend(gvar.name_hint for gvar in mod.functions)
        return mod

    program = '@R.function\ndef main(x: R.Tensor((2,), "float32")):\n    return R.exp(x)\n'
    relax.build(module(program), "numpy", tir_pipeline=note)
    assert seen == ["tir_exp"]
    seen.clear()
    relax.build(module(IDENTITY), "numpy", tir_pipeline=note)
    assert seen == []
