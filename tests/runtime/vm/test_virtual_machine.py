"""The machine's Python API: creation, lookup, stateful calls, closures, instruments."""

import warnings
import weakref

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime import (
    ShapeTuple,
    Tensor,
    VirtualMachine,
    cpu,
    cuda,
    get_global_func,
    register_global_func,
    tensor,
)
from relaxlab.runtime.storage import NaiveAllocator, PooledAllocator
from relaxlab.runtime.vm import Closure, VMExecutable
from relaxlab.runtime.vm.bytecode import VMFuncInfo
from tests.golden_values import machine


def executable(write) -> VMExecutable:
    ib = ExecBuilder()
    write(ib)
    return ib.get()


def pair(ib):
    with ib.function("pair", num_inputs=2, param_names=["alpha", "beta"]):
        ib.emit_call("vm.builtin.make_tuple", args=[ib.r(0), ib.r(1)], dst=2)
        ib.emit_ret(ib.r(2))


# ---- creation --------------------------------------------------------------------------------


def test_making_and_running_a_machine_changes_no_byte_of_the_executable():
    def write(ib):
        with ib.function("f", num_inputs=0):
            ib.emit_call("vm.builtin.copy", args=[tensor([1.0, 2.0])], dst=0)
            ib.emit_ret(ib.r(0))

    ex = executable(write)
    before = ex.save_to_bytes()
    vm = VirtualMachine(ex, cpu())
    assert vm["f"]() is vm["f"]()
    assert ex.save_to_bytes() == before
    assert ex.memory_scopes == {}
    # a constant on the CPU is one object for all machines
    assert VirtualMachine(ex, cpu())["f"]() is vm["f"]()


@pytest.mark.parametrize("bad", [None, "m.so", 5])
def test_only_an_executable_makes_a_machine(bad):
    with pytest.raises(ValueError, match="expected a VMExecutable, got"):
        VirtualMachine(bad, cpu())


def test_devices():
    ex = executable(pair)
    given = [cpu(0), cpu(1)]
    vm = VirtualMachine(ex, given)
    assert vm.devices == given
    assert vm.devices is not given
    assert vm.host_device == cpu(1)
    assert VirtualMachine(ex, (cpu(),)).devices == [cpu()]
    with pytest.raises(TypeError, match="expected a Device"):
        VirtualMachine(ex, ["cpu"])
    with pytest.raises(InternalError, match="cuda:999"):
        VirtualMachine(ex, cuda(999))


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (None, PooledAllocator),
        ("pooled", PooledAllocator),
        ("naive", NaiveAllocator),
        ({cpu(): "naive"}, NaiveAllocator),
        ({cpu(): VirtualMachine.NAIVE_ALLOCATOR}, NaiveAllocator),
        ({cpu(): VirtualMachine.POOLED_ALLOCATOR}, PooledAllocator),
        ({cpu(1): "naive"}, PooledAllocator),
    ],
)
def test_memory_configuration(config, kind):
    assert type(VirtualMachine(executable(pair), cpu(), config).allocators[0]) is kind


def test_bad_memory_configurations():
    with pytest.raises(AssertionError, match="expected 'naive' or 'pooled', got 'fast'"):
        VirtualMachine(executable(pair), cpu(), "fast")
    with pytest.raises(TypeError, match="memory_cfg: expected a string or a dict, got int 3"):
        VirtualMachine(executable(pair), cpu(), 3)
    with pytest.raises(AssertionError, match="got 7"):
        VirtualMachine(executable(pair), cpu(), {cpu(): 7})


def test_a_missing_packed_function_is_named_with_near_names():
    def write(ib):
        with ib.function("f", num_inputs=1):
            ib.emit_call("vm.builtin.cpy", args=[ib.r(0)], dst=1)
            ib.emit_ret(ib.r(1))

    message = (
        r"cannot find the packed function 'vm\.builtin\.cpy'.*did you mean 'vm\.builtin\.copy'"
    )
    with pytest.raises(InternalError, match=message):
        VirtualMachine(executable(write), cpu())


class Library:
    kind = "test"

    def __init__(self, imports=(), **functions):
        self.imports = list(imports)
        self.functions = functions

    def get_function(self, name):
        return self.functions.get(name)


def test_imports_are_searched_in_order_with_their_own_and_before_global_functions():
    register_global_func("vm_test_f", lambda: "global", override=True)

    def write(ib):
        for name in ("vm_test_f", "nested"):
            with ib.function(f"call_{name}", num_inputs=0):
                ib.emit_call(name, args=[], dst=0)
                ib.emit_ret(ib.r(0))

    ex = executable(write)
    inner = Library(nested=lambda: np.zeros(2), vm_test_f=lambda: "inner")
    ex.import_module(Library([inner]))
    ex.import_module(Library(vm_test_f=lambda: "second"))
    vm = VirtualMachine(ex, cpu())
    assert vm["call_vm_test_f"]() == "inner"
    assert isinstance(vm["call_nested"](), Tensor)


def test_a_machine_keeps_the_functions_it_found():
    name = "vm_test_once"
    register_global_func(name, lambda: 1, override=True)

    def write(ib):
        with ib.function("f", num_inputs=0):
            ib.emit_call(name, args=[], dst=0)
            ib.emit_ret(ib.r(0))

    ex = executable(write)
    vm = VirtualMachine(ex, cpu())
    register_global_func(name, lambda: 2, override=True)
    assert vm["f"]() == 1
    assert VirtualMachine(ex, cpu())["f"]() == 2


def test_a_replaced_builtin_is_used_and_its_result_converted():
    original = get_global_func("vm.builtin.copy")
    register_global_func("vm.builtin.copy", lambda value: [value], override=True)
    try:
        vm = machine("eb_empty_shape_stats")
    finally:
        register_global_func("vm.builtin.copy", original, override=True)
    assert vm["f"]() == ((),)


@pytest.mark.parametrize("name", ["cg_vmtir", "build_compiled"])
def test_functions_compiled_elsewhere_are_refused_by_name(name):
    with pytest.raises(InternalError, match="__vmtir__"):
        machine(name)


def test_an_unknown_kind_of_function_is_refused():
    with pytest.raises(InternalError, match="'f' is of unknown kind 7"):
        VirtualMachine(VMExecutable([VMFuncInfo(7, "f")]), cpu())


def test_vm_load_executable_makes_a_machine_from_devices_by_number():
    module = executable(pair)["vm_load_executable"]()
    assert module.kind == "relax.VirtualMachine"
    assert module.machine.devices == []
    module["vm_initialization"](1, 0, 2)
    assert module["pair"](1, 2) == (1, 2)
    assert type(module.machine.allocators[0]) is PooledAllocator
    module["vm_initialization"](1, 1, 1)
    assert module.machine.devices == [cpu(0), cpu(1)]
    with pytest.raises(InternalError, match="multiple of 3"):
        module["vm_initialization"](1, 0)
    with pytest.raises(InternalError, match="allocator kind 9"):
        module["vm_initialization"](1, 0, 9)


# ---- lookup ----------------------------------------------------------------------------------


def test_unknown_and_packed_names():
    vm = machine("eb_if")
    with pytest.raises(AttributeError, match="no function 'g'; it has: f"):
        vm["g"]
    with pytest.raises(InternalError, match=r"'golden\.iadd' is a packed function"):
        vm["golden.iadd"]


def test_a_function_keeps_its_machine_alive_and_goes_with_it():
    vm = VirtualMachine(executable(pair), cpu())
    gone = weakref.ref(vm)
    function = vm["pair"]
    del vm
    assert function(1, 2) == (1, 2)
    assert repr(function).startswith("<function pair at ")
    del function
    assert gone() is None


def test_keyword_arguments_are_refused():
    with pytest.raises(TypeError, match="keyword"):
        VirtualMachine(executable(pair), cpu())["pair"](1, beta=2)


def test_reprs_show_no_address():
    vm = VirtualMachine(executable(pair), cpu())
    assert repr(vm) == "VirtualMachine(pair on cpu:0)"
    assert repr(vm.module) == "VMModule(VirtualMachine(pair on cpu:0))"
    assert repr(vm.program.functions["pair"]) == "Closure(pair)"


# ---- stateful use ----------------------------------------------------------------------------


def test_inputs_are_converted_as_by_tvm_and_outputs_come_as_python_tuples():
    vm = VirtualMachine(executable(pair), cpu())
    array = np.zeros(2, "int8")
    vm.set_input("pair", (array, np.float16(0.5)), beta=True)
    array[...] = 1
    vm.invoke_stateful("pair")
    (first, half), flag = vm.get_outputs("pair")
    assert type(vm.get_outputs("pair")) is tuple
    assert first.numpy().tolist() == [0, 0]
    assert (half.dtype, flag.dtype, flag.numpy().tolist()) == ("float16", "int32", 1)


def test_unknown_keywords_are_warned_about():
    vm = VirtualMachine(executable(pair), cpu())
    with pytest.warns(UserWarning, match=r"no parameters \['gamma'\]; they are ignored"):
        vm.set_input("pair", 1, beta=2, gamma=3)
    with warnings.catch_warnings(), pytest.raises(AssertionError, match="expects 2 arguments"):
        vm.set_input("pair", beta=2)


@pytest.mark.parametrize("bad", [None, {}, b"", len])
def test_inputs_that_cannot_be_stored_are_refused_and_change_nothing(bad):
    vm = VirtualMachine(executable(pair), cpu())
    vm.set_input("pair", 1, 2)
    with pytest.raises(TypeError, match="as stored argument, got"):
        vm.set_input("pair", 1, bad)
    vm.invoke_stateful("pair")
    assert [x.numpy().item() for x in vm.get_outputs("pair")] == [1, 2]


def test_a_saved_function_hides_another_but_never_a_module_function():
    vm = VirtualMachine(executable(pair), cpu())
    vm.save_function("pair", "later", "b")
    assert vm["later"]("a") == ("a", "b")
    vm.save_function("later", "all", "c")
    assert vm["all"]() == ("c", "b")
    vm.save_function("pair", "silent", include_return=False)
    assert vm["silent"](1, 2) is None
    with pytest.raises(ValueError, match="'set_input' is the name of a module function"):
        vm.save_function("pair", "set_input", 1)
    with pytest.raises(InternalError, match="got 2 arguments"):
        vm.module["save_function"]("pair", "x")


def test_a_param_module_fills_an_input():
    get_global_func("vm.builtin.tensor_cache.update")("vm_test_w_0", tensor([4]))
    params = get_global_func("vm.builtin.param_module_from_cache")("vm_test_w", -1)
    get_global_func("vm.builtin.tensor_cache.remove")("vm_test_w_0")
    vm = VirtualMachine(executable(pair), cpu())
    vm.module["set_input_with_param_module"]("pair", 1, params)
    vm.invoke_stateful("pair")
    assert vm.module["get_output"]("pair", 0) == 1
    assert vm.module["get_output"]("pair", 1, 0).numpy().tolist() == [4]
    with pytest.raises(TypeError, match="expected a Module at the end"):
        vm.module["set_input_with_param_module"]("pair", 1, 2)


def test_time_evaluator():
    vm = VirtualMachine(executable(pair), cpu())
    result = vm.time_evaluator("pair", cpu(), number=3, repeat=4)(1, 2)
    assert len(result.results) == 4
    assert 0 < result.min <= result.median <= result.max
    assert result.min <= result.mean <= result.max
    assert result.std >= 0
    vm.set_input("pair", 1, 2)
    assert vm.time_evaluator("invoke_stateful", cpu())("pair").mean > 0
    with pytest.raises(AttributeError, match="no function 'zz'"):
        vm.time_evaluator("zz", cpu())


# ---- closures --------------------------------------------------------------------------------


def test_a_closure_runs_its_own_function_on_any_machine():
    def first(ib):
        with ib.function("make", num_inputs=1):
            ib.emit_call("vm.builtin.make_closure", args=[ib.f("mine"), ib.r(0)], dst=1)
            ib.emit_ret(ib.r(1))
        with ib.function("mine", num_inputs=2):
            ib.emit_call("vm.builtin.make_tuple", args=[ib.imm(1), ib.r(0), ib.r(1)], dst=2)
            ib.emit_ret(ib.r(2))

    def second(ib):
        with ib.function("other", num_inputs=2):
            ib.emit_ret(ib.r(0))
        with ib.function("invoke", num_inputs=2):
            args = [ib.vm_state(), ib.r(0), ib.r(1)]
            ib.emit_call("vm.builtin.invoke_closure", args=args, dst=2)
            ib.emit_ret(ib.r(2))

    def declared_first(ib):
        ib.declare_function("mine", 1)
        first(ib)

    one = VirtualMachine(executable(declared_first), cpu())
    two = VirtualMachine(executable(second), cpu())
    closure = one["make"](7)
    assert isinstance(closure, Closure)
    assert not callable(closure)
    # TVM would run whatever the other machine has at the same table index
    assert two["invoke"](closure, 3) == (1, 3, 7)
    assert two.invoke_closure(closure, 3) == (1, 3, 7)
    events = []
    two.observer = events.append
    assert two["invoke"](closure, 3) == (1, 3, 7)


def test_invoke_closure_takes_host_functions_and_refuses_the_rest():
    vm = VirtualMachine(executable(pair), cpu())
    assert vm.invoke_closure(lambda x: np.zeros(x), 2).shape == (2,)
    assert vm.invoke_closure(vm["pair"], 1, 2) == (1, 2)
    with pytest.raises(TypeError, match="got int 3"):
        vm.invoke_closure(3)
    with pytest.raises(InternalError, match="expects a closure or Function, got None"):
        vm.invoke_closure(None)


# ---- instruments -----------------------------------------------------------------------------


def test_an_instrument_made_by_a_named_factory():
    log = []

    @register_global_func("vm_test.factory", override=True)
    def factory(label):
        return lambda func, name, before, ret, *args: log.append((label, name, before))

    vm = machine("eb_recursion")
    vm.set_instrument("vm_test.factory", "L")
    assert vm["fact"](1) == 1
    assert log[0] == ("L", "vm.builtin.read_if_cond", True)
    # the recursive call is told before and after what happens inside it
    assert log.index(("L", "fact", True)) < log.index(("L", "vm.builtin.copy", True))
    assert log[-3:] == [
        ("L", "fact", False),
        ("L", "golden.imul", True),
        ("L", "golden.imul", False),
    ]
    with pytest.raises(InternalError, match=r"no global function 'vm_test\.nothing'"):
        vm.set_instrument("vm_test.nothing")
    with pytest.raises(TypeError, match="expected a function, got int 3"):
        vm.set_instrument(3)


def test_an_instrument_may_skip_a_relax_function_and_an_invoked_closure():
    def skip(func, name, before, ret, *args):
        return 1 if name in {"inner", "vm.builtin.invoke_closure"} else 0

    def write(ib):
        ib.declare_function("inner", 1)
        with ib.function("outer", num_inputs=1):
            ib.emit_call("inner", args=[ib.r(0)], dst=1)
            args = [ib.vm_state(), ib.f("inner"), ib.r(0)]
            ib.emit_call("vm.builtin.invoke_closure", args=args, dst=2)
            ib.emit_call("vm.builtin.make_tuple", args=[ib.r(1), ib.r(2)], dst=3)
            ib.emit_ret(ib.r(3))
        with ib.function("inner", num_inputs=1):
            ib.emit_ret(ib.r(0))

    vm = VirtualMachine(executable(write), cpu())
    events = []
    vm.observer = events.append
    vm.set_instrument(skip)
    assert vm["outer"](5) == (None, None)
    assert [e.skipped for e in events if hasattr(e, "skipped")] == [True, True, False]
    vm.set_instrument(None)
    assert vm["outer"](5) == (5, 5)


def test_an_instruments_error_comes_through_and_the_machine_stays_usable():
    vm = machine("eb_recursion")

    def instrument(func, name, before, ret, *args):
        if name == "vm.builtin.copy":
            raise KeyError("enough")

    vm.set_instrument(instrument)
    with pytest.raises(KeyError, match="enough"):
        vm["fact"](3)
    vm.set_instrument(None)
    assert vm["fact"](3) == 6


def test_shapes_are_kept_in_direct_calls():
    vm = VirtualMachine(executable(pair), cpu())
    assert type(vm["pair"](ShapeTuple((1,)), 2)[0]) is ShapeTuple
