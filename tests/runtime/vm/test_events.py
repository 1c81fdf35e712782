"""Events are enough to rebuild the machine: folding them gives its real state at every step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime import (
    DataType,
    ShapeTuple,
    VirtualMachine,
    cpu,
    register_global_func,
    tensor,
)
from relaxlab.runtime.vm.observer import (
    Branched,
    CallFinished,
    CallStarted,
    ErrorRaised,
    FramePopped,
    FramePushed,
    FrameState,
    InstructionStarted,
    Jumped,
    MachineState,
    Returned,
    RunFailed,
    RunFinished,
    RunStarted,
)
from tests.golden_values import encode, machine, with_golden
from tests.runtime.vm.programs import executables


class Fold:
    """The state that the table in ``observer.py`` defines, kept as mutable lists."""

    def __init__(self):
        self.step = 0
        self.frames = []

    def __call__(self, event):
        match event:
            case RunStarted():
                self.apply(event.changes)
            case FramePushed():
                assert event.depth == len(self.frames)
                self.frames.append(
                    [event.function, event.pc, event.return_register, list(event.registers)]
                )
            case InstructionStarted():
                self.step = event.step
                self.frames[event.depth][1] = event.pc
            case CallFinished():
                self.apply(event.changes)
                self.frames[event.depth][1] = event.next_pc
            case Jumped() | Branched():
                self.frames[event.depth][1] = event.next_pc
            case FramePopped():
                assert event.depth == len(self.frames) - 1
                self.frames.pop()
            case CallStarted() | Returned() | ErrorRaised() | RunFinished() | RunFailed():
                pass

    def apply(self, changes):
        for change in changes:
            self.frames[change.depth][3][change.register] = change.value

    def state(self):
        frames = tuple(FrameState(*frame[:3], tuple(frame[3])) for frame in self.frames)
        return MachineState(self.step, frames)


class Checker:
    """An observer that compares fold and snapshot before every instruction."""

    def __init__(self, vm):
        self.vm = vm
        self.fold = Fold()
        self.events = []
        self.compared = 0

    def __call__(self, event):
        self.events.append(event)
        self.fold(event)
        if isinstance(event, InstructionStarted):
            assert self.fold.state() == self.vm.current.snapshot()
            self.compared += 1


def outcome(vm, x, n):
    x = tensor(np.asarray(x, "float32"))
    return encode(vm["main"](x, n)), encode(x)


@settings(max_examples=150)
@given(executable=executables(), n=st.integers(0, 2))
def test_fold_equals_snapshot_and_stepping_equals_running(executable, n):
    x = [1.0, 2.0, 3.0, 4.0]
    plain = outcome(VirtualMachine(executable, cpu()), x, n)

    vm = VirtualMachine(executable, cpu())
    vm.observer = checker = Checker(vm)
    assert outcome(vm, x, n) == plain
    assert checker.compared
    assert checker.fold.frames == []

    again = []
    argument = tensor(np.asarray(x, "float32"))
    with VirtualMachine(executable, cpu()).start("main", argument, n, observer=again.append) as run:
        fold = Fold()
        seen = 0
        while True:
            for event in again[seen:]:
                fold(event)
            seen = len(again)
            assert fold.state() == run.snapshot()
            if not run.step():
                break
        result = encode(run.result)
    assert (result, encode(argument)) == plain
    # a replay tells the same story to the last detail
    assert again == checker.events


def test_steps_are_counted_from_zero_and_each_once():
    vm = machine("eb_loop")
    events = []
    vm.observer = events.append
    assert vm["sum"](2) == 3
    started = [event for event in events if isinstance(event, InstructionStarted)]
    assert [event.step for event in started] == list(range(len(started)))
    assert [event.pc for event in started] == [0, 1, 2, 3, 4, 5, 2, 3, 4, 5, 2, 6]
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)
    assert events[-1].result.text == "3"


def test_a_call_names_arguments_and_every_register_that_changed():
    vm = machine("eb_storage")
    events = []
    vm.observer = events.append
    vm["two_views"]()
    fills = [e for e in events if isinstance(e, CallFinished) and e.callee == "golden.fill"]
    # the second fill goes through %2, whose memory %1 sees too
    assert [(c.depth, c.register) for c in fills[1].changes] == [(0, 1), (0, 2)]
    assert fills[1].changes[0].value.head == (1.0,) * 4 + (5.0,) * 4
    starts = [e for e in events if isinstance(e, CallStarted)]
    assert [(a.source, a.index) for a in starts[0].arguments] == [
        ("vm", 0),
        ("constant", 1),
        ("immediate", 0),
        ("constant", 2),
        ("constant", 0),
    ]
    assert starts[2].destination is None


def test_storage_numbers_show_reuse_of_a_block():
    ib = ExecBuilder()
    pool = map(ib.convert_constant, (ShapeTuple((64,)), DataType("uint8"), "global"))
    shape, dtype, scope = pool
    args = [ib.vm_state(), shape, ib.imm(0), dtype, scope]
    with ib.function("main", num_inputs=0):
        ib.emit_call("vm.builtin.alloc_storage", args=args, dst=0)
        ib.emit_call("vm.builtin.null_value", args=[], dst=0)
        ib.emit_call("vm.builtin.alloc_storage", args=args, dst=1)
        ib.emit_ret(ib.r(1))
    vm = VirtualMachine(ib.get(), cpu())
    events = []
    vm.observer = events.append
    vm["main"]()
    first, _, second = (e.result for e in events if isinstance(e, CallFinished))
    assert (first.storage, first.block) == (0, 0)
    assert (second.storage, second.block) == (1, 0)


def test_an_error_is_told_frame_by_frame_and_the_fold_is_empty_again():
    vm = machine("eb_closure")
    vm.observer = checker = Checker(vm)
    with pytest.raises(RuntimeError, match="three"):
        vm["toomany"](10, 20)
    kinds = [type(event).__name__ for event in checker.events[-3:]]
    assert kinds == ["ErrorRaised", "FramePopped", "RunFailed"]
    assert checker.events[-2].unwound
    assert checker.events[-3].error_type == "InternalError"
    assert checker.fold.frames == []
    assert vm.current is None


def test_a_closed_execution_pops_its_frames():
    vm = machine("eb_recursion")
    events = []
    run = vm.start("fact", 3, observer=events.append)
    for _ in range(6):
        run.step()
    assert len(run.snapshot().frames) == 2
    run.close()
    assert run.finished
    assert [type(event).__name__ for event in events[-3:]] == [
        "FramePopped",
        "FramePopped",
        "RunFailed",
    ]
    run.close()
    assert vm["fact"](4) == 24


def test_a_nested_run_is_part_of_the_same_story():
    @register_global_func("events.nested", override=True)
    def nested(vm, x):
        x.array[0] = 7
        return vm["inner"](x)

    ib = ExecBuilder()
    with ib.function("outer", num_inputs=1):
        ib.emit_call("events.nested", args=[ib.vm_state(), ib.r(0)], dst=1)
        ib.emit_ret(ib.r(1))
    with ib.function("inner", num_inputs=1):
        ib.emit_call("golden.fill", args=[ib.r(0), ib.imm(3)])
        ib.emit_ret(ib.r(0))
    vm = VirtualMachine(with_golden(ib.get()), cpu())
    vm.observer = checker = Checker(vm)
    vm["outer"](tensor(np.zeros(2, "float32")))
    inner = next(e for e in checker.events if isinstance(e, RunStarted) and e.depth == 1)
    # what the host function wrote before is seen by the outer frame's register
    assert [(c.depth, c.register) for c in inner.changes] == [(0, 0)]
    filled = next(
        e for e in checker.events if isinstance(e, CallFinished) and e.callee == "golden.fill"
    )
    assert [(c.depth, c.register) for c in filled.changes] == [(0, 0), (1, 0)]
    assert checker.compared == 4


def test_an_observer_that_raises_ends_the_run_and_leaves_the_machine_usable():
    vm = machine("eb_minimal")

    def observer(event):
        raise KeyError("observer")

    vm.observer = observer
    with pytest.raises(KeyError, match="observer"):
        vm["f"](1)
    vm.observer = None
    assert vm["f"](1) == 1
    assert vm.current is None
