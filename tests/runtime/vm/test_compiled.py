"""Compiled mode: the source it makes, deep recursion, errors, and what it leaves behind."""

import ast
import gc
import sys
import weakref

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.relax.exec_builder import ExecBuilder, VMFuncKind
from relaxlab.runtime import DataType, ShapeTuple, VirtualMachine, cpu, register_global_func, tensor
from relaxlab.runtime.storage import PooledAllocator
from relaxlab.runtime.vm import VMExecutable
from relaxlab.runtime.vm.bytecode import VMFuncInfo
from tests.golden_values import with_golden

BAD_NAME = 'x")\nraise SystemExit(1)\n#\u2028\r\x0c"""'


def executable(write, names=("main",), params=1):
    """Return an executable of functions that ``write(name, ib)`` fills."""
    ib = ExecBuilder()
    for name in names:
        ib.declare_function(name, VMFuncKind.VM_FUNC)
    for name in names:
        with ib.function(name, params, [f"p{i}" for i in range(params)]):
            write(name, ib)
    return with_golden(ib.get())


def compiled(*args, **options):
    return VirtualMachine(executable(*args, **options), cpu(), exec_mode="compiled")


def countdown(_, ib):
    """``main(n)``: add up 1..n in a loop."""
    ib.emit_call("vm.builtin.copy", [ib.imm(0)], 1)
    ib.emit_if(ib.r(0), 4)
    ib.emit_call("golden.iadd", [ib.r(1), ib.r(0)], 1)
    ib.emit_call("golden.iadd", [ib.r(0), ib.imm(-1)], 0)
    ib.emit_goto(-3)
    ib.emit_ret(ib.r(1))


def depth(_, ib):
    """``main(n)``: 0 if n is 0, else 1 + main(n - 1), on the stack of the machine."""
    ib.emit_if(ib.r(0), 5)
    ib.emit_call("golden.iadd", [ib.r(0), ib.imm(-1)], 1)
    ib.emit_call("main", [ib.r(1)], 2)
    ib.emit_call("golden.iadd", [ib.r(2), ib.imm(1)], 3)
    ib.emit_ret(ib.r(3))
    ib.emit_ret(ib.r(0))


# ---- source -------------------------------------------------------------------------------------


def test_a_loop_is_a_loop():
    vm = compiled(countdown)
    assert vm["main"](4) == 10
    lines = vm.compiled_source("main").splitlines()
    assert lines[0] == "# main: 6 instructions"
    assert lines[1] == "#   r0 is p0"
    assert [line for line in lines if not line.startswith("#")] == [
        "def f0_main(machine, room, r0):",
        "    r1 = 0",
        "    while True:",
        "        if type(r0) is not bool and not isinstance(r0, int):",
        "            raise bad_condition(r0, 0)",
        "        if not r0:",
        "            break",
        "        r1 = k0_golden_iadd(r1, r0)",
        "        if type(r1) not in PLAIN_TYPES:",
        "            r1 = as_value(r1)",
        "        r0 = k0_golden_iadd(r0, (-1))",
        "        if type(r0) not in PLAIN_TYPES:",
        "            r0 = as_value(r0)",
        "    return r1",
    ]


def test_a_branch_is_a_branch():
    def write(_, ib):
        ib.emit_call("vm.builtin.read_if_cond", [ib.r(0)], 1)
        ib.emit_if(ib.r(1), 3)
        ib.emit_call("vm.builtin.copy", [ib.imm(1)], 2)
        ib.emit_goto(2)
        ib.emit_call("vm.builtin.copy", [ib.imm(2)], 2)
        ib.emit_ret(ib.r(2))

    vm = compiled(write)
    assert [vm["main"](value) for value in (True, 0, tensor(np.array(1)))] == [1, 2, 1]
    source = vm.compiled_source("main")
    assert source.endswith("    if r1:\n        r2 = 1\n    else:\n        r2 = 2\n    return r2")
    assert "bad_condition" not in source  # read_if_cond gives a bool


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_source_is_shown_in_either_mode(mode):
    vm = VirtualMachine(executable(countdown), cpu(), exec_mode=mode)
    assert "while True" in vm.compiled_source("main")
    assert (vm.program.functions["main"].function.compiled is None) == (mode == "bytecode")
    with pytest.raises(ValueError, match="Unknown function 'other'"):
        vm.compiled_source("other")
    with pytest.raises(InternalError, match="packed function"):
        vm.compiled_source("golden.iadd")


def test_names_and_strings_of_a_program_are_no_code():
    register_global_func(BAD_NAME, lambda *args: len(args), override=True)

    def write(name, ib):
        if name == BAD_NAME + "2":
            ib.emit_ret(ib.r(0))
            return
        ib.emit_call("vm.builtin.copy", [ib.convert_constant(BAD_NAME)], 1)
        ib.emit_call(BAD_NAME, [ib.r(1), ib.convert_constant("'\\")], 2)
        ib.emit_call(BAD_NAME + "2", [ib.r(2)], 3)
        ib.emit_ret(ib.r(3))

    ib = ExecBuilder()
    names = ("main", BAD_NAME + "2")
    for name in names:
        ib.declare_function(name, VMFuncKind.VM_FUNC)
    for name in names:
        with ib.function(name, 1, [BAD_NAME]):
            write(name, ib)
    vm = VirtualMachine(ib.get(), cpu(), exec_mode="compiled")
    assert vm["main"](7) == 2
    for name in names:
        source = vm.compiled_source(name)
        tree = ast.parse(source)
        assert len(tree.body) == 1
        assert isinstance(tree.body[0], ast.FunctionDef)
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
        assert source.isascii()


def test_jumps_without_structure_are_dispatched():
    def write(_, ib):  # two loops that share their middle
        ib.emit_if(ib.r(0), 4)
        ib.emit_call("golden.iadd", [ib.r(0), ib.imm(-1)], 0)
        ib.emit_if(ib.r(0), 5)
        ib.emit_goto(-3)
        ib.emit_if(ib.r(0), 3)
        ib.emit_call("golden.iadd", [ib.r(0), ib.imm(-2)], 0)
        ib.emit_goto(-5)
        ib.emit_ret(ib.r(0))

    vm = compiled(write)
    assert "    while True:\n        if at < " in vm.compiled_source("main")
    plain = VirtualMachine(vm.executable, cpu())
    assert [vm["main"](n) for n in (0, 1, 7)] == [plain["main"](n) for n in (0, 1, 7)]


def test_branches_in_branches_of_any_depth():
    levels = 150

    def write(_, ib):
        for _ in range(levels):
            ib.emit_if(ib.r(0), 2 * levels)  # all over to the end
            ib.emit_call("golden.iadd", [ib.r(0), ib.imm(-1)], 0)
        for _ in range(2 * levels):
            ib.emit_call("vm.builtin.copy", [ib.r(0)], 0)
        ib.emit_ret(ib.r(0))

    vm = compiled(write)
    assert [vm["main"](n) for n in (0, 3, 400)] == [0, 0, 250]


def test_many_registers_and_a_long_loop():
    def write(name, ib):
        if name == "main":
            for register in range(1, 10_000):
                ib.emit_call("vm.builtin.copy", [ib.r(register - 1)], register)
            ib.emit_ret(ib.r(9_999))
        else:
            countdown(name, ib)

    vm = compiled(write, names=("main", "loop"))
    assert vm["main"]("x") == "x"
    assert vm["loop"](100_000) == 5_000_050_000


# ---- calls --------------------------------------------------------------------------------------


def test_which_mode_a_machine_runs_in():
    ex = executable(countdown)
    assert VirtualMachine(ex, cpu()).exec_mode == "bytecode"
    assert VirtualMachine(ex, cpu(), exec_mode="compiled").exec_mode == "compiled"
    with pytest.raises(ValueError, match="Unknown exec_mode 'fast'"):
        VirtualMachine(ex, cpu(), exec_mode="fast")


@pytest.mark.parametrize("n", [0, 1, 62, 63, 64, 65, 66, 500, 30_000])
def test_recursion_leaves_pythons_stack_alone(n):
    vm = compiled(depth)
    before = sys.getrecursionlimit()
    assert vm["main"](n) == n
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize("limit", [0, 1, 2, 8, 9, 10, 63, 64, 65, 66, 67, 72, 73, 74, 100])
def test_the_recursion_limit_is_that_of_bytecode(limit):
    messages = []
    for mode in ("bytecode", "compiled"):
        vm = VirtualMachine(executable(depth), cpu(), exec_mode=mode)
        vm.recursion_limit = limit
        assert vm["main"](max(0, limit - 1)) == max(0, limit - 1)
        for name in (vm["main"], VirtualMachine.__getitem__(vm, "main")):
            with pytest.raises(RecursionError, match=r"vm\.recursion_limit") as caught:
                name(max(1, limit))
        messages.append((str(caught.value), caught.value.__notes__))
        assert vm["main"](0) == 0
    assert messages[0] == messages[1]
    assert len(messages[0][1]) == min(max(limit, 1), 9)


def test_an_error_far_down_says_where_it_passed():
    def write(_, ib):
        ib.emit_if(ib.r(0), 5)
        ib.emit_call("golden.iadd", [ib.r(0), ib.imm(-1)], 1)
        ib.emit_call("main", [ib.r(1)], 2)
        ib.emit_ret(ib.r(2))
        ib.emit_ret(ib.r(2))
        ib.emit_call("vm.builtin.tuple_getitem", [ib.r(0), ib.imm(0)], 3)
        ib.emit_ret(ib.r(3))

    notes = {}
    for n in (0, 1, 5, 7, 8, 60, 64, 65, 66, 70, 72, 73, 100):
        for mode in ("bytecode", "compiled"):
            vm = VirtualMachine(executable(write), cpu(), exec_mode=mode)
            with pytest.raises(TypeError, match="expected Tuple") as caught:
                vm["main"](n)
            notes[mode] = caught.value.__notes__
        assert notes["bytecode"] == notes["compiled"], n
        assert len(notes["compiled"]) == min(n + 1, 8) + (n + 1 > 8)


def test_a_number_of_arguments_is_checked():
    vm = compiled(countdown)
    for args in ((), (1, 2), (1, 2, 3)):
        with pytest.raises(InternalError, match=rf"expects 1 arguments \(p0\), got {len(args)}"):
            vm["main"](*args)
    with pytest.raises(TypeError):
        vm["main"](r0=1)


@pytest.mark.parametrize("dtype", [True, False])
@pytest.mark.parametrize("sizes", [None, (2, 3), (2,), ()])
def test_the_door_checks_what_the_function_checks(sizes, dtype):
    """``main(x, y)`` checks x: a tensor of rank 2, perhaps of a dtype, perhaps of these sizes.

    Sizes of another rank can never be right.
    """

    def write(_, ib):
        context = ib.convert_constant("ctx ")
        args = [ib.r(0), ib.imm(2), *([DataType("float32")] if dtype else []), context]
        ib.emit_call("vm.builtin.check_tensor_info", args)
        if sizes is not None:
            pairs = [word for size in sizes for word in (ib.imm(0), ib.imm(size))]
            args = [ib.r(0), ib.void_arg(), ib.imm(len(sizes)), *pairs, context]
            ib.emit_call("vm.builtin.match_shape", args)
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0), ib.r(1)], 2)
        ib.emit_ret(ib.r(2))

    values = [
        *(
            tensor(np.zeros(shape, kind))
            for shape in ((2, 3), (2, 2), (2,), ())
            for kind in ("float32", "int8")
        ),
        np.zeros((2, 3), "float32"),
        ShapeTuple((2, 3)),
        [1],
        None,
        5,
    ]
    machines = [
        VirtualMachine(executable(write, params=2), cpu(), exec_mode=mode)
        for mode in ("bytecode", "compiled")
    ]
    passed = 0
    for value in values:
        for other in (1, [2], np.zeros(1)):
            found = []
            for vm in machines:
                try:
                    found.append(vm["main"](value, other)[1])
                    passed += 1
                except (TypeError, ValueError, RuntimeError) as error:
                    found.append((type(error), str(error), error.__notes__))
            assert repr(found[0]) == repr(found[1])
    arrays = {None: 3, (2, 3): 2}.get(sizes, 0) + (
        0 if dtype else {None: 2, (2, 3): 1}.get(sizes, 0)
    )
    assert passed == 6 * arrays


def test_a_long_function_is_written_once():
    def write(_, ib):
        for _ in range(300):
            ib.emit_call("vm.builtin.copy", [ib.r(0)], 0)
        ib.emit_ret(ib.r(0))

    vm = compiled(write)
    assert vm.door(vm.program.functions["main"].function) is None
    assert vm["main"]((1, [2])) == (1, (2,))
    with pytest.raises(InternalError, match="expects 1 arguments"):
        vm["main"]()


def test_closures_on_other_machines_and_after_theirs_is_gone():
    def write(name, ib):
        if name == "main":
            ib.emit_call("vm.builtin.make_closure", [ib.f("add"), ib.r(0)], 2)
            ib.emit_ret(ib.r(2))
        else:
            ib.emit_call("golden.iadd", [ib.r(0), ib.r(1)], 2)
            ib.emit_ret(ib.r(2))

    vm = compiled(write, names=("main", "add"), params=2)
    closure = vm["main"](40, 0)
    assert vm.invoke_closure(closure, 2) == 42
    other = compiled(countdown)
    assert other.invoke_closure(closure, 3) == 43
    del vm
    gc.collect()
    assert closure.function.compiled is None
    assert other.invoke_closure(closure, 4) == 44


def test_a_closure_of_another_machine_uses_the_memory_of_the_one_that_runs_it():
    def write(name, ib):
        if name == "call":
            ib.emit_call("vm.builtin.invoke_closure", [ib.vm_state(), ib.r(0)], 1)
            ib.emit_ret(ib.r(1))
        else:
            args = [ib.vm_state(), ShapeTuple((4,)), ib.imm(0), DataType("uint8")]
            ib.emit_call("vm.builtin.alloc_storage", [*args, ib.convert_constant("global")], 1)
            args = [ib.r(1), ib.imm(0), ShapeTuple((1,)), DataType("float32")]
            ib.emit_call("vm.builtin.alloc_tensor", args, 2)
            ib.emit_ret(ib.r(2))

    def machine(name):
        ib = ExecBuilder()
        with ib.function(name, int(name == "call")):
            write(name, ib)
        vm = VirtualMachine(ib.get(), cpu(), exec_mode="compiled")
        vm.allocators[0] = PooledAllocator(cpu())
        return vm

    caller, other = machine("call"), machine("make")
    closure = other.program.functions["make"]
    assert other["make"]().shape == (1,)  # it keeps a block now
    result = caller["call"](closure)
    assert result.shape == (1,)
    assert caller.allocators[0].free_blocks() == []
    assert other.allocators[0].free_blocks() == [4096]
    del result
    assert caller.allocators[0].free_blocks() == [4096]


def test_a_closure_that_was_not_known_when_it_was_compiled():
    def write(name, ib):
        if name == "call":
            ib.emit_call("vm.builtin.invoke_closure", [ib.vm_state(), ib.r(0), ib.r(1)], 2)
            ib.emit_ret(ib.r(2))
        elif name == "drop":
            ib.emit_call("vm.builtin.invoke_closure", [ib.vm_state(), ib.r(0), ib.r(1)])
            ib.emit_ret(ib.r(1))
        else:
            ib.emit_ret(ib.r(1))

    vm = compiled(write, names=("call", "drop", "second"), params=2)
    other = compiled(write, names=("call", "drop", "second"), params=2)
    for machine in (vm, other):
        closure = machine.program.functions["second"].bind((5,))
        assert vm["call"](closure, 1) == 5
        with pytest.raises(InternalError, match="'second' returned int 5, but the call has"):
            vm["drop"](closure, 1)
        assert vm["drop"](machine.program.functions["second"].bind((None,)), 1) == 1
        with pytest.raises(InternalError, match="'second' expects 2 arguments"):
            vm["call"](machine.program.functions["second"], 1)
    assert vm["call"](lambda value: [value], 3) == (3,)
    assert vm["drop"](lambda value: [value], 3) == 3


def test_saved_functions_run_compiled():
    vm = compiled(countdown)
    vm.save_function("main", "four", 4)
    with pytest.raises(TypeError, match="expected an int or a bool, got Tensor"):
        vm["four"]()  # numbers become tensors, as in TVM
    vm.module["save_function"]("main", "three", True, 3)
    vm.module["save_function"]("main", "none", False, 3)
    assert (vm["three"](), vm["none"]()) == (6, None)
    assert repr(vm["three"]).startswith("<function main at ")


def test_a_machine_in_compiled_mode_is_freed_at_once():
    vm = compiled(countdown)
    vm["main"](3)
    function = vm["main"]
    gone = weakref.ref(vm)
    del vm
    assert function(3) == 6  # a function keeps its machine
    del function
    assert gone() is None


def test_a_callback_that_raises_leaves_the_machine_usable():
    failing = [True]

    def callback(value):
        if failing[0]:
            raise KeyError("callback")
        return value + 1

    def write(_, ib):
        ib.emit_call("vm.builtin.invoke_closure", [ib.vm_state(), ib.r(0), ib.imm(1)], 1)
        ib.emit_ret(ib.r(1))

    vm = compiled(write)
    with pytest.raises(KeyError, match="callback") as caught:
        vm["main"](callback)
    assert caught.traceback[-1].name == "callback"
    assert caught.value.__notes__ == [
        "  in @main, instruction 0: call  vm.builtin.invoke_closure in: %vm, %0, i1  dst: %1"
    ]
    failing[0] = False
    assert vm["main"](callback) == 2


def test_unverified_programs_read_none_and_meet_traps():
    table = [VMFuncInfo(1, "main", 0, 2, 0, 2), VMFuncInfo(0, "vm.builtin.copy")]
    reads = VMExecutable(table, (), {}, [0, 5], [1, 0, 1, 1, 1, 2, 0])
    ends = VMExecutable(table, (), {}, [0, 5], [1, 0, 1, 1, 1, 1, 0, 1, 1, 1])
    assert VirtualMachine(reads, cpu(), exec_mode="compiled")["main"]() is None
    messages = []
    for mode in ("bytecode", "compiled"):
        with pytest.raises(InternalError, match="instruction 2 does not exist") as caught:
            VirtualMachine(ends, cpu(), exec_mode=mode)["main"]()
        messages.append((str(caught.value), caught.value.__notes__))
    assert messages[0] == messages[1]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shape_of", "shape_of expects a Tensor, got int 1"),
        ("tuple_getitem", "expected Tuple, got int 1"),
        ("alloc_tensor", r"expected vm\.Storage, got int 1"),
        ("check_tensor_info", "expected a Tensor, got int 1"),
        ("match_shape", "expected Shape, got int 1"),
    ],
)
def test_constants_where_others_are_expected(name, expected):
    def write(_, ib):
        context = ib.convert_constant("")
        rest = {
            "shape_of": [],
            "tuple_getitem": [ib.imm(0)],
            "alloc_tensor": [ib.imm(0), ShapeTuple((1,)), DataType("int8")],
            "check_tensor_info": [ib.imm(0), DataType("int8"), context],
            "match_shape": [ib.void_arg(), ib.imm(0), context],
        }[name]
        dst = 1 if name in ("shape_of", "tuple_getitem", "alloc_tensor") else None
        ib.emit_call(f"vm.builtin.{name}", [ib.imm(1), *rest], dst)
        ib.emit_ret(ib.r(0))

    with pytest.raises(TypeError, match=expected):
        compiled(write)["main"](0)


def test_an_item_of_a_tuple_just_made_is_just_taken():
    def write(_, ib):
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0), ib.imm(7)], 1)
        ib.emit_call("vm.builtin.copy", [ib.r(1)], 2)
        ib.emit_call("vm.builtin.tuple_getitem", [ib.r(2), ib.imm(1)], 3)
        ib.emit_call("vm.builtin.tuple_getitem", [ib.r(3), ib.imm(0)], 3)
        ib.emit_ret(ib.r(3))

    vm = compiled(write)
    lines = vm.compiled_source("main").splitlines()
    assert "    r3 = r2[1]" in lines
    assert sum("type(r3) is Array" in line for line in lines) == 1
    with pytest.raises(TypeError, match="expected Tuple, got int 7"):
        vm["main"](0)


@pytest.mark.parametrize("between", ["host", "closure", "branch", "other value", "index"])
def test_an_item_that_may_be_missing_is_looked_for(between):
    """A tuple is shared: whoever gets it, or has it already, may have changed it since."""

    def write(name, ib):
        if name == "shrink":
            ib.emit_call("test.shrink", [ib.r(0)], 1)
            ib.emit_ret(ib.r(0))
            return
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0), ib.imm(7)], 1)
        ib.emit_call("vm.builtin.make_tuple", [ib.r(1)], 2)  # shares the first
        if between == "host":
            ib.emit_call("test.shrink", [ib.r(2)], 3)
        elif between == "closure":
            ib.emit_call("shrink", [ib.r(2)], 3)
        elif between == "branch":
            ib.emit_if(ib.r(0), 2)
            ib.emit_call("vm.builtin.make_tuple", [ib.r(0)], 1)
        elif between == "other value":
            ib.emit_call("vm.builtin.copy", [ib.r(0)], 1)
        index = 2 if between == "index" else 1
        ib.emit_call("vm.builtin.tuple_getitem", [ib.r(1), ib.imm(index)], 3)
        ib.emit_ret(ib.r(3))

    def shrink(outer):
        del outer[0][1:]
        return 0

    register_global_func("test.shrink", shrink, override=True)
    expected = {"other value": (TypeError, "expected Tuple, got int 1")}.get(
        between, (IndexError, "out of bounds for a tuple of")
    )
    for mode in ("bytecode", "compiled"):
        vm = VirtualMachine(executable(write, ("main", "shrink")), cpu(), exec_mode=mode)
        with pytest.raises(expected[0], match=expected[1]) as caught:
            vm["main"](1)
        assert "main" in caught.value.__notes__[0]


def test_a_branch_in_which_nothing_happens():
    def write(_, ib):
        ib.emit_if(ib.r(0), 3)
        ib.emit_call("vm.builtin.copy", [ib.r(0)])
        ib.emit_goto(2)
        ib.emit_call("vm.builtin.null_value")
        ib.emit_ret(ib.r(0))

    vm = compiled(write)
    assert [vm["main"](n) for n in (0, 1)] == [0, 1]


def test_a_range_outside_of_the_program_is_empty():
    ex = VMExecutable([VMFuncInfo(1, "main", 9, 9, 0, 1)], (), {}, [0], [2, 0])
    for mode in ("bytecode", "compiled"):
        with pytest.raises(InternalError, match="it has no instructions"):
            VirtualMachine(ex, cpu(), exec_mode=mode)["main"]()


def test_shapes_of_any_rank_pass_the_door():
    def write(_, ib):
        context = ib.convert_constant("")
        args = [ib.r(0), ib.void_arg(), ib.imm(0), context]
        ib.emit_call("vm.builtin.match_shape", args)
        ib.emit_ret(ib.r(0))

    vm = compiled(write)
    assert vm["main"](ShapeTuple(())) == ()
    assert vm["main"](tensor(np.array(5.0))).numpy() == 5
    with pytest.raises(RuntimeError, match="expected a shape of size 0"):
        vm["main"](ShapeTuple((1,)))


# ---- sizes --------------------------------------------------------------------------------------


class Double:
    """A kernel that doubles every slot of a shape heap, and keeps none."""

    kind = "double"

    def __init__(self):
        self.imports = []

    def forgets_arguments(self, name):
        return True

    def get_function(self, name):
        return self.double if name == "double" else None

    def double(self, heap):
        heap.array[...] *= 2


@pytest.mark.parametrize("where", ["before", "then", "after", "loop"])
def test_sizes_are_read_again_after_a_kernel(where):
    def write(_, ib):
        def load(dst):
            args = [ib.r(1), ib.imm(1), ib.imm(1), ib.imm(0)]
            ib.emit_call("vm.builtin.make_shape", args, dst)

        ib.emit_call("vm.builtin.alloc_shape_heap", [ib.vm_state(), ib.imm(1)], 1)
        context = ib.convert_constant("")
        args = [ib.r(0), ib.r(1), ib.imm(1), ib.imm(1), ib.imm(0), context]
        ib.emit_call("vm.builtin.match_shape", args)
        load(2)
        if where == "before":
            ib.emit_call("double", [ib.r(1)])
        ib.emit_call("vm.builtin.copy", [ib.imm(1)], 5)
        at = ib.num_instructions
        ib.emit_if(ib.r(5), 2)
        if where == "loop":
            load(3)
        ib.emit_call("vm.builtin.copy", [ib.imm(0)], 5)
        if where in ("then", "loop"):
            ib.emit_call("double", [ib.r(1)])
        if where == "loop":
            ib.emit_goto(at - ib.num_instructions)
        ib.set_word(at, 2, ib.num_instructions - at)
        if where == "after":
            ib.emit_call("double", [ib.r(1)])
        load(4)
        ib.emit_call("vm.builtin.make_tuple", [ib.r(2), ib.r(4)], 6)
        ib.emit_ret(ib.r(6))

    ex = executable(write)
    ex.import_module(Double())
    vm = VirtualMachine(ex, cpu(), exec_mode="compiled")
    assert "ShapeHeap(1)" in vm.compiled_source("main")
    assert vm["main"](ShapeTuple((5,))) == ((5,), (10,))
