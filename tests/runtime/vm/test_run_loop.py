"""Recursion, errors, and what the loop does with broken programs."""

import gc
import sys
import weakref

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime import (
    Array,
    ShapeTuple,
    Tensor,
    VirtualMachine,
    cpu,
    register_global_func,
    tensor,
)
from relaxlab.runtime.vm import VMExecutable
from relaxlab.runtime.vm.bytecode import VMFuncInfo
from tests.golden_values import machine, with_golden

DEPTH = 100_000


def build(write) -> VirtualMachine:
    ib = ExecBuilder()
    write(ib)
    return VirtualMachine(with_golden(ib.get()), cpu())


def countdown(ib):
    """``down(n)``: 0 if n == 0 else down(n - 1); ``down_closure`` the same through a closure."""
    ib.declare_function("down", 1)
    ib.declare_function("down_closure", 1)
    for name in ("down", "down_closure"):
        with ib.function(name, num_inputs=1):
            ib.emit_if(ib.r(0), 4)
            ib.emit_call("golden.iadd", args=[ib.r(0), ib.imm(-1)], dst=1)
            if name == "down":
                ib.emit_call("down", args=[ib.r(1)], dst=2)
            else:
                args = [ib.vm_state(), ib.f("down_closure"), ib.r(1)]
                ib.emit_call("vm.builtin.invoke_closure", args=args, dst=2)
            ib.emit_goto(2)
            ib.emit_call("vm.builtin.copy", args=[ib.r(0)], dst=2)
            ib.emit_ret(ib.r(2))


# ---- recursion -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["down", "down_closure"])
def test_recursion_100_000_deep(name):
    vm = build(countdown)
    assert vm[name](DEPTH) == 0
    assert sys.getrecursionlimit() < DEPTH


def test_recursion_100_000_deep_returns_nested_values():
    def write(ib):
        ib.declare_function("nest", 1)
        with ib.function("nest", num_inputs=1):
            ib.emit_if(ib.r(0), 5)
            ib.emit_call("golden.iadd", args=[ib.r(0), ib.imm(-1)], dst=1)
            ib.emit_call("nest", args=[ib.r(1)], dst=2)
            ib.emit_call("vm.builtin.make_tuple", args=[ib.r(0), ib.r(2)], dst=3)
            ib.emit_goto(2)
            ib.emit_call("vm.builtin.make_tuple", args=[], dst=3)
            ib.emit_ret(ib.r(3))

    value = build(write)["nest"](DEPTH)
    for n in range(DEPTH, 0, -1):
        head, value = value
        assert head == n
    assert value == ()


@pytest.mark.parametrize("name", ["down", "down_closure"])
def test_recursion_limit_is_named_and_can_be_set(name):
    vm = build(countdown)
    vm.recursion_limit = 1000
    with pytest.raises(RecursionError, match=r"'down\w*'.* 1000 frames.*recursion_limit"):
        vm[name](DEPTH)
    assert vm[name](999) == 0
    with pytest.raises(RecursionError):
        vm[name](1000)
    vm.recursion_limit = 1001
    assert vm[name](1000) == 0


def test_endless_recursion_ends_with_an_error_at_the_default_limit():
    def write(ib):
        ib.declare_function("f", 1)
        with ib.function("f", num_inputs=0):
            ib.emit_call("f", args=[], dst=0)
            ib.emit_ret(ib.r(0))

    vm = build(write)
    with pytest.raises(RecursionError, match=f"{vm.recursion_limit}"):
        vm["f"]()
    with pytest.raises(RecursionError, match=f"{vm.recursion_limit}"):
        vm["f"]()


def test_an_error_100_000_frames_deep_leaves_the_machine_usable():
    def write(ib):
        countdown(ib)
        ib.declare_function("fall", 1)
        with ib.function("fall", num_inputs=1):
            ib.emit_if(ib.r(0), 4)
            ib.emit_call("golden.iadd", args=[ib.r(0), ib.imm(-1)], dst=1)
            ib.emit_call("fall", args=[ib.r(1)], dst=2)
            ib.emit_goto(2)
            ib.emit_call("vm.builtin.tuple_getitem", args=[ib.r(0), ib.imm(0)], dst=2)
            ib.emit_ret(ib.r(2))

    vm = build(write)
    with pytest.raises(TypeError, match="tuple: expected Tuple, got int 0") as raised:
        vm["fall"](DEPTH)
    notes = raised.value.__notes__
    assert "in @fall, instruction" in notes[0]
    assert "vm.builtin.tuple_getitem" in notes[0]
    assert "call  fall" in notes[1]
    assert f"{DEPTH + 1 - 8} frames below" in notes[-1]
    assert len(notes) < 12
    assert vm["down"](5) == 0


# ---- errors ----------------------------------------------------------------------------------


def test_arity_is_checked_for_calls_from_host_and_from_bytecode():
    def write(ib):
        ib.declare_function("two", 1)
        with ib.function("one", num_inputs=1):
            ib.emit_call("two", args=[ib.r(0)], dst=1)
            ib.emit_ret(ib.r(1))
        with ib.function("two", num_inputs=2, param_names=["left", "right"]):
            ib.emit_ret(ib.r(0))

    vm = build(write)
    message = r"'two' expects 2 arguments \(left, right\), got "
    with pytest.raises(InternalError, match=message + "1"):
        vm["one"](1)
    with pytest.raises(InternalError, match=message + "3"):
        vm["two"](1, 2, 3)
    assert vm["two"](1, 2) == 1


def test_a_host_functions_own_exception_comes_through_as_itself():
    class OwnError(Exception):
        pass

    @register_global_func("run_loop.fail", override=True)
    def fail():
        raise OwnError("mine")

    def write(ib):
        with ib.function("f", num_inputs=0):
            ib.emit_call("run_loop.fail", args=[], dst=0)
            ib.emit_ret(ib.r(0))

    with pytest.raises(OwnError, match="mine") as raised:
        build(write)["f"]()
    assert raised.value.__notes__ == [
        "  in @f, instruction 0: call  run_loop.fail    in:              dst: %0"
    ]
    # the innermost Python frame is the callback
    assert raised.traceback[-1].name == "fail"


@pytest.mark.parametrize("result", [None, ()])
def test_a_void_call_of_a_relax_function_may_return_nothing(result):
    def write(ib):
        ib.declare_function("void", 1)
        with ib.function("main", num_inputs=1):
            ib.emit_call("void", args=[])
            ib.emit_ret(ib.r(0))
        with ib.function("void", num_inputs=0):
            if result is None:
                ib.emit_ret(ib.void_arg())
            else:
                ib.emit_call("vm.builtin.make_tuple", args=[], dst=0)
                ib.emit_ret(ib.r(0))

    assert build(write)["main"](5) == 5


def test_a_void_call_that_would_lose_a_value_says_so():
    vm = machine("eb_void_call_to_vm_func")
    with pytest.raises(InternalError, match=r"'inner' returned int 1, .* destination %void"):
        vm["outer"](1)
    assert vm["inner"](1) == 1


def test_a_host_function_may_call_back_from_a_void_call():
    seen = []

    @register_global_func("run_loop.back", override=True)
    def back(vm):
        seen.append(vm["inner"](4))

    def write(ib):
        with ib.function("outer", num_inputs=0):
            ib.emit_call("run_loop.back", args=[ib.vm_state()])
            ib.emit_ret(ib.void_arg())
        with ib.function("inner", num_inputs=1):
            ib.emit_ret(ib.r(0))

    assert build(write)["outer"]() is None
    assert seen == [4]


# ---- broken programs -------------------------------------------------------------------------


def raw(words, offsets, *, registers=1, constants=(), table=()):
    main = VMFuncInfo(1, "f", 0, len(offsets), 0, registers)
    ex = VMExecutable([main, *table], constants, {}, offsets, words)
    return VirtualMachine(with_golden(ex), cpu())["f"]


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ([1, 5, 1, 0], InternalError, "register 5 is out of range: the frame has 1"),
        ([1, -1, 1, 0], InternalError, "register -1 is out of range"),
        ([1, 0, 9, 0], InternalError, "function index 9 is out of range: the table has 2"),
        ([1, 0, -1, 0], InternalError, "function index -1"),
        ([1, 0, 1, 99], InternalError, "99 arguments"),
        ([1, 0, 1, 1, 7], InternalError, "register 7"),
        ([1, 0, 1, 1, 2**54 + 2], InternalError, "register 18014398509481986"),
        ([1, 0, 1, 1, (2 << 56) | 3], InternalError, "constant index 3 .* the pool has 0"),
        ([1, 0, 1, 1, (3 << 56) | 3], InternalError, "function index 3 .* the pool has 2"),
        ([1, 0, 1, 1, 9 << 56], ValueError, "unknown argument kind 9"),
        ([8, 0, 0], InternalError, "unknown opcode 8"),
        ([2, 3], InternalError, "register 3 is out of range"),
        ([3, 77], InternalError, "leads to 77, which does not exist"),
        ([3, -77], InternalError, "leads to -77, which does not exist"),
        ([1, 0, 1, 0], InternalError, "instruction 1 does not exist"),
    ],
)
def test_a_broken_instruction_is_named_when_it_runs(words, error, message):
    nop = VMFuncInfo(0, "golden.nop")
    function = raw(words, [0], table=[nop])
    with pytest.raises(error, match=message) as raised:
        function()
    assert "in @f, instruction" in str(raised.value)
    with pytest.raises(error) as again:
        function()
    assert again.value is not raised.value


def test_a_broken_path_that_is_not_taken_does_no_harm():
    # If %0 -> 1, else -> 2: ret %0; instruction 1 is broken
    words = [4, 0, 2, 8, 2, 0]
    ex = VMExecutable([VMFuncInfo(1, "f", 0, 3, 1, 1)], (), {}, [0, 3, 4], words)
    vm = VirtualMachine(ex, cpu())
    assert vm["f"](0) == 0
    with pytest.raises(InternalError, match="unknown opcode 8"):
        vm["f"](1)


def test_a_false_offset_of_one_is_refused_when_taken():
    words = [4, 0, 1, 2, 0]
    ex = VMExecutable([VMFuncInfo(1, "f", 0, 2, 1, 1)], (), {}, [0, 3], words)
    vm = VirtualMachine(ex, cpu())
    assert vm["f"](True) is True
    with pytest.raises(InternalError, match="false offset 1, expected > 1"):
        vm["f"](0)


def test_a_declared_function_without_code_is_named():
    ex = VMExecutable([VMFuncInfo(1, "f", 0, 0, 0, 0)])
    with pytest.raises(InternalError, match="@f, instruction 0: it has no instructions"):
        VirtualMachine(ex, cpu())["f"]()


def test_a_huge_register_file_is_refused_before_memory_is_asked_for():
    ex = VMExecutable([VMFuncInfo(1, "f", 0, 1, 0, 2**50)], (), {}, [0], [2, 0])
    with pytest.raises(InternalError, match="'f' wants 1125899906842624 registers"):
        VirtualMachine(ex, cpu())


# ---- values ----------------------------------------------------------------------------------


def test_numpy_arrays_are_wrapped_without_a_copy_on_the_way_in_and_out():
    @register_global_func("run_loop.numpy", override=True)
    def give(x):
        assert isinstance(x, Tensor)
        return np.full(2, 7, "int8"), [x.array]

    def write(ib):
        with ib.function("f", num_inputs=1):
            ib.emit_call("golden.fill", args=[ib.r(0), ib.imm(5)])
            ib.emit_call("run_loop.numpy", args=[ib.r(0)], dst=1)
            ib.emit_ret(ib.r(1))

    x = np.zeros(3, "float32")
    result = build(write)["f"](x)
    assert x.tolist() == [5, 5, 5]
    assert isinstance(result, Array)
    assert isinstance(result[0], Tensor)
    assert result[0].numpy().tolist() == [7, 7]
    assert np.shares_memory(result[1][0].array, x)


def test_a_tuple_is_shared_by_reference_as_in_tvm():
    vm = machine("eb_kill")
    given = Array([1, 2])
    assert vm["f"](tensor([1.0]), given) == (True, False, (None, 2))
    assert given == (None, 2)
    plain = (1, 2)
    vm["f"](tensor([1.0]), plain)
    assert plain == (1, 2)


def test_numpy_scalars_and_shapes_stay_what_they_are():
    f = machine("eb_minimal")["f"]
    assert type(f(np.int8(3))) is int
    assert type(f(np.float32(0.5))) is float
    assert type(f(np.bool_(True))) is bool
    assert type(f(ShapeTuple((1, 2)))) is ShapeTuple


def test_a_killed_register_frees_its_memory_at_once():
    alive = []

    @register_global_func("run_loop.make", override=True)
    def make():
        array = np.zeros(4)
        alive.append(weakref.ref(array))
        return array

    @register_global_func("run_loop.is_alive", override=True)
    def is_alive():
        return alive[-1]() is not None

    def write(ib):
        with ib.function("f", num_inputs=0):
            ib.emit_call("run_loop.make", args=[], dst=0)
            ib.emit_call("run_loop.is_alive", args=[], dst=1)
            ib.emit_call("vm.builtin.null_value", args=[], dst=0)
            ib.emit_call("run_loop.is_alive", args=[], dst=2)
            ib.emit_call("vm.builtin.make_tuple", args=[ib.r(1), ib.r(2)], dst=3)
            ib.emit_ret(ib.r(3))

    gc.disable()
    try:
        assert build(write)["f"]() == (True, False)
    finally:
        gc.enable()


# ---- stepping --------------------------------------------------------------------------------


def test_a_step_is_one_instruction_and_a_call_stops_in_the_callee():
    vm = machine("eb_recursion")
    with vm.start("fact", 1) as run:
        places = []
        while not run.finished:
            frame = run.frames[-1]
            places.append((len(run.frames), frame.instruction, run.step_count))
            run.step()
        assert run.result == 1
    assert places == [
        (1, 0, 0),
        (1, 1, 1),
        (1, 2, 2),
        (1, 3, 3),
        (2, 0, 4),
        (2, 1, 5),
        (2, 6, 6),
        (2, 7, 7),
        (1, 4, 8),
        (1, 5, 9),
        (1, 7, 10),
    ]


def test_an_execution_has_no_result_before_its_end():
    vm = machine("eb_minimal")
    run = vm.start("f", 3)
    assert repr(run) == "<execution of f: step 0, before instruction 0 of f>"
    with pytest.raises(ValueError, match="no result"):
        run.result  # noqa: B018  # a property that raises
    assert run.step() is False
    assert run.result == 3
    assert repr(run) == "<execution of f: finished>"
    assert run.step() is False


def test_an_error_while_stepping_ends_the_execution():
    vm = machine("eb_if")
    run = vm.start("f", 2.5, 1, 1)
    with pytest.raises(TypeError, match="If: register %0: expected an int or a bool"):
        run.step()
    assert run.finished
    assert repr(run) == "<execution of f: failed with TypeError>"
    assert vm["f"](1, 2, 3) == 5


def test_two_executions_can_be_stepped_in_turn():
    vm = machine("eb_loop")
    with vm.start("sum", 3) as first, vm.start("sum", 4) as second:
        while not (first.finished and second.finished):
            first.step()
            second.step()
            assert vm["sum"](2) == 3
        assert (first.result, second.result) == (6, 10)


def test_start_refuses_what_has_no_instructions():
    vm = machine("eb_loop")
    with pytest.raises(ValueError, match="'set_input' is a module function"):
        vm.start("set_input")
    with pytest.raises(InternalError, match="expects 1 arguments"):
        vm.start("sum")


def test_an_error_behind_the_code_is_located_at_the_jump_that_led_there():
    # @f: goto 50; @g: ret %void.  The trap lies behind f's code, where g begins.
    table = [VMFuncInfo(1, "f", 0, 1, 0, 1), VMFuncInfo(1, "g", 1, 2, 0, 1)]
    ex = VMExecutable(table, (), {}, [0, 2], [3, 50, 2, 2**54])
    vm = VirtualMachine(ex, cpu())
    events = []
    vm.observer = events.append
    with pytest.raises(InternalError, match="instruction 0: the jump leads to 50") as raised:
        vm["f"]()
    assert raised.value.__notes__ == ["  in @f, instruction 0: goto  50"]
    assert [e.pc for e in events if hasattr(e, "pc")] == [0, 0, 0, 0, 0]
    assert vm["g"]() is None


@pytest.mark.parametrize("enabled", [True, False])
def test_linking_leaves_the_garbage_collector_as_it_was(enabled):
    executable = VMExecutable([VMFuncInfo(1, "f", 0, 1, 1, 1)], (), {}, [0], [2, 0])
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        VirtualMachine(executable, cpu())
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
