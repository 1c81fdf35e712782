"""TVM's known quirks (section 9 of its description), each reproduced or deliberately different.

The number of the quirk is in the test's name. What differs is in README.md's table.
"""

import subprocess
import sys

import numpy as np
import pytest

from relaxlab import relax
from relaxlab.errors import InternalError
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime import (
    DataType,
    ShapeTuple,
    VirtualMachine,
    cpu,
    get_global_func,
    tensor,
)
from relaxlab.runtime.storage import NaiveAllocator, PooledAllocator
from relaxlab.runtime.vm import VMExecutable
from relaxlab.script import from_source
from tests import golden_vm
from tests.golden_values import with_golden


def call(name, *args):
    return get_global_func(f"vm.builtin.{name}")(*args)


def program(inputs, *body):
    """Return a machine whose ``main`` is made by functions of the builder."""
    ib = ExecBuilder()
    with ib.function("main", num_inputs=inputs):
        for emit in body:
            emit(ib)
    return VirtualMachine(with_golden(ib.get()), cpu())


def test_9_1_a_machine_changes_no_byte_of_its_executable():
    data = golden_vm.executable_bytes("eb_const_kinds")
    ex = VMExecutable.load_from_bytes(data)
    VirtualMachine(ex, cpu())["f"]()
    assert ex.save_to_bytes() == data


def test_9_2_a_relax_function_may_be_called_for_no_value():
    ib = ExecBuilder()
    for name in ("main", "kept"):
        ib.declare_function(name, 1)
    with ib.function("main", num_inputs=1):
        ib.emit_call("kept", [ib.r(0)])
        ib.emit_ret(ib.r(0))
    with ib.function("kept", num_inputs=1):
        ib.emit_ret(ib.void_arg())
    assert VirtualMachine(ib.get(), cpu())["main"](3) == 3


def test_9_3_an_instrumented_program_sees_dtypes_as_strings():
    vm = program(
        0,
        lambda ib: ib.emit_call(
            "vm.builtin.make_tuple", [ib.convert_constant(DataType("int8"))], dst=0
        ),
        lambda ib: ib.emit_ret(ib.r(0)),
    )
    assert type(vm["main"]()[0]) is DataType
    vm.set_instrument(lambda *_: 0)
    assert vm["main"]() == ("int8",)
    assert type(vm["main"]()[0]) is str


def test_9_4_a_stored_shape_stays_a_shape():
    vm = program(1, lambda ib: ib.emit_ret(ib.r(0)))
    vm.set_input("main", ShapeTuple((4, 5)))
    vm.invoke_stateful("main")
    assert type(vm.get_outputs("main")) is ShapeTuple


def test_9_5_stats_prints_every_constant():
    ib = ExecBuilder()
    values = [1.5, None, True, (1, "a"), ShapeTuple(()), "text"]
    with ib.function("main"):
        args = [ib.convert_constant(value) for value in values]
        ib.emit_call("vm.builtin.make_tuple", args, dst=0)
        ib.emit_ret(ib.r(0))
    text = ib.get().stats()
    for word in ("1.5", "None", "True", "shapetupl", '"text"'):
        assert word in text


def test_9_6_the_host_is_device_minus_one_and_allocators_have_names():
    args = [ShapeTuple((8,)), -1, DataType("uint8"), "global"]
    vm = VirtualMachine(VMExecutable(), cpu(), {cpu(): "naive"})
    assert call("alloc_storage", vm, *args).nbytes == 8
    with pytest.raises(InternalError, match="device index -2 is out of range"):
        call("alloc_storage", vm, args[0], -2, *args[2:])


def test_9_7_a_tensor_may_use_what_the_pool_rounded_up():
    shape, dtype = ShapeTuple((4096,)), DataType("uint8")
    assert call("alloc_tensor", PooledAllocator(cpu()).storage(24), 0, shape, dtype).nbytes == 4096
    exact = NaiveAllocator(cpu()).storage(24)
    with pytest.raises(InternalError, match="region size of the storage is 24"):
        call("alloc_tensor", exact, 0, shape, dtype)


def test_9_8_reshape_may_shrink_and_copies_are_made_by_to_device_only():
    x = tensor(np.arange(6, dtype="int32"))
    small = call("reshape", x, ShapeTuple((2, 2)))
    small.array[0, 0] = 9
    assert x.numpy()[0] == 9
    assert call("copy", x) is x
    moved = call("to_device", x, 1, 0)
    moved.array[0] = 5
    assert x.numpy()[0] == 9


def test_9_9_a_condition_is_the_first_number_and_if_takes_no_tensor():
    assert call("read_if_cond", tensor([0, 1])) is False
    with pytest.raises(InternalError, match="bool scalar"):  # here we differ
        call("read_if_cond", tensor([False, True]))
    vm = program(1, lambda ib: ib.emit_if(ib.r(0), 2), lambda ib: ib.emit_ret(ib.r(0)))
    for condition in (np.array(1), 1.0, "x", None):
        with pytest.raises(TypeError, match="expected an int or a bool"):
            vm["main"](condition)


def test_9_10_negative_numbers_are_too_large():
    caches = [
        call("attention_kv_cache_create", np.zeros((1, 2), "float32"), ShapeTuple((4, 2)), -1)
    ]
    with pytest.raises(InternalError, match="cannot drop -1 of 1 rows"):
        call("attention_kv_cache_array_popn", caches, -1)
    ib = ExecBuilder()
    with ib.function("main"):
        ib.emit_goto(-5)
        ib.emit_ret(ib.void_arg())
    with pytest.raises(InternalError, match="the jump leads to -5"):
        VirtualMachine(ib.get(), cpu())["main"]()


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("check_tensor_info", (None, 1, "ctx")),
        ("check_shape_info", (None, 1, "ctx")),
        ("check_tuple_info", (None, 1, "ctx")),
        ("check_func_info", (None, "ctx")),
        ("check_prim_value_info", (None, DataType("int64"), "ctx")),
        ("read_if_cond", (None,)),
        ("shape_of", (None,)),
        ("make_shape", (None, 1, 1, 0)),
    ],
)
def test_9_11_none_is_refused_instead_of_read(name, args):
    with pytest.raises(TypeError, match="None"):
        call(name, *args)


@pytest.mark.parametrize("text", ["abc", "abcdefgh"])
def test_9_12_short_and_long_strings_are_no_functions(text):
    with pytest.raises(TypeError, match=f"ctx: expected a Function, got string '{text}'"):
        call("check_func_info", text, "ctx")


def test_9_13_bool_literals_are_integers_and_bool_constants_cannot_be_saved():
    mod = from_source(
        """
from relaxlab.script import ir as I, relax as R, tirx as T

@I.ir_module
class Module:
    @R.function
    def main(x: R.Any):
        R.func_attr({"global_symbol": "main", "relax.force_pure": True})
        y = R.call_packed("vm.builtin.copy", R.prim_value(T.bool(True)), ty_args=R.Any)
        return y
"""
    )
    builder = relax.ExecBuilder()
    relax.vm_build._vmcodegen(builder, mod, exec_mode="bytecode")
    assert "in: i1 " in builder.get().as_text()
    vm = program(
        0,
        lambda ib: ib.emit_call("vm.builtin.copy", [ib.convert_constant(True)], dst=0),
        lambda ib: ib.emit_ret(ib.r(0)),
    )
    assert vm["main"]() is True
    with pytest.raises(InternalError, match=r"constant 0.*bool"):
        vm.executable.save_to_bytes()


def test_9_14_control_may_run_on_where_nothing_was_verified():
    data = golden_vm.executable_bytes("eb_fallthrough")
    with pytest.raises(InternalError):
        VMExecutable.load_from_bytes(data)
    ex = VMExecutable.load_from_bytes(data, verify=False)
    run = golden_vm.case("eb_fallthrough")["runs"][0]
    args = [one["v"] for one in run["args"]]
    assert VirtualMachine(with_golden(ex), cpu())[run["func"]](*args) == run["result"]["v"]


def test_9_15_a_program_without_kernels_needs_no_compiler():
    code = """
import sys
from relaxlab import relax
from relaxlab.runtime import cpu
from relaxlab.script import from_source
mod = from_source('''
from relaxlab.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Any):
        return x
''')
print(relax.VirtualMachine(relax.build(mod, "numpy"), cpu())["main"](3))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "3", done.stderr


def test_9_16_a_symbolic_variable_is_a_string_in_an_annotation():
    mod = from_source(
        """
from relaxlab.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n + n",), "float32"):
        y = R.concat((x, x), axis=0)
        return y
"""
    )
    vm = VirtualMachine(relax.build(mod, "numpy"), cpu())
    assert vm["main"](np.ones(3, "float32")).shape == (6,)


def test_9_17_two_classes_of_one_name_are_two_programs(tmp_path):
    path = tmp_path / "two.py"
    path.write_text(
        """
from relaxlab.script import ir as I, relax as R

def first():
    @I.ir_module
    class M:
        @R.function
        def one(x: R.Any):
            return x
    return M

@I.ir_module
class M:
    @R.function
    def two(x: R.Any):
        return x

print(*([var.name_hint for var in module.functions] for module in (first(), M)))
"""
    )
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['one'] ['two']"
