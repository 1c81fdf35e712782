"""The fold, event by event, and the recorder that bounds it."""

import contextlib
import io

import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime.vm.observer import (
    CallFinished,
    FramePopped,
    FramePushed,
    FrameState,
    InstructionStarted,
    Jumped,
    MachineState,
    RegisterChange,
    RunFailed,
    RunStarted,
    ScalarValue,
)
from relaxlab.trace import Recorder, StorageUse, Timeline

NONE = ScalarValue("none", "None")


def number(value):
    return ScalarValue("int", str(value))


def frame(function, pc, *registers, target=None):
    return FrameState(function, pc, target, registers)


def test_a_frame_below_can_change_while_another_is_on_top():
    change = RegisterChange(0, 1, number(9))
    timeline = Timeline(
        [
            FramePushed(0, 0, "f", 0, (number(1), NONE), None),
            InstructionStarted(0, 0, "f", 0),
            FramePushed(0, 1, "g", 5, (number(2),), 1),
            InstructionStarted(1, 1, "g", 5),
            CallFinished(1, 1, 5, "host", NONE, None, (change,), 6),
            InstructionStarted(2, 1, "g", 6),
            FramePopped(2, 1, "g"),
            CallFinished(2, 0, 0, "g", number(3), 1, (RegisterChange(0, 1, number(3)),), 1),
            InstructionStarted(3, 0, "f", 1),
        ]
    )
    assert timeline.state(0) == MachineState(0, (frame("f", 0, number(1), NONE),))
    assert timeline.state(1) == MachineState(
        1, (frame("f", 0, number(1), NONE), frame("g", 5, number(2), target=1))
    )
    assert timeline.state(2) == MachineState(
        2, (frame("f", 0, number(1), number(9)), frame("g", 6, number(2), target=1))
    )
    assert timeline.state(3) == MachineState(3, (frame("f", 1, number(1), number(3)),))
    assert timeline.end == 3
    assert len(timeline) == 3
    assert [write.cause for write in timeline.writes(0, 1)] == ["memory", "result"]
    assert timeline.last_write(3, 0, 1).step == 2
    assert timeline.last_write(2, 0, 1).step == 1
    assert timeline.last_write(1, 0, 1) is None
    assert timeline.depth(1) == 1
    assert timeline.visits(5) == [1]
    assert timeline.visits(99) == ()


def test_a_run_that_fails_before_its_first_instruction():
    timeline = Timeline([RunStarted(0, 0, "f", ()), RunFailed(0, 0, "f", "InternalError", "x")])
    assert timeline.end == 0
    assert timeline.state(0) == MachineState(0, ())
    assert timeline.depth(0) == -1
    assert timeline.last_write(0, 0, 0) is None
    assert list(timeline.walk()) == []


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([InstructionStarted(0, 0, "f", 0)], "frame 0 ran, but no frame is there"),
        ([FramePushed(0, 0, "f", 0, (), None), Jumped(0, 1, 0, 2)], "ran, but frame 0 is on top"),
        ([FramePopped(0, 0, "f")], "frame 0 of 'f' is popped, but is not on top"),
        ([InstructionStarted(5, 0, "f", 0)], "expected step 0, got step 5"),
        (
            [RunStarted(0, 0, "f", (), (RegisterChange(0, 0, NONE),))],
            "a register changed, but no frame is there",
        ),
        (
            [
                FramePushed(0, 0, "f", 0, (NONE,), None),
                RunStarted(0, 0, "f", (), (RegisterChange(3, 0, NONE),)),
            ],
            "no frame 3: the stack has 1",
        ),
    ],
)
def test_events_that_cannot_happen_are_refused(events, message):
    with pytest.raises(InternalError, match=message):
        Timeline(events)


@pytest.mark.parametrize("position", [-1, 1])
def test_positions_outside_the_recording_are_refused(position):
    timeline = Timeline()
    for question in (timeline.state, timeline.events_of):
        with pytest.raises(IndexError, match=f"position {position} is outside the recording"):
            question(position)


def test_a_recursion_of_ten_thousand_frames_is_folded_quickly(fact):
    fact.restart(10_000)
    fact.goto(30_001)
    assert fact.depth == 10_000
    assert len(fact.state.frames) == 10_001
    assert fact.evaluate("n") == 0
    assert fact.back(100).depth == 9_967
    assert "#10000" not in str(fact)


def test_memory_and_who_sees_it(memory):
    memory.goto(4)
    assert memory.timeline.storages(4) == [
        StorageUse(0, None, ((0, 0),)),
        StorageUse(1, 4096, ((0, 1), (0, 2), (0, 3))),
    ]
    assert list(memory.timeline.memory_writes(1)) == [3]


def test_what_is_printed_belongs_to_its_step(fact):
    fact.continue_()
    timeline = fact.timeline
    assert timeline.console == [
        (11, "said 1\n"),
        (15, "said 1\n"),
        (19, "said 2\n"),
        (23, "said 6\n"),
    ]
    assert timeline.text(11) == ""
    assert timeline.text(12) == "said 1\n"


def test_a_recorder_passes_on_what_is_printed(fact):
    recorder = Recorder()
    fact.vm.observer = recorder
    shown = io.StringIO()
    with recorder.listening(forward=shown):
        assert fact.vm["fact"](1) == 1
    assert shown.getvalue() == "said 1\nsaid 1\n"
    assert recorder.timeline.text(recorder.timeline.end) == shown.getvalue()


def test_a_recorder_holds_the_last_of_several_runs(fact):
    recorder = Recorder()
    fact.vm.observer = recorder
    with contextlib.redirect_stdout(io.StringIO()):
        fact.vm["fact"](3)
        fact.vm["fact"](1)
    assert repr(recorder) == "Recorder(11 steps)"
    assert recorder.dropped == 0


def test_a_recorder_drops_as_much_as_it_keeps():
    recorder = Recorder(limit=10)
    recorder(FramePushed(0, 0, "f", 0, (number(1),), None))
    kept = []
    for step in range(45):
        recorder(InstructionStarted(step, 0, "f", step))
        recorder(Jumped(step, 0, step, step + 1))
        kept.append((recorder.dropped, len(recorder.timeline)))
    assert kept[19] == (0, 20)
    assert kept[20] == (10, 11)
    assert kept[30] == (20, 11)
    assert kept[44] == (30, 15)
    assert recorder.timeline.state(30) == MachineState(30, (frame("f", 30, number(1)),))


@pytest.mark.parametrize("limit", [0, -3])
def test_a_recorder_keeps_at_least_one_step(limit):
    with pytest.raises(ValueError, match=f"limit={limit}"):
        Recorder(limit)
