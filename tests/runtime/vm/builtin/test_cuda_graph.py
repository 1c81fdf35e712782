"""Capture and replay: TVM's recorded program, the protocol, its key, and what is refused."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime import (
    Array,
    DataType,
    ShapeTuple,
    VirtualMachine,
    cpu,
    get_global_func,
    register_global_func,
    remove_global_func,
    tensor,
)
from relaxlab.runtime.vm import VMExecutable
from relaxlab.runtime.vm.builtin.cuda_graph import CUDAGraphExtension
from relaxlab.runtime.vm.capture import CAPTURABLE
from relaxlab.runtime.vm.graph_state import GraphState, fold_graphs
from relaxlab.runtime.vm.observer import (
    ErrorRaised,
    GraphCaptured,
    GraphCaptureStarted,
    GraphReplayed,
    GraphStoragesKept,
    KernelRecorded,
    RunFailed,
)
from relaxlab.trace import DebugSession, Timeline, explain_events
from relaxlab.trace.explain import explain_next
from tests import golden_vm

RUN = "vm.builtin.cuda_graph.run_or_capture"
ALLOC = "vm.builtin.cuda_graph.get_cached_alloc"
GRAPH_EVENTS = (
    GraphStoragesKept,
    GraphCaptureStarted,
    KernelRecorded,
    GraphCaptured,
    GraphReplayed,
)


class Kernels:
    """Kernels that write into their last argument and count their calls."""

    kind = "kernels"

    def __init__(self):
        self.imports = []
        self.calls = []
        self.functions = {
            "add": lambda a, b, out: np.add(a.array, b.array, out=out.array),
            "multiply": lambda a, b, out: np.multiply(a.array, b.array, out=out.array),
            "relu": lambda a, out: np.maximum(a.array, 0, out=out.array),
            "tir_exp": lambda a, out: np.exp(a.array, out=out.array),
            "increment": lambda out: out.copyfrom(out.array + 1),
            "fresh": lambda a: tensor(a.array + 1),
            "same": lambda a, out: out.copyfrom(a.array),
            "scale": lambda a, n, out: np.multiply(a.array, n, out=out.array),
            "shape_func": self.shape_func,
            "fail": self.fail,
        }

    def shape_func(self, heap):
        heap.array[1] = heap.array[0] * 2

    def fail(self, out):
        raise ValueError("a kernel fails")

    def get_function(self, name):
        function = self.functions.get(name)
        if function is None:
            return None

        def kernel(*args):
            self.calls.append(name)
            result = function(*args)
            # ufuncs return what they were given to write to, which is no tensor
            return None if isinstance(result, np.ndarray) else result

        return kernel


def machine(executable, mode="bytecode"):
    kernels = Kernels()
    executable.import_module(kernels)
    return VirtualMachine(executable, cpu(), exec_mode=mode), kernels.calls


def region(body, inputs=1, arity=4):
    """Return a machine whose main(args, index[, sizes]) runs a region made by ``body``."""
    ib = ExecBuilder()
    ib.declare_function("region", 1)
    with ib.function("main", num_inputs=arity - 2):
        args = [ib.vm_state(), ib.f("region"), *map(ib.r, range(arity - 2))]
        ib.emit_call(RUN, args, dst=9)
        ib.emit_ret(ib.r(9))
    with ib.function("region", num_inputs=inputs):
        body(ib)
    vm, calls = machine(ib.get())
    return vm, calls


# ---- TVM's recorded program -----------------------------------------------------------------


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_the_recorded_program_captures_once_and_replays(mode):
    executable = VMExecutable.load_from_bytes(golden_vm.executable_bytes("build_cuda_graph"))
    assert executable.as_text() == golden_vm.case("build_cuda_graph")["as_text"]
    vm, calls = machine(executable, mode)
    for start in (0.0, 1.0):
        x = np.arange(8, dtype="float32") / 10 + start
        want = np.exp((x + x) ** 2) + x
        np.testing.assert_allclose(vm["main"](x).array, want, rtol=1e-6)
    assert (CUDAGraphExtension.of(vm).replays, len(calls)) == (1, 10)
    vm.extensions.clear()
    events = []
    vm.observer = events.append
    seen = []
    for start in (0.0, 1.0, 2.0, 3.0):
        x = np.arange(8, dtype="float32") / 10 - 0.3 + start
        calls.clear()
        events.clear()
        result = vm["main"](x)
        np.testing.assert_allclose(result.array, np.exp(np.maximum((x + x) ** 2, 0)) + x, rtol=1e-6)
        seen.append((list(calls), [type(one) for one in events if isinstance(one, GRAPH_EVENTS)]))
    kernels = ["multiply", "relu", "tir_exp"]
    assert seen[0] == (
        ["add", *kernels, "add"],
        [GraphStoragesKept, GraphCaptureStarted, *[KernelRecorded] * 3, GraphCaptured],
    )
    assert seen[1:] == [(["add", *kernels, "add"], [GraphStoragesKept, GraphReplayed])] * 3
    graphs = CUDAGraphExtension.of(vm)
    assert repr(graphs) == "<CUDA graphs: 1 captured, 3 replays, 6 launches saved>"
    assert graphs.regions[0, ()].graph.launches == tuple(kernels)
    replayed = next(one for one in events if isinstance(one, GraphReplayed))
    assert (replayed.index, replayed.sizes, replayed.kernels) == (0, (), tuple(kernels))
    Timeline(events)  # folds


def test_a_debugger_steps_through_it_again_and_again():
    executable = VMExecutable.load_from_bytes(golden_vm.executable_bytes("build_cuda_graph"))
    vm, _ = machine(executable)
    x = np.linspace(0, 1, 8, dtype="float32")
    for _ in range(2):
        session = DebugSession(vm, "main", x)
        while not session.at_end:
            session.step()
        want = np.exp((x + x) ** 2) + x
        np.testing.assert_allclose(session.result.array, want, rtol=1e-6)
        session.goto(session.timeline.end - 1)
        np.testing.assert_allclose(session.value(10).array, want, rtol=1e-6)
    assert vm.extensions == {}


# ---- the protocol ---------------------------------------------------------------------------


def increments(ib):
    ib.emit_call("increment", [ib.r(0)])
    ib.emit_call("increment", [ib.r(0)])
    ib.emit_call("vm.builtin.make_tuple", [ib.r(0)], dst=1)
    ib.emit_ret(ib.r(1))


def test_a_capture_runs_the_region_once_and_a_replay_runs_it_again():
    vm, calls = region(increments)
    x = tensor(np.zeros(2, "float32"))
    first = vm["main"]((x,), 0)
    assert x.numpy().tolist() == [2, 2]  # the warm-up wrote, the capture did not
    assert calls == ["increment"] * 2
    second = vm["main"]((x,), 0)
    assert second is first
    assert x.numpy().tolist() == [4, 4]
    assert first[0].array is x.array


def test_the_key_is_the_index_with_the_sizes():
    vm, _ = region(increments, arity=5)
    x = tensor(np.zeros(2, "float32"))
    for index, sizes in ((0, (2,)), (0, (3,)), (1, (2,)), (0, (2,)), (0, ())):
        vm["main"]((x,), index, ShapeTuple(sizes))
    assert list(CUDAGraphExtension.of(vm).regions) == [(0, (2,)), (0, (3,)), (1, (2,)), (0, ())]
    assert CUDAGraphExtension.of(vm).replays == 1
    vm2, _ = region(increments)
    vm2["main"]((x,), 0)
    assert list(CUDAGraphExtension.of(vm2).regions) == [(0, ())]  # no sizes is an empty key


def test_other_memory_is_captured_again():
    """TVM would go on writing into the first tensor."""
    vm, _ = region(increments)
    x, y = (tensor(np.zeros(2, "float32")) for _ in range(2))
    vm["main"]((x,), 0)
    vm["main"]((y,), 0)
    assert (x.numpy().tolist(), y.numpy().tolist()) == ([2, 2], [2, 2])
    vm["main"]((tensor(y).copyfrom(y) and y,), 0)
    assert y.numpy().tolist() == [4, 4]
    assert CUDAGraphExtension.of(vm).replays == 1


@pytest.mark.parametrize(
    ("first", "second", "replays"),
    [(2, 2, 1), (2, 3, 0), (2, 2.0, 0), ((1, 2), (1, 2), 1), ((1, 2), (1, 3), 0), ("a", "a", 1)],
)
def test_other_numbers_are_captured_again(first, second, replays):
    def body(ib):
        ib.emit_call("increment", [ib.r(0)])
        ib.emit_ret(ib.r(1))

    vm, _ = region(body, inputs=2)
    x = tensor(np.zeros(1, "float32"))
    vm["main"]((x, first), 0)
    vm["main"]((x, second), 0)
    assert CUDAGraphExtension.of(vm).replays == replays
    assert x.numpy().tolist() == [2]


def test_every_machine_has_its_own_graphs_and_keeps_them_over_errors():
    def body(ib):
        ib.emit_call("increment", [ib.r(0)])
        ib.emit_if(ib.r(1), 2)
        ib.emit_call("fail", [ib.r(0)])
        ib.emit_ret(ib.r(0))

    vm, _ = region(body, inputs=2)
    other = VirtualMachine(vm.executable, cpu())
    x = tensor(np.zeros(1, "float32"))
    vm["main"]((x, 0), 0)
    with pytest.raises(ValueError, match="a kernel fails"):
        vm["main"]((x, 1), 1)
    vm["main"]((x, 0), 0)
    assert repr(CUDAGraphExtension.of(vm)) == (
        "<CUDA graphs: 1 captured, 1 replays, 0 launches saved>"
    )
    assert CUDAGraphExtension.of(other).regions == {}
    other["main"]((x, 0), 0)
    assert list(CUDAGraphExtension.of(other).regions) == [(0, ())]


def test_storages_are_allocated_once():
    ib = ExecBuilder()
    ib.declare_function("allocate", 1)
    with ib.function("main", num_inputs=1):
        ib.emit_call(ALLOC, [ib.vm_state(), ib.f("allocate"), ib.r(0)], dst=1)
        ib.emit_ret(ib.r(1))
    with ib.function("allocate"):
        args = [ib.vm_state(), ShapeTuple((64,)), ib.imm(0), DataType("uint8")]
        ib.emit_call("vm.builtin.alloc_storage", [*args, ib.convert_constant("global")], dst=0)
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0)], dst=1)
        ib.emit_ret(ib.r(1))
    vm, _ = machine(ib.get())
    events = []
    first = vm["main"](0)
    vm.observer = events.append
    assert vm["main"](0) is first
    assert vm["main"](1) is not first
    kept = [one for one in events if isinstance(one, GraphStoragesKept)]
    assert [(one.index, one.reused) for one in kept] == [(0, True), (1, False)]
    assert kept[0].value.items[0].nbytes == 4096


# ---- symbolic sizes, control flow, nested calls -----------------------------------------------


def test_sizes_are_computed_on_the_host_when_a_region_is_captured():
    def body(ib):
        heap = [ib.vm_state(), ib.imm(2)]
        ib.emit_call("vm.builtin.alloc_shape_heap", heap, dst=1)
        ctx = ib.convert_constant("a region")
        match = [ib.r(0), ib.r(1), ib.imm(1), ib.imm(1), ib.imm(0), ctx]
        ib.emit_call("vm.builtin.match_shape", match)
        ib.emit_call("shape_func", [ib.r(1)])
        make = [ib.r(1), ib.imm(1), ib.imm(1), ib.imm(1)]
        ib.emit_call("vm.builtin.make_shape", make, dst=2)
        ib.emit_call("increment", [ib.r(0)])
        ib.emit_ret(ib.r(2))

    vm, calls = region(body)
    x = tensor(np.zeros(3, "float32"))
    for count in (1, 2, 3):
        assert vm["main"]((x,), 0) == ShapeTuple((6,))
        assert x.numpy().tolist() == [count] * 3
    assert calls.count("shape_func") == 2  # warm-up and capture, never in a replay
    assert CUDAGraphExtension.of(vm).regions[0, ()].graph.launches == ("increment",)


def test_a_region_may_call_functions_and_closures_of_its_program():
    ib = ExecBuilder()
    for name in ("region", "inner"):
        ib.declare_function(name, 1)
    with ib.function("main", num_inputs=2):
        ib.emit_call(RUN, [ib.vm_state(), ib.f("region"), ib.r(0), ib.r(1)], dst=2)
        ib.emit_ret(ib.r(2))
    with ib.function("region", num_inputs=2):
        ib.emit_call("vm.builtin.read_if_cond", [ib.r(1)], dst=2)
        ib.emit_if(ib.r(2), 3)
        ib.emit_call("inner", [ib.r(0)], dst=3)
        ib.emit_goto(3)
        ib.emit_call("vm.builtin.make_closure", [ib.f("inner"), ib.r(0)], dst=4)
        ib.emit_call("vm.builtin.invoke_closure", [ib.vm_state(), ib.r(4)], dst=3)
        ib.declare_function("scale", 0)
        tail = [ib.f("scale"), ib.r(0), ib.imm(1), ib.r(0), ShapeTuple(())]
        ib.emit_call("vm.builtin.call_tir_dyn", tail)
        ib.emit_ret(ib.r(3))
    with ib.function("inner", num_inputs=1):
        ib.emit_call("increment", [ib.r(0)])
        ib.emit_ret(ib.r(0))
    vm, _ = machine(ib.get())
    x = tensor(np.zeros(1, "float32"))
    for index, flag in enumerate((1, 0)):
        for _ in range(3):
            assert vm["main"]((x, flag), index) is x
    assert x.numpy().tolist() == [6]
    graphs = CUDAGraphExtension.of(vm).regions
    assert {one.graph.launches for one in graphs.values()} == {("increment", "scale")}


# ---- refusals: nothing is kept, the machine works on -------------------------------------------


def refused(body, args, inputs=1):
    """Run a region that cannot be captured, twice; return the message."""
    vm, _ = region(body, inputs)
    events = []
    vm.observer = events.append
    for _ in range(2):
        events.clear()
        with pytest.raises(InternalError, match=r"cannot be captured|cannot capture") as raised:
            vm["main"](args, 0)
        assert any(isinstance(one, ErrorRaised) for one in events)
        assert not any(isinstance(one, GraphCaptured) for one in events)
    graphs = CUDAGraphExtension.of(vm)
    assert graphs.regions == {}
    assert graphs.backend is None or graphs.backend.captures == 0
    # the capture is closed and the machine works
    vm.observer = None
    vm.extensions.clear()
    return str(raised.value)


def emit(name, *args, dst=5):
    def body(ib):
        words = [getattr(ib, a)() if isinstance(a, str) else a for a in args]
        words = [ib.r(a) if isinstance(a, int) else a for a in words]
        ib.emit_call("increment", [ib.r(0)])
        ib.emit_call(name, words, dst=dst)
        ib.emit_ret(ib.r(0))

    return body


X = np.zeros(2, "float32")


def test_allocation_is_refused():
    def body(ib):
        args = [ib.vm_state(), ShapeTuple((64,)), ib.imm(0), DataType("uint8")]
        ib.emit_call("vm.builtin.alloc_storage", [*args, ib.convert_constant("global")], dst=1)
        ib.emit_ret(ib.r(1))

    message = refused(body, (X,))
    assert message.startswith("'vm.builtin.alloc_storage' cannot be captured: it allocates memory")
    assert "get_cached_alloc" in message


def test_waiting_for_the_device_is_refused():
    message = refused(emit("vm.builtin.read_if_cond", 1), (X, np.array(True)), inputs=2)
    assert "reads device memory on the host" in message
    message = refused(emit("vm.builtin.tensor_to_shape", 1), (X, np.array([2, 3])), inputs=2)
    assert message.startswith("'vm.builtin.tensor_to_shape' cannot be captured")


def test_host_functions_are_refused_unless_they_only_launch_kernels():
    done = []
    register_global_func("graphs.callback", done.append)
    try:
        message = refused(emit("graphs.callback", 0), (X,))
        assert "'graphs.callback' cannot be captured: it runs on the host" in message
        assert len(done) == 2  # in the two warm-ups
        CAPTURABLE.register("graphs.callback", True)
        vm, _ = region(emit("graphs.callback", 0))
        done.clear()
        for _ in range(3):
            vm["main"](((tensor(X) and done and None) or X,), 0)
        assert CUDAGraphExtension.of(vm).regions[0, ()].graph.launches == (
            "increment",
            "graphs.callback",
        )
        assert len(done) == 3
    finally:
        remove_global_func("graphs.callback")
        CAPTURABLE.remove("graphs.callback")


def test_a_function_that_returns_a_value_is_refused():
    message = refused(emit("fresh", 0), (X,))
    assert message.startswith("'fresh' cannot be captured: it returned a value")
    vm, _ = region(emit("same", 0, 0))  # returns what it was given to write to
    vm["main"]((X,), 0)
    assert CUDAGraphExtension.of(vm).regions[0, ()].graph.launches == ("increment", "same")


def test_a_capture_in_a_capture_is_refused():
    ib = ExecBuilder()
    for name in ("outer", "inner"):
        ib.declare_function(name, 1)
    with ib.function("main", num_inputs=1):
        ib.emit_call(RUN, [ib.vm_state(), ib.f("outer"), ib.r(0), ib.imm(0)], dst=2)
        ib.emit_ret(ib.r(2))
    with ib.function("outer", num_inputs=1):
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0)], dst=1)
        ib.emit_call(RUN, [ib.vm_state(), ib.f("inner"), ib.r(1), ib.imm(1)], dst=2)
        ib.emit_ret(ib.r(2))
    with ib.function("inner", num_inputs=1):
        ib.emit_call("increment", [ib.r(0)])
        ib.emit_ret(ib.r(0))
    vm, _ = machine(ib.get())
    with pytest.raises(InternalError, match="a capture cannot hold another one"):
        vm["main"]((tensor(X),))


def test_functions_from_outside_are_refused():
    vm, _ = region(increments)
    add = vm.program.functions["region"]
    with pytest.raises(InternalError, match=r"cannot capture 'region': argument 0 is Closure"):
        vm["main"]((add,), 0)
    other, _ = region(increments)
    run = get_global_func(RUN)
    foreign = other.program.functions["region"]
    with pytest.raises(InternalError, match="expected a function of the machine that captures"):
        run(vm, foreign, (tensor(X),), 0)
    region_of_vm = vm.program.functions["region"]
    assert run(vm, region_of_vm, Array([tensor(X)]), 0)


@pytest.mark.parametrize(
    ("name", "args", "error", "message"),
    [
        (ALLOC, 2, InternalError, r"expected \(%vm, function, index\), got 2 arguments"),
        (ALLOC, 4, InternalError, "got 4 arguments"),
        (RUN, 3, InternalError, r"expected \(%vm, function, arguments, index\[, sizes\]\), got 3"),
        (RUN, 6, InternalError, "got 6 arguments"),
        (ALLOC, (None, None, 0), TypeError, "machine: expected %vm, got None"),
        (ALLOC, ("vm", 3, 0), TypeError, "function: expected a Relax function, got int 3"),
        (ALLOC, ("vm", "f", 0.5), TypeError, "index: expected int, got float 0.5"),
        (RUN, ("vm", "f", 1, 0), TypeError, "arguments: expected Tuple, got int 1"),
        (RUN, ("vm", "f", (), None), TypeError, "index: expected int, got None"),
        (RUN, ("vm", "f", (), 0, None), TypeError, "sizes: expected Shape, got None"),
    ],
)
def test_wrong_arguments(name, args, error, message):
    vm, _ = region(increments)
    known = {"vm": vm, "f": vm.program.functions["region"]}
    if isinstance(args, int):
        args = (vm, *[None] * (args - 1))
    args = [known.get(one, one) if isinstance(one, str) else one for one in args]
    with pytest.raises(error, match=message):
        get_global_func(name)(*args)


def test_a_debugger_says_what_happened():
    ib = ExecBuilder()
    ib.declare_function("region", 1)
    with ib.function("main", num_inputs=1):
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0)], dst=1)
        for _ in range(2):
            ib.emit_call(RUN, [ib.vm_state(), ib.f("region"), ib.r(1), ib.imm(7)], dst=2)
        ib.emit_ret(ib.r(0))
    with ib.function("region", num_inputs=1):
        increments(ib)
    vm, _ = machine(ib.get())
    session = DebugSession(vm, "main", tensor(X))
    said = []
    while not session.at_end:
        before = session.position
        said.append(explain_next(vm.executable, session.top))
        session.step()
        said.append(explain_events(session.timeline.events_of(before)))
    text = "\n".join(said)
    assert "Replay graph 7 of the function region, or capture it; the result goes to %2." in text
    assert "Captured 2 launches as graph 7; nothing was launched." in text
    assert "Replayed graph 7: one launch in place of 2 launches." in text


# ---- events fold to the graphs -------------------------------------------------------------------

calls = st.tuples(
    st.integers(0, 1),  # which tensor
    st.integers(0, 2),  # region
    st.sampled_from([(2,), (3,), ()]),  # sizes
    st.sampled_from([0, 0, 0, 1]),  # whether a kernel fails
)


@settings(max_examples=30, deadline=None)
@given(st.lists(calls, max_size=8))
def test_events_fold_to_the_graphs_of_the_machine(sequence):
    def body(ib):
        ib.emit_call("increment", [ib.r(0)])
        ib.emit_if(ib.r(1), 2)
        ib.emit_call("vm.builtin.tensor_to_shape", [ib.r(0)], dst=2)
        ib.emit_call("increment", [ib.r(0)])
        ib.emit_ret(ib.r(0))

    vm, _ = region(body, inputs=2, arity=5)
    xs = [tensor(np.zeros(1, "float32")) for _ in range(2)]
    seen = [GraphState()]

    def observe(event):
        seen.append(fold_graphs(seen[-1], event))
        if not isinstance(event, RunFailed):  # a capture is given up before its run is said to fail
            during.append((seen[-1].recording, CUDAGraphExtension.of(vm).snapshot().recording))

    during = []
    vm.observer = observe
    for which, index, sizes, fails in sequence:
        with contextlib.suppress(InternalError):
            vm["main"]((xs[which], fails), index, ShapeTuple(sizes))
        assert seen[-1] == CUDAGraphExtension.of(vm).snapshot()
    assert [one for one, _ in during if one] == [two for _, two in during if two]
