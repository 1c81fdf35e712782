"""What must hold for every program: stepping equals running, folding equals the machine."""

import contextlib
import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relaxlab.runtime.describe import Describer
from relaxlab.runtime.vm.observer import InstructionStarted, TensorValue
from relaxlab.runtime.vm.verify import find_problems
from relaxlab.trace import (
    DebugSession,
    Recorder,
    ReplayError,
    Timeline,
    compact_trace,
    explain_events,
    line_text,
    state_at,
)
from relaxlab.trace.explain import explain_next
from tests.strategies import programs

many = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def outcome(action):
    """Return what an action gives, as something that can be compared, and what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            result = Describer().describe(action())
        except Exception as error:  # noqa: BLE001 - any error of the program is an outcome
            result = (type(error).__name__, str(error))
    return result, printed.getvalue()


def recorded(program, limit=None):
    """Run a program and return its recorder."""
    recorder = Recorder(limit)
    machine = program.machine()
    machine.observer = recorder
    with recorder.listening(), contextlib.suppress(Exception):
        machine["main"](*program.arguments())
    return recorder


def session_of(program, **options):
    return DebugSession(program.machine(), "main", *program.arguments(), **options)


@many
@given(programs())
def test_the_strategy_makes_programs_that_the_verifier_accepts(program):
    assert find_problems(program.executable) == []


@many
@given(programs())
def test_stepping_to_the_end_equals_running(program):
    plain = outcome(lambda: program.machine()["main"](*program.arguments()))
    events = []
    machine = program.machine()
    machine.observer = events.append
    ran = outcome(lambda: machine["main"](*program.arguments()))
    session = session_of(program)
    positions = [session.position]
    while not session.at_end:
        positions.append(session.step().position)
    if session.error is not None:
        stepped = (type(session.error).__name__, str(session.error))
    else:
        stepped = Describer().describe(session.result)
    assert (stepped, session.timeline.text(session.position)) == ran == plain
    assert session.timeline.events == tuple(events)
    assert positions == list(range(len(session.timeline) + 1))


@settings(many, max_examples=200)
@given(programs())
def test_the_folded_timeline_equals_the_machine_at_every_step(program):
    events = []
    with contextlib.redirect_stdout(io.StringIO()):
        run = program.machine().start("main", *program.arguments(), observer=events.append)
        snapshots = [run.snapshot()]
        with contextlib.suppress(Exception):
            while run.step():
                snapshots.append(run.snapshot())
        snapshots.append(run.snapshot())
    timeline = Timeline(events)
    for snapshot in snapshots[:-1]:
        assert timeline.state(snapshot.step) == snapshot
    # at the end the machine has no frames, and neither has the fold
    assert timeline.state(timeline.end).frames == snapshots[-1].frames == ()
    assert timeline.end == sum(isinstance(event, InstructionStarted) for event in events)


@many
@given(programs(), st.data())
def test_states_do_not_depend_on_the_way_to_them(program, data):
    recorder = recorded(program)
    timeline = recorder.timeline
    forwards = [timeline.state(position) for position in range(timeline.end + 1)]
    again = Timeline(timeline.events)
    for position in reversed(range(timeline.end + 1)):
        assert again.state(position) == forwards[position]
    for position in data.draw(st.lists(st.integers(0, timeline.end), max_size=8)):
        assert again.state(position) == forwards[position]
    walked = [(step, top) for step, top, _ in timeline.walk()]
    assert [step for step, _ in walked] == list(range(timeline.end))
    for step, top in walked:
        assert top is not None
        assert top.registers == forwards[step].frames[-1].registers


@many
@given(programs(), st.integers(1, 20))
def test_a_bounded_recorder_keeps_the_last_states(program, limit):
    whole, bounded = recorded(program).timeline, recorded(program, limit).timeline
    assert bounded.end == whole.end
    assert bounded.first_step == 0 or len(bounded) >= limit
    assert len(bounded) <= 2 * limit
    for position in range(bounded.first_step, bounded.end + 1):
        assert bounded.state(position) == whole.state(position)
    for step in range(bounded.first_step, bounded.end):
        assert bounded.events_of(step) == whole.events_of(step)
    with pytest.raises(IndexError, match="outside the recording"):
        bounded.state(bounded.first_step - 1)


@many
@given(programs(), st.sampled_from([None, 5, 17]))
def test_the_compact_trace_holds_the_same_states(program, limit):
    timeline = recorded(program, limit).timeline
    trace = json.loads(json.dumps(compact_trace(program.executable, timeline)))
    for position in range(timeline.first_step, timeline.end + 1):
        assert state_at(trace, position) == timeline.state(position)
    steps = len(timeline)
    for column in ("pc", "depth", "say"):
        assert len(trace[column]) == steps + 1
    for column in ("ops", "did"):
        assert len(trace[column]) == steps
    for step, top, events in timeline.walk():
        index = step - timeline.first_step
        assert line_text(trace, trace["say"][index]) == explain_next(program.executable, top)
        assert line_text(trace, trace["did"][index]) == explain_events(events)


@many
@given(programs(), st.data())
def test_the_last_writer_is_the_last_step_that_changed_the_register(program, data):
    timeline = recorded(program).timeline
    position = data.draw(st.integers(0, max(0, timeline.end - 1)))
    top = timeline.top(position)
    if top is None:
        return
    for register, value in enumerate(top.registers):
        write = timeline.last_write(position, top.depth, register)
        if write is None:
            assert value.kind == "none"
            continue
        assert write.value == value
        assert write.frame == top.number
        if write.cause != "argument":
            assert write.step < position
            assert any(
                change.register == register and change.value == value
                for event in timeline.events_of(write.step)
                for change in getattr(event, "changes", ())
            )


def without_storage(value):
    """Return a description without the number of the storage, which another describer gives."""
    if isinstance(value, TensorValue):
        return (value.dtype, value.shape, value.head, value.tail, value.checksum)
    return value.text if value.kind in ("int", "bool", "shape", "none") else value.kind


def inside_a_host_function(session):
    """Whether a host function called the machine again, so that a run cannot stop here."""
    top = session.top
    return top is not None and any(
        frame.below is not None
        and session.vm.executable.instruction(frame.below.pc).func_idx
        == session.vm.executable.func_map.get("host.again")
        for frame in top.stack()
    )


@settings(many, max_examples=25)
@given(programs(), st.data())
def test_full_values_of_past_steps_are_those_of_the_recording(program, data):
    session = session_of(program)
    session.continue_()
    for position in data.draw(st.lists(st.integers(0, session.timeline.end), max_size=5)):
        session.goto(position)
        frame = session.frame
        if frame is None:
            continue
        for register, described in enumerate(frame.registers):
            if inside_a_host_function(session):
                with pytest.raises(ReplayError, match="inside a host function"):
                    session.value(register)
                break
            value = session.value(register)
            assert without_storage(Describer().describe(value)) == without_storage(described)


@many
@given(programs())
def test_the_text_shows_every_register_of_small_frames(program):
    session = session_of(program)
    while True:
        text = str(session)
        frame = session.frame
        if frame is not None and len(frame.registers) <= 24:
            for register in range(len(frame.registers)):
                assert f"%{register}" in text
            assert f"=> {frame.pc}" in " ".join(text.split())
        assert "0x" not in repr(session)
        if session.at_end:
            break
        session.step()
    assert text.splitlines()[0].startswith(f"main: step {session.timeline.end} of")
