"""Faults that a machine for compiled programs must not have, one test for each.

Some are faults of TVM, some of earlier versions; each was seen in a real program.
"""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.errors import InternalError
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime import Array, ShapeTuple, VirtualMachine, cpu
from relaxlab.runtime.vm import VMExecutable
from relaxlab.script import from_source
from relaxlab.trace import DebugSession
from tests import golden_vm
from tests.golden_values import with_golden

HEAD = """
from relaxlab.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main"""


def built(function):
    """Return a machine for a script: the text of ``main`` from its parameters on."""
    return VirtualMachine(relax.build(from_source(HEAD + function), "numpy"), cpu())


def every_way(vm, name, *args):
    """Return the result of a call, which all ways to run it must share."""
    plain = vm[name](*args)
    events = []
    vm.observer = events.append
    runs = [vm[name](*args)]
    vm.observer = None
    vm.set_instrument(lambda *_: 0)
    runs.append(vm[name](*args))
    vm.set_instrument(None)
    runs.append(vm.profile(name, *args).result)
    runs.append(VirtualMachine(vm.executable, cpu(), exec_mode="compiled")[name](*args))
    session = DebugSession(vm, name, *args)
    while not session.at_end:
        session.step()
    runs.append(session.result)
    for one in runs:
        assert_equal(one, plain)
    return plain


def assert_equal(one, two):
    if isinstance(one, Array):
        assert len(one) == len(two)
        for a, b in zip(one, two, strict=True):
            assert_equal(a, b)
    elif hasattr(one, "numpy"):
        np.testing.assert_array_equal(one.numpy(), two.numpy())
    else:
        assert one == two


X = np.array([1, 2], "float32")


@pytest.mark.parametrize("condition", [True, False])
def test_an_if_runs_on_both_paths(condition):
    vm = built(
        """(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        if c:
            a = R.exp(x)
            y = R.add(a, x)
        else:
            b = R.negative(x)
            y = R.multiply(b, x)
        z = R.add(y, y)
        return z
"""
    )
    want = 2 * (np.exp(X) + X if condition else -X * X)
    got = every_way(vm, "main", np.array(condition), X)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)


@pytest.mark.parametrize("shape", ['R.Tensor((2,), "bool")', 'R.Tensor(dtype="bool")'])
def test_an_if_on_two_bools_is_refused(shape):
    vm = built(
        f"""(c: {shape}, x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        if c:
            y = R.exp(x)
        else:
            y = R.negative(x)
        return y
"""
    )
    with pytest.raises(InternalError, match="expected a bool scalar as the condition of If"):
        vm["main"](np.array([True, False]), X)


@pytest.mark.parametrize("index", [2, -1, 2**40, -(2**40)])
def test_take_out_of_range_is_refused(index):
    vm = built(
        """(i: R.Tensor((), "int64"), x: R.Tensor((2,), "float32")) -> R.Tensor((), "float32"):
        y = R.take(x, i, axis=0)
        return y
"""
    )
    assert vm["main"](np.array(1), X).numpy() == 2
    with pytest.raises(IndexError, match=rf"index {index} .* outside \[0, 2\)"):
        vm["main"](np.array(index), X)


def test_the_recursion_limit_is_named():
    ib = ExecBuilder()
    ib.declare_function("down", 1)
    with ib.function("down", num_inputs=1):
        ib.emit_call("down", [ib.r(0)], dst=1)
        ib.emit_ret(ib.r(1))
    vm = VirtualMachine(ib.get(), cpu())
    vm.recursion_limit = 321
    for run in (vm["down"], lambda n: vm.profile("down", n)):
        with pytest.raises(RecursionError, match=r"'down'.* 321 frames.*vm.recursion_limit"):
            run(1)


def test_a_version_mismatch_says_what_was_found_and_expected():
    data = bytearray(golden_vm.executable_bytes("eb_minimal"))
    data[16:20] = b"9.99"
    with pytest.raises(InternalError) as raised:
        VMExecutable.load_from_bytes(bytes(data))
    assert "9.99" in str(raised.value)
    assert "0.14" in str(raised.value)


def test_a_void_destination_of_a_relax_function():
    ib = ExecBuilder()
    ib.declare_function("nothing", 1)
    with ib.function("main", num_inputs=1):
        ib.emit_call("nothing", [ib.r(0)])
        ib.emit_ret(ib.r(0))
    with ib.function("nothing", num_inputs=1):
        ib.emit_call("golden.fill", [ib.r(0), ib.imm(7)])
        ib.emit_call("vm.builtin.make_tuple", [], dst=1)
        ib.emit_ret(ib.r(1))
    vm = VirtualMachine(with_golden(ib.get()), cpu())
    x = runtime.tensor(np.zeros(2, "float32"))
    assert every_way(vm, "main", x).numpy().tolist() == [7, 7]


def test_a_shape_through_set_input_stays_a_shape():
    vm = built(
        """(s: R.Shape(["n", 4]), x: R.Tensor((2,), "float32")) -> R.Shape(["n", 4]):
        return s
"""
    )
    vm.set_input("main", ShapeTuple((3, 4)), X)
    vm.invoke_stateful("main")
    assert type(vm.get_outputs("main")) is ShapeTuple
    assert vm.get_outputs("main") == ShapeTuple((3, 4))
    vm.save_function("main", "saved", ShapeTuple((5, 4)), X)
    assert vm["saved"]() == ShapeTuple((5, 4))


@pytest.mark.parametrize(("condition", "want"), [(1, (10, 20)), (0, (20, 10))])
def test_a_join_that_swaps_registers(condition, want):
    """The branches leave (a, b) and (b, a) in the same two registers."""
    ib = ExecBuilder()
    with ib.function("main", num_inputs=3):
        ib.emit_if(ib.r(0), 4)
        ib.emit_call("vm.builtin.copy", [ib.r(1)], dst=3)
        ib.emit_call("vm.builtin.copy", [ib.r(2)], dst=4)
        ib.emit_goto(3)
        ib.emit_call("vm.builtin.copy", [ib.r(2)], dst=3)
        ib.emit_call("vm.builtin.copy", [ib.r(1)], dst=4)
        ib.emit_call("vm.builtin.make_tuple", [ib.r(3), ib.r(4)], dst=5)
        ib.emit_ret(ib.r(5))
    assert every_way(VirtualMachine(ib.get(), cpu()), "main", condition, 10, 20) == want


@pytest.mark.parametrize("turns", range(5))
def test_a_loop_that_swaps_its_own_registers(turns):
    ib = ExecBuilder()
    with ib.function("main", num_inputs=3):
        ib.emit_if(ib.r(0), 6)
        ib.emit_call("vm.builtin.copy", [ib.r(1)], dst=3)
        ib.emit_call("vm.builtin.copy", [ib.r(2)], dst=1)
        ib.emit_call("vm.builtin.copy", [ib.r(3)], dst=2)
        ib.emit_call("golden.iadd", [ib.r(0), ib.imm(-1)], dst=0)
        ib.emit_goto(-5)
        ib.emit_call("vm.builtin.make_tuple", [ib.r(1), ib.r(2)], dst=4)
        ib.emit_ret(ib.r(4))
    vm = VirtualMachine(with_golden(ib.get()), cpu())
    assert every_way(vm, "main", turns, 0, 1) == ((0, 1) if turns % 2 == 0 else (1, 0))


@pytest.mark.parametrize("condition", [True, False])
def test_branches_that_give_the_parts_of_a_tuple_in_another_order(condition):
    tensor = 'R.Tensor((2,), "float32")'
    vm = built(
        f"""(c: R.Tensor((), "bool"), x: {tensor}, y: {tensor}) -> R.Tuple({tensor}, {tensor}):
        if c:
            z = (x, y)
        else:
            z = (y, x)
        return z
"""
    )
    first, second = every_way(vm, "main", np.array(condition), X, -X)
    assert first.numpy().tolist() == ([1, 2] if condition else [-1, -2])
    assert second.numpy().tolist() == ([-1, -2] if condition else [1, 2])


# ---- sizes that must not matter --------------------------------------------------------------


def test_a_callback_that_raises_leaves_the_machine_usable_and_no_frame():
    ib = ExecBuilder()
    for name in ("main", "inner"):
        ib.declare_function(name, 1)
    with ib.function("main", num_inputs=2):
        ib.emit_call("inner", [ib.r(0), ib.r(1)], dst=2)
        ib.emit_ret(ib.r(2))
    with ib.function("inner", num_inputs=2):
        args = [ib.vm_state(), ib.r(0), ib.r(1)]
        ib.emit_call("vm.builtin.invoke_closure", args, dst=2)
        ib.emit_ret(ib.r(2))
    vm = VirtualMachine(ib.get(), cpu())

    class OfTheHostError(Exception):
        pass

    def callback(value):
        if value < 0:
            raise OfTheHostError("no negative values")
        return vm["main"](callback, value - 1) if value else 0

    for _ in range(2):
        assert vm["main"](callback, 3) == 0
        with pytest.raises(OfTheHostError, match="no negative values"):
            vm["main"](callback, -1)
        run = vm.start("main", callback, -1)
        with pytest.raises(OfTheHostError):
            run.run()
        assert run.frames == []
        assert vm.current is None


def test_tuples_nested_100_000_deep():
    ib = ExecBuilder()
    with ib.function("main", num_inputs=2):
        ib.emit_if(ib.r(0), 4)
        ib.emit_call("vm.builtin.make_tuple", [ib.r(1)], dst=1)
        ib.emit_call("golden.iadd", [ib.r(0), ib.imm(-1)], dst=0)
        ib.emit_goto(-3)
        ib.emit_ret(ib.r(1))
    vm = VirtualMachine(with_golden(ib.get()), cpu())
    for run in (vm["main"], lambda *args: vm.profile("main", *args).result):
        value = run(100_000, 7)
        for _ in range(100_000):
            (value,) = value
        assert value == 7
    events = []
    vm.observer = events.append
    vm["main"](200, 7)
    assert len(events) > 800


def test_a_loop_of_a_million_instructions():
    ib = ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_if(ib.r(0), 3)
        ib.emit_call("golden.iadd", [ib.r(0), ib.imm(-1)], dst=0)
        ib.emit_goto(-2)
        ib.emit_ret(ib.r(0))
    vm = VirtualMachine(with_golden(ib.get()), cpu())
    assert vm["main"](333_333) == 0
    report = vm.profile("main", 333_333)
    assert sum(row.count for row in report.instructions) == 1_000_001


def test_a_frame_of_10_000_registers():
    count = 10_000
    ib = ExecBuilder()
    ib.declare_function("twice", 1)
    with ib.function("main", num_inputs=1):
        for register in range(1, count):
            ib.emit_call("golden.iadd", [ib.r(register - 1), ib.imm(1)], dst=register)
        ib.emit_call("twice", [ib.r(count - 1)], dst=count)
        ib.emit_ret(ib.r(count))
    with ib.function("twice", num_inputs=1):
        ib.emit_call("golden.iadd", [ib.r(0), ib.r(0)], dst=1)
        ib.emit_ret(ib.r(1))
    ex = ib.get()
    assert ex.func_table[ex.func_map["main"]].register_file_size == count + 1
    again = VMExecutable.load_from_bytes(ex.save_to_bytes())
    vm = VirtualMachine(with_golden(again), cpu())
    assert vm["main"](1) == 2 * count
    assert vm.profile("main", 1).result == 2 * count
    assert len(vm.start("main", 1).snapshot().frames[0].registers) == count + 1
