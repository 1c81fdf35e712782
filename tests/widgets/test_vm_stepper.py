"""The stepper from Python: its traits, its methods, its words, and a page that is not there."""

import json

import numpy as np
import pytest
import traitlets

from relaxlab.runtime.tensor import tensor
from relaxlab.trace import DebugSession
from relaxlab.widgets import VMStepper
from tests.strategies import HOST
from tests.trace.conftest import build, count_down
from tests.widgets.conftest import page_of, visit


def marked(text):
    """Return the lines of registers that the text twin marks."""
    lines = text.partition("registers of")[2].splitlines()[1:]
    return [line.strip() for line in lines if line[2:3] in ("+", "-", "*")]


# ---- what it is made from -------------------------------------------------------------------


def test_a_program_runs_at_once_and_the_view_stands_at_its_beginning(stepper):
    opened = page_of(stepper).sent[0]["data"]["state"]
    assert opened["position"] == 0
    assert len(opened["trace"]["ops"]) == 12
    assert opened["visits"] == {"count": 1, "last": [[0, -1]]}
    assert opened["breakpoints"] == opened["halts"] == []
    assert stepper.session.finished
    assert json.loads(json.dumps(opened["trace"], allow_nan=False)) == opened["trace"]


def test_machines_executables_and_sessions_are_shown():
    machine = build(("down", 1, ["n"], count_down))
    for made in (
        VMStepper(machine, "down", 3),
        VMStepper(machine.executable, "down", 3),
        VMStepper(DebugSession(machine, "down", 3)),
    ):
        assert repr(made) == "VMStepper(down, step 0 of 12)"


def test_a_session_is_shown_as_it_is():
    session = DebugSession(build(("down", 1, ["n"], count_down)), "down", 3)
    session.break_at("down", 2)  # before anything has run
    session.step(3)
    stepper = VMStepper(session)
    assert stepper.session is session
    assert stepper.position == 3
    assert stepper.breakpoints == [2]
    assert stepper.visits == {"count": 2, "last": [[0, -1], [3, -1]]}
    assert stepper.continue_().position == 5
    assert "o=> 2" in str(stepper)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((7,), "expected a VMExecutable, a VirtualMachine or a DebugSession, got int"),
        (("machine",), r"needs the function's name, got None"),
        (("machine", 3), r"needs the function's name, got 3"),
        (("session", "down"), r"a session already has its function"),
        (("session", None, 3), r"a session already has its function"),
    ],
)
def test_wrong_use_is_refused(args, message):
    machine = build(("down", 1, ["n"], count_down))
    given = {"machine": machine, "session": DebugSession(machine, "down", 3)}
    with pytest.raises(TypeError, match=message):
        VMStepper(
            *(given.get(arg, arg) if isinstance(arg, str) else arg for arg in args[:1]), *args[1:]
        )


def test_an_unknown_function_is_named():
    with pytest.raises(Exception, match="nowhere"):
        VMStepper(build(("down", 1, ["n"], count_down)), "nowhere", 3)


def test_a_program_that_fails_is_shown_up_to_its_failure(memory):
    stepper = VMStepper(memory)
    assert stepper.trace["outcome"] == {
        "error": "ZeroDivisionError",
        "message": "integer division or modulo by zero",
    }
    assert repr(stepper) == "VMStepper(main, step 0 of 6)"
    stepper.continue_()
    assert stepper.position == 6
    assert "failed: ZeroDivisionError: integer division" in str(stepper)
    assert "=> 5" in str(stepper.back())


def test_a_program_that_is_interrupted_is_shown_up_to_there(monkeypatch):
    def forever(ib):
        ib.emit_call("host.tick", [ib.r(0)], dst=1)
        ib.emit_goto(-1)

    count = []

    def tick(x):
        count.append(x)
        if len(count) == 5:
            raise KeyboardInterrupt
        return x

    monkeypatch.setitem(HOST, "host.tick", tick)
    stepper = VMStepper(build(("main", 1, ["x"], forever)), "main", 7)
    assert stepper.trace["outcome"]["error"] == "KeyboardInterrupt"
    assert stepper.goto(8).position == 8
    assert len(count) == 5


def test_an_interruption_between_two_steps_leaves_a_recording_that_cannot_grow(monkeypatch):
    session = DebugSession(build(("down", 1, ["n"], count_down)), "down", 30)
    advance, count = session._advance, []

    def interrupted():
        count.append(1)
        if len(count) == 8:
            raise KeyboardInterrupt
        advance()

    monkeypatch.setattr(session, "_advance", interrupted)
    stepper = VMStepper(session)
    assert stepper.trace["outcome"]["message"] == "the execution was given up"
    end = len(stepper.trace["ops"])
    assert end == 8  # the last step is the one that was given up
    assert stepper.continue_().position == end
    assert stepper.step().position == end
    assert "the execution was given up" in str(stepper)


def test_a_limit_drops_steps_and_says_so():
    stepper = VMStepper(build(("down", 1, ["n"], count_down)), "down", 100, limit=10)
    first = stepper.trace["first_step"]
    assert first > 0
    assert 10 <= len(stepper.trace["ops"]) <= 20
    assert repr(stepper) == f"VMStepper(down, step {first} of 303)"
    assert f"(the first {first} steps were dropped)" in str(stepper)
    assert stepper.visits["last"] == [[first, -1]]
    with pytest.raises(traitlets.TraitError, match=f"no step 0: the recording has {first} to 303"):
        stepper.position = 0
    with pytest.raises(IndexError, match=f"the first is {first}"):
        stepper.goto(0)
    assert stepper.position == first


def test_what_the_program_prints_is_kept_and_not_printed(fact, capsys):
    stepper = VMStepper(fact)
    assert capsys.readouterr().out == ""
    assert "said 1" not in str(stepper)
    assert "said 1" in str(stepper.continue_())


# ---- moving ---------------------------------------------------------------------------------


def test_methods_move_as_the_session_does(fact):
    stepper = VMStepper(fact)
    other = DebugSession(fact.vm, "fact", 3).record()
    for name in ("step", "step", "step", "over", "out", "back", "reverse_continue", "continue_"):
        getattr(stepper, name)()
        getattr(other, name)()
        assert stepper.position == other.position
        assert marked(str(stepper)) == marked(str(other))
    assert stepper.goto(9).select(1).session.depth == 1
    assert stepper.step(3).back(2).position == 10


def test_a_move_reaches_the_page_in_one_message(stepper):
    stepper.step()
    assert page_of(stepper).states() == [
        {"position": 1, "visits": {"count": 2, "last": [[0, -1], [1, -1]]}}
    ]


def test_the_position_moves_the_session(stepper):
    stepper.position = 5
    assert stepper.session.position == 5
    assert stepper.visits == {"count": 2, "last": [[0, -1], [5, -1]]}
    with pytest.raises(traitlets.TraitError, match="no step 13: the recording has 0 to 12"):
        stepper.position = 13
    assert stepper.position == stepper.session.position == 5


def test_the_page_moves_the_session_and_hears_nothing_back(stepper):
    visit(stepper, (4, -1))
    assert stepper.session.position == 4
    assert page_of(stepper).states() == []


def test_marks_are_those_of_the_places_that_the_page_showed(fact):
    stepper = VMStepper(fact)
    other = DebugSession(fact.vm, "fact", 3).record()
    # the page walked while the kernel was busy, and tells all of it at once
    visit(stepper, (1, -1), (2, -1), (9, -1), (9, 0), (10, -1), (12, -1))
    other.goto(1).goto(2).goto(9).select(0).goto(10).goto(12)
    assert str(stepper).splitlines()[1:] == str(other).splitlines()[1:]
    assert marked(str(stepper)) != []
    assert stepper.visits == {
        "count": 7,
        "last": [[0, -1], [1, -1], [2, -1], [9, -1], [9, 0], [10, -1], [12, -1]],
    }


def test_a_page_that_was_forgotten_still_moves_the_session(stepper):
    page_of(stepper).says(position=7)
    assert stepper.session.position == 7
    page_of(stepper).says(position=3, visits={"count": 900, "last": [[2, -1], [3, -1]]})
    assert stepper.session.position == 3
    assert stepper.step().visits["count"] == 901


# ---- breakpoints ----------------------------------------------------------------------------


def test_breakpoints_of_the_page_stop_the_session(stepper):
    page_of(stepper).says(breakpoints=[4])
    assert [point.pc for point in stepper.session.breakpoints.values()] == [4]
    assert "o   4" in str(stepper)
    assert stepper.continue_().position == 11
    page_of(stepper).says(breakpoints=[])
    assert stepper.session.breakpoints == {}
    assert stepper.goto(0).continue_().position == 12


def test_breakpoints_of_python_reach_the_page(stepper):
    made = stepper.break_at("down", 2)
    assert stepper.breakpoints == [2]
    assert page_of(stepper).states() == [{"breakpoints": [2]}]
    stepper.breakpoints = [4, 1, 4]
    assert stepper.breakpoints == [1, 4]
    assert made not in stepper.session.breakpoints.values()
    assert stepper.continue_().position == 1


def test_a_breakpoint_outside_the_code_is_refused(stepper):
    with pytest.raises(traitlets.TraitError, match="no instruction 5: the executable has 0 to 4"):
        stepper.breakpoints = [2, 5]
    assert stepper.breakpoints == []
    with pytest.raises(ValueError, match="no instruction 9"):
        stepper.break_at("down", 9)
    assert stepper.session.breakpoints == {}


def test_conditions_and_watches_are_stops_that_the_page_is_told(stepper):
    point = stepper.break_at("down", 2, condition="r1 == 2")
    watch = stepper.watch(1)
    assert stepper.breakpoints == []
    assert stepper.halts == [
        [str(point), 2, [5], [5]],
        [str(watch), -1, [1, 3, 6, 9], [0, 2, 5, 8]],
    ]
    assert [stepper.continue_().position for _ in range(3)] == [1, 3, 5]
    stepper.breakpoints = [4]
    assert point in stepper.session.breakpoints.values()
    stepper.remove(point.number)
    stepper.remove(watch.number)
    assert stepper.halts == []
    assert stepper.breakpoints == [4]
    with pytest.raises(KeyError, match="no breakpoint or watch 77"):
        stepper.remove(77)


def test_a_breakpoint_that_is_switched_off_stops_nothing(stepper):
    session = stepper.session
    session.break_at("down", 2).enabled = False
    shown = VMStepper(session)
    assert shown.breakpoints == shown.halts == []
    assert shown.continue_().position == 12


# ---- words ----------------------------------------------------------------------------------


def test_the_description_is_stable_and_stands_for_the_view(stepper):
    assert repr(stepper) == "VMStepper(down, step 0 of 12)"
    bundle = stepper._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert data["text/plain"] == "VMStepper(down, step 0 of 12)"
    assert "application/vnd.jupyter.widget-view+json" in data
    assert stepper.heading == "down: 12 steps"
    assert str(stepper) == str(stepper.session)


def test_full_values_are_in_the_session():
    machine = build(("f", 1, ["x"], lambda ib: ib.emit_ret(ib.r(0))))
    stepper = VMStepper(machine, "f", tensor(np.arange(100, dtype="float32")))
    assert stepper.session.value(0).numpy().sum() == 4950
