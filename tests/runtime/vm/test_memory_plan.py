"""Memory that compiled functions keep: nobody can tell, except by the clock."""

import gc
import weakref

import numpy as np
import pytest

from relaxlab import relax
from relaxlab.codegen import build
from relaxlab.errors import InternalError
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime import DataType, ShapeTuple, VirtualMachine, cpu, tensor
from relaxlab.runtime.storage import PooledAllocator
from relaxlab.runtime.vm.memory_plan import memory_plan
from relaxlab.script import from_source

FLOAT = DataType("float32")


class Kernels:
    """Kernels that forget their arguments, and say so; and one that does not."""

    kind = "test kernels"

    def __init__(self):
        self.imports = []
        self.kept = []

    def forgets_arguments(self, name):
        return name != "keep"

    def get_function(self, name):
        return {"plus": self.plus, "fill": self.fill, "keep": self.keep, "fail": self.fail}.get(
            name
        )

    def plus(self, a, b, out):
        np.add(a.array, b.array, out=out.array)

    def fill(self, out, value):
        out.array[...] = value

    def keep(self, value):
        self.kept.append(value)

    def fail(self, value):
        if value.array.flat[0] > 5:
            raise ValueError("above five")


class Storages:
    """Writes allocations."""

    def __init__(self, ib):
        self.ib = ib

    def storage(self, dst, nbytes=16):
        ib = self.ib
        args = [ib.vm_state(), ShapeTuple((nbytes,)), ib.imm(0), DataType("uint8")]
        ib.emit_call("vm.builtin.alloc_storage", [*args, ib.convert_constant("global")], dst)

    def tensor(self, storage, dst, offset=0, shape=(4,)):
        ib = self.ib
        args = [ib.r(storage), ib.imm(offset), ShapeTuple(shape), FLOAT]
        ib.emit_call("vm.builtin.alloc_tensor", args, dst)

    def kill(self, *registers):
        for register in registers:
            self.ib.emit_call("vm.builtin.null_value", [], register)


def machine_of(write, params=1, **options):
    """Return a compiled machine whose pool belongs to it alone, its kernels, and its plan."""
    ib = ExecBuilder()
    with ib.function("main", params):
        write(ib, Storages(ib))
    executable, kernels = ib.get(), Kernels()
    executable.import_module(kernels)
    vm = VirtualMachine(executable, cpu(), exec_mode="compiled", **options)
    if not options:
        vm.allocators[0] = PooledAllocator(cpu())
    function = vm.program.functions["main"].function
    return vm, kernels, memory_plan(function, vm.program.kernels)


def twice_plus_one(ib, to):
    """``main(x) = (x + x) + (x + x)``, with one private tensor and one that is returned."""
    to.storage(1)
    to.tensor(1, 2)
    ib.emit_call("plus", [ib.r(0), ib.r(0), ib.r(2)])
    to.storage(3)
    to.tensor(3, 4)
    to.kill(3)
    ib.emit_call("plus", [ib.r(2), ib.r(2), ib.r(4)])
    to.kill(1, 2)
    ib.emit_ret(ib.r(4))


def ones(value=1.0):
    return tensor(np.full(4, value, "float32"))


def test_a_plan_has_private_tensors_and_outputs():
    vm, _, plan = machine_of(twice_plus_one)
    assert plan.blocks == ((0, 16), (0, 16))
    assert len(plan.views) == 2
    assert plan.outputs == {1}
    assert "alloc_" not in vm.compiled_source("main")
    assert vm["main"](ones()).numpy().tolist() == [4] * 4


def test_results_that_somebody_holds_keep_their_values():
    main = machine_of(twice_plus_one)[0]["main"]
    held = [main(ones(value)) for value in range(9)]
    assert [result.numpy()[0] for result in held] == [4.0 * value for value in range(9)]
    addresses = {result.data_ptr() for result in held}
    assert len(addresses) == 9


@pytest.mark.parametrize(
    "view",
    [
        lambda result: result.array,
        lambda result: result.array[1:],
        lambda result: np.from_dlpack(result),
        lambda result: memoryview(result.array),
        lambda result: result.view((2, 2)),
        lambda result: np.asarray(result)[::2].T,
    ],
)
def test_views_of_a_result_keep_its_memory(view):
    main = machine_of(twice_plus_one)[0]["main"]
    kept = view(main(ones(3)))
    for value in range(6):
        main(ones(value))
    assert set(np.array(kept, copy=True).reshape(-1).tolist()) == {12.0}


def test_dropped_results_are_used_again():
    main = machine_of(twice_plus_one)[0]["main"]
    result, addresses = None, []
    for value in range(40):
        result = main(ones(value))
        addresses.append(result.data_ptr())
    assert len(set(addresses)) <= 3


def test_what_a_caller_does_to_a_result_is_not_seen_by_the_next():
    main = machine_of(twice_plus_one)[0]["main"]
    result = main(ones())
    result.array.flags.writeable = False
    result.shape, result.dtype, result.byte_offset = ShapeTuple((9,)), DataType("int8"), 8
    del result
    again = main(ones(2))
    assert again.shape == (4,)
    assert again.dtype == "float32"
    assert again.byte_offset == 0
    assert again.array.flags.writeable
    assert again.numpy().tolist() == [8] * 4


def test_a_result_that_nobody_holds_is_gone():
    main = machine_of(twice_plus_one)[0]["main"]
    result = main(ones())
    gone = weakref.ref(result)
    del result
    assert gone() is None
    main(ones())
    assert gone() is None


def test_kept_blocks_are_free_to_the_allocator():
    vm = machine_of(twice_plus_one)[0]
    main, pool = vm["main"], vm.allocators[0]
    main(ones())
    assert pool.free_blocks() == [4096, 4096]
    result = main(ones())
    assert pool.free_blocks() == [4096]
    del result
    assert pool.free_blocks() == [4096, 4096]
    main(ones())
    held = [pool.storage(10), pool.storage(10)]  # no third block is made
    assert pool.free_blocks() == []
    del held
    main(ones())
    pool.clear()
    assert pool.free_blocks() == []
    assert main(ones()).numpy().tolist() == [4] * 4


def test_blocks_are_taken_back_again_and_again():
    vm = machine_of(twice_plus_one)[0]
    main, pool = vm["main"], vm.allocators[0]
    held = [main(ones()) for _ in range(5)]  # later ones need blocks while the memory is in use
    assert pool.free_blocks() == [4096]
    held.append(main(ones()))
    del held
    assert len(pool.free_blocks()) == 7
    main(ones())
    assert len(pool.free_blocks()) == 7
    assert len(pool._lent[4096]) == 1


def test_the_pool_of_both_modes_ends_up_with_as_many_blocks():
    def blocks(mode):
        text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        a = R.add(x, x)
        b = R.multiply(a, x)
        c = R.subtract(b, a)
        d = R.add(c, b)
        e = R.add(d, d)
        return R.exp(e)
"""
        vm = VirtualMachine(relax.build(from_source(text), "numpy", exec_mode=mode), cpu())
        vm.allocators[0] = PooledAllocator(cpu())
        main, x = vm["main"], tensor(np.ones((4, 4), "float32"))
        for _ in range(3):
            result = main(x)
        assert result.numpy()[0, 0] == np.exp(np.float32(4))
        del result
        return len(vm.allocators[0].free_blocks())

    assert blocks("compiled") <= blocks("bytecode") + 1


def test_a_machine_that_is_gone_keeps_nothing():
    vm = machine_of(twice_plus_one)[0]
    pool = vm.allocators[0]
    vm["main"](ones())
    gone = weakref.ref(vm)
    del vm
    assert gone() is None  # no cycle holds it
    gc.collect()
    assert pool.free_blocks() == [4096, 4096]


def test_other_allocators_are_not_planned():
    vm = machine_of(twice_plus_one, memory_cfg="naive")[0]
    assert vm["main"](ones()).numpy().tolist() == [4] * 4
    assert vm["main"](ones(2)).numpy().tolist() == [8] * 4
    bare = VirtualMachine(vm.executable, (), exec_mode="compiled")
    with pytest.raises(InternalError) as caught:
        bare["main"](ones())
    assert "device index 0 is out of range" in str(caught.value)
    assert "in @main, instruction 0" in caught.value.__notes__[0]


def test_a_private_block_is_used_again_when_the_pool_would():
    def write(ib, to):
        ib.emit_call("vm.builtin.copy", [ib.r(0)], 1)
        for _ in range(5):
            to.storage(2)
            to.tensor(2, 3)
            to.kill(2)
            ib.emit_call("plus", [ib.r(0), ib.r(0), ib.r(3)])
            to.kill(3)
        to.storage(2, 5000)
        to.tensor(2, 3)
        ib.emit_call("plus", [ib.r(0), ib.r(0), ib.r(3)])
        ib.emit_ret(ib.r(1))

    vm, _, plan = machine_of(write)
    assert plan.blocks == ((0, 16), (0, 5000))
    assert vm["main"](ones()).numpy().tolist() == [1] * 4


def test_live_tensors_do_not_share_a_block():
    def write(ib, to):
        for number in (1, 3, 5):
            to.storage(number)
            to.tensor(number, number + 1)
            to.kill(number)
            ib.emit_call("fill", [ib.r(number + 1), ib.imm(number)])
        to.storage(7)
        to.tensor(7, 8)
        ib.emit_call("plus", [ib.r(2), ib.r(4), ib.r(8)])
        ib.emit_call("plus", [ib.r(8), ib.r(6), ib.r(8)])
        ib.emit_ret(ib.r(8))

    vm, _, plan = machine_of(write)
    assert len(plan.blocks) == 4
    assert vm["main"](ones()).numpy().tolist() == [9] * 4


def test_tensors_and_views_of_one_storage():
    def write(ib, to):
        to.storage(1, 64)
        to.tensor(1, 2)
        to.tensor(1, 3, offset=16)
        ib.emit_call("fill", [ib.r(2), ib.imm(1)])
        ib.emit_call("fill", [ib.r(3), ib.imm(2)])
        ib.emit_call("vm.builtin.reshape", [ib.r(3), ShapeTuple((2, 2))], 4)
        ib.emit_call("vm.builtin.reshape", [ib.r(4), ShapeTuple((4,))], 5)
        to.kill(1, 3, 4)
        to.storage(6)
        to.tensor(6, 7)
        ib.emit_call("plus", [ib.r(2), ib.r(5), ib.r(7)])
        ib.emit_ret(ib.r(7))

    vm, _, plan = machine_of(write)
    assert len(plan.blocks) == 2
    assert "reshape" not in vm.compiled_source("main")
    assert vm["main"](ones()).numpy().tolist() == [3] * 4
    assert vm["main"](ones()).numpy().tolist() == [3] * 4


@pytest.mark.parametrize("leak", ["keep", "tuple", "copy", "two", "storage"])
def test_what_somebody_else_may_hold_is_not_prepared(leak):
    def write(ib, to):
        to.storage(1, 64)
        to.tensor(1, 2)
        ib.emit_call("fill", [ib.r(2), ib.imm(1)])
        result = 2
        match leak:
            case "keep":  # a host function: nothing is planned
                ib.emit_call("keep", [ib.r(2)])
            case "tuple":
                ib.emit_call("vm.builtin.make_tuple", [ib.r(2)], 3)
                ib.emit_call("vm.builtin.tuple_getitem", [ib.r(3), ib.imm(0)], 4)
                result = 4
            case "copy":
                ib.emit_call("vm.builtin.copy", [ib.r(2)], 3)
                to.kill(2)
                result = 3
            case "two":  # one of two tensors of a storage is returned
                to.tensor(1, 3, offset=16)
                ib.emit_call("fill", [ib.r(3), ib.imm(1)])
            case "storage":
                ib.emit_call("vm.builtin.make_tuple", [ib.r(1)], 3)
        ib.emit_ret(ib.r(result))

    vm, kernels, plan = machine_of(write)
    results = [vm["main"](ones()) for _ in range(4)]
    assert len({result.data_ptr() for result in results}) == 4
    assert [result.numpy()[0] for result in results] == [1] * 4
    assert (plan is None) == (leak in ("keep", "two", "storage"))
    assert len(kernels.kept) == (4 if leak == "keep" else 0)


def test_a_storage_is_no_tensor():
    def write(ib, to):
        to.storage(1)
        to.tensor(1, 2)
        ib.emit_call("vm.builtin.shape_of", [ib.r(1)], 3)
        ib.emit_ret(ib.r(3))

    vm, _, plan = machine_of(write)
    assert plan is None
    with pytest.raises(TypeError, match="shape_of expects a Tensor, got Storage"):
        vm["main"](1)


def test_a_cleared_register_reads_as_none():
    def write(ib, to):
        to.storage(1)
        to.tensor(1, 2)
        ib.emit_call("fill", [ib.r(2), ib.imm(1)])
        to.kill(2)
        ib.emit_call("vm.builtin.make_tuple", [ib.r(2), ib.r(0)], 3)
        ib.emit_ret(ib.r(3))

    vm, _, plan = machine_of(write)
    assert plan is not None
    assert vm["main"](5) == (None, 5)


def test_an_error_gives_the_memory_back():
    def write(ib, to):
        to.storage(1)
        to.tensor(1, 2)
        ib.emit_call("plus", [ib.r(0), ib.r(0), ib.r(2)])
        ib.emit_call("fail", [ib.r(2)])
        to.kill(1, 2)
        ib.emit_ret(ib.r(0))

    vm, _, plan = machine_of(write)
    assert plan is not None
    for value in (1, 3, 1):
        if value == 3:
            with pytest.raises(ValueError, match="above five") as caught:
                vm["main"](ones(value))
            assert caught.value.__notes__ == [
                "  in @main, instruction 3: call  fail             in: %2           dst: %void"
            ]
            del caught
        else:
            assert vm["main"](ones(value)).numpy()[0] == value
    assert vm.allocators[0].free_blocks() == [4096]


@pytest.mark.parametrize("what", ["jump", "host function", "builtin", "closure", "entry"])
def test_other_functions_have_no_plan(what):
    def write(ib, to):
        if what == "jump":
            ib.emit_goto(1)
        to.storage(1)
        to.tensor(1, 2)
        if what == "host function":
            ib.emit_call("keep", [ib.imm(1)])
        if what == "builtin":  # which could look at the pool
            ib.emit_call("vm.builtin.memory_manager.clear")
        if what == "closure":
            ib.emit_call("vm.builtin.invoke_closure", [ib.vm_state(), ib.f("keep"), ib.imm(1)], 3)
        ib.emit_ret(ib.r(0))

    if what == "closure":
        ib = ExecBuilder()
        ib.declare_function("keep")
        with ib.function("main", 1):
            write(ib, Storages(ib))
        executable = ib.get()
        executable.import_module(Kernels())
        program = VirtualMachine(executable, cpu()).program
        plan = memory_plan(program.functions["main"].function, program.kernels)
    else:
        vm, _, plan = machine_of(write)
        if what == "entry":
            vm.program.functions["main"].function.entry = 1
            plan = memory_plan(vm.program.functions["main"].function, vm.program.kernels)
    assert plan is None


def test_kernels_of_a_build_say_what_they_keep():
    text = """
@I.ir_module
class Module:
    @T.prim_func
    def plain(a: T.Buffer((2,), "float32")):
        for i in range(2):
            a[i] = T.float32(1)

    @T.prim_func
    def calls(a: T.Buffer((2,), "float32")):
        T.evaluate(T.call_packed("demo.keep", a.data))
"""
    library = build(from_source(text), "interpreter")
    assert library.forgets_arguments("plain")
    assert not library.forgets_arguments("calls")
    assert not library.forgets_arguments("none")
