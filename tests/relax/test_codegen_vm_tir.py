"""Compiled mode: the text, the table and the bytes are TVM's, and the functions run."""

import json

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.errors import InternalError
from relaxlab.ir import IRModule, Target
from relaxlab.relax.codegen_vm_tir import codegen
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime.vm import VMExecutable
from relaxlab.script import from_source
from tests import golden_compiler, golden_vm
from tests.golden_values import decode, encode, with_golden
from tests.golden_vm import FOLDER
from tests.relax.transform.checks import module

RECORDED = json.loads((FOLDER / "vmtir.json").read_text())


def lowered(name):
    """Return a recorded module, as it was when TVM's code generator took it."""
    if not RECORDED[name]["built"]:
        text = (FOLDER / "vmtir" / f"{name}.txt").read_text()
        return from_source(text, check_well_formed=False)
    with Target("llvm"):
        return relax.get_pipeline("default")(from_source(golden_compiler.source(name)))


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_text_and_bytes(name):
    recorded = RECORDED[name]
    builder = ExecBuilder()
    left = relax.vm_build._vmcodegen(builder, lowered(name), "compiled")
    if recorded["built"]:
        items = left.functions_items()
        left = IRModule({g: f for g, f in items if g.name_hint.startswith("__vmtir__")})
    assert left.script(show_meta=True) == recorded["script"]
    ex = builder.get()
    assert ex.as_text() == recorded["as_text"]
    assert ex.as_python() == recorded["as_python"]
    assert ex.stats() == recorded["stats"]
    assert ex.save_to_bytes().hex() == recorded["bytes_hex"]


def test_a_function_needs_a_global_symbol():
    mod = module("@R.function(private=True)\ndef main(x: R.Any):\n    return x")
    with pytest.raises(InternalError, match="'main' has no global_symbol"):
        codegen(ExecBuilder(), mod)


def test_what_is_not_lowered_is_named():
    mod = module(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            R.func_attr({"global_symbol": "main"})
            y = R.add(x, x)
            return y
        """
    )
    with pytest.raises(InternalError, match=r"'main' met the operator 'relax\.add'"):
        codegen(ExecBuilder(), mod)


def test_the_name_carries_the_prefix_of_a_system_library():
    mod = module(
        '@R.function\ndef f(x: R.Any):\n    R.func_attr({"global_symbol": "f"})\n    return x'
    )
    mod = mod.with_attr("system_lib_prefix", "lib_")
    left = relax.vm_build._vmcodegen(ExecBuilder(), mod, "compiled")
    assert [gvar.name_hint for gvar in left.functions] == ["lib___vmtir__f"]


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="expected 'bytecode' or 'compiled'"):
        relax.build(IRModule(), exec_mode="fast")


SIGN = """
@I.ir_module
class Module:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 4), "float32")):
        if c:
            y = R.add(x, x)
        else:
            y = R.negative(x)
        return (y, R.shape_of(x), R.prim_value(2))
"""


@pytest.mark.parametrize("saved", [False, True])
def test_a_build_runs_and_can_be_saved(tmp_path, saved):
    ex = relax.build(from_source(SIGN), "numpy", exec_mode="compiled")
    assert ex.as_text() == "@main num_inputs=2 vm_tir_func;\n\n"
    assert [library.kind for library in ex.imports] == ["vmtir", "numpy"]
    if saved:
        ex.export_library(tmp_path / "m.rlx")
        ex = runtime.load_module(tmp_path / "m.rlx")
    main = relax.VirtualMachine(ex, runtime.cpu())["main"]
    x = np.arange(8, dtype="float32").reshape(2, 4)
    for condition, want in ((True, x + x), (False, -x)):
        y, shape, number = main(np.array(condition), x)
        np.testing.assert_array_equal(y.numpy(), want)
        assert (shape, number) == ((2, 4), 2)
    with pytest.raises(ValueError, match="param=x"):
        main(np.array(True), x[0])


def test_a_body_needs_its_library():
    ex = relax.build(from_source(SIGN), "numpy", exec_mode="compiled")
    alone = VMExecutable.load_from_bytes(ex.save_to_bytes())
    with pytest.raises(InternalError, match="__vmtir__main, is in no imported library"):
        relax.VirtualMachine(alone, runtime.cpu())
    body = ex.imports[0]["__vmtir__main"]
    with pytest.raises(TypeError, match="cannot be called by itself"):
        body(1, 2, 3, 4)


def test_a_body_of_other_statements_is_refused():
    ex = relax.build(from_source(SIGN), "numpy", exec_mode="compiled")
    kernel = ex.imports[1].kernels["add"]
    library = ex.imports[0]
    library.kernels["__vmtir__main"] = kernel
    with pytest.raises(InternalError, match="4 parameters"):
        relax.VirtualMachine(ex, runtime.cpu())


TWICE = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        with R.dataflow():
            y = R.add(x, x)
            R.output(y)
        return y
"""
KINDS = """
@I.ir_module
class M:
    @R.function(pure=False)
    def f(c: R.Tensor((), "bool"), x: R.Any):
        R.func_attr({"global_symbol": "f"})
        if c:
            b = R.call_packed(
                "golden.kinds", x, R.const([1, 2], "int32"), R.str("s"), R.dtype("float32"),
                R.shape([3]), R.prim_value(9), ty_args=R.Any
            )
        else:
            b = x
        return b
"""


def test_the_recorded_executables_have_the_same_bytes_and_results():
    builder = ExecBuilder()
    relax.vm_build._vmcodegen(builder, from_source(KINDS), "compiled")
    assert builder.get().save_to_bytes() == golden_vm.executable_bytes("cg_vmtir")
    ex = relax.build(from_source(TWICE), "numpy", exec_mode="compiled")
    recorded = golden_vm.case("build_compiled")
    assert ex.save_to_bytes().hex() == recorded["bytes_hex"]
    vm = relax.VirtualMachine(ex, runtime.cpu())
    for run in recorded["runs"]:
        args = [decode(arg) for arg in run["args"]]
        if "result" in run:
            assert encode(vm[run["func"]](*args)) == run["result"]
        else:
            with pytest.raises(InternalError, match=r"[Ff]unction 'main' expects 1 arguments"):
                vm[run["func"]](*args)


def test_the_kinds_of_operands_reach_a_host_function():
    builder = ExecBuilder()
    left = relax.vm_build._vmcodegen(builder, from_source(KINDS), "compiled")
    ex = with_golden(relax.vm_build._vmlink(builder, "numpy", relax.vm_build._filter_tir(left)))
    vm = relax.VirtualMachine(ex, runtime.cpu())
    assert vm["f"](np.array(True), None) == ("none", "tensor", "str", "dtype", "shape", "int")
    assert vm["f"](np.array(False), 7) == 7
