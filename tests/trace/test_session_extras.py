"""Log points, notes, the builtin filter, phases, and forks with an edited register."""

import numpy as np
import pytest

from relaxlab.runtime.tensor import tensor
from relaxlab.trace import DebugSession, ReplayError
from relaxlab.trace.condition import ExpressionError
from tests.strategies import HOST
from tests.trace.conftest import build, count_down

FACT_STEPS = 25


def test_a_log_point_writes_and_does_not_stop(fact):
    point = fact.log_at("n is {n}, twice {n * 2}, at {step}", "fact", 1)
    fact.continue_()
    assert fact.at_end
    assert fact.logs == [
        (1, "n is 3, twice 6, at 1"),
        (4, "n is 2, twice 4, at 4"),
        (7, "n is 1, twice 2, at 7"),
    ]
    assert fact.reverse_continue().position == 0
    assert fact.logs == []
    assert str(point) == (
        "log point 1 at fact+1 (instruction 1), writes 'n is {n}, twice {n * 2}, at {step}'"
    )
    fact.goto(5)
    assert "logged\n  step 1: n is 3, twice 6, at 1\n  step 4: " in str(fact)


def test_a_log_point_of_a_program_that_has_run_and_one_with_a_condition(fact):
    fact.record()
    fact.log_at("small {n}", "fact", 1, condition="n < 3")
    assert fact.goto(FACT_STEPS).logs == [(4, "small 2"), (7, "small 1")]
    fact.restart()
    assert fact.logs == []
    assert len(fact.continue_().logs) == 2


def test_a_log_text_says_what_it_cannot_tell(fact):
    fact.log_at("{nobody}", "fact", 1)
    assert "'nobody' has no value here" in fact.continue_().logs[0][1]
    with pytest.raises(ExpressionError, match="cannot read"):
        fact.log_at("{1 +}", "fact", 1)
    assert len(fact.breakpoints) == 1


def test_a_log_point_can_write_a_whole_tensor(memory):
    memory.log_at("x is {x}, %2 is {%2}, {x.max}", "main", 4)
    assert memory.continue_().logs == [
        (4, "x is float32[2] s0 [0.0, 0.0], %2 is float32[2] s1 [7.0, 7.0], 0.0")
    ]


def test_stepping_can_pass_by_builtins(countdown):
    plain = [countdown.position]
    countdown.skip_builtins = True
    assert countdown.step().position == 1
    assert countdown.back().position == 0  # the start is always reached
    machine = build(
        (
            "f",
            1,
            ["x"],
            lambda ib: (
                ib.emit_call("vm.builtin.copy", [ib.r(0)], dst=1),
                ib.emit_call("host.iadd", [ib.r(1), ib.imm(1)], dst=1),
                ib.emit_call("vm.builtin.copy", [ib.r(1)], dst=2),
                ib.emit_call("vm.builtin.make_tuple", [ib.r(2)], dst=3),
                ib.emit_ret(ib.r(3)),
            ),
        )
    )
    session = DebugSession(machine, "f", 1)
    session.skip_builtins = True
    assert [session.step().position for _ in range(3)] == [1, 4, 5]
    assert [session.back().position for _ in range(3)] == [4, 1, 0]
    session.break_at(pc=3)
    assert session.goto(1).step().position == 3
    assert session.reason.startswith("breakpoint 1")
    session.skip_builtins = False
    assert session.goto(1).step().position == 2
    assert plain == [0]


def test_notes_belong_to_steps(fact):
    fact.record().note("later", 9)
    fact.note("here")
    assert fact.notes == [(0, "here"), (9, "later")]
    assert "note: here" in str(fact)
    assert "note: later" in str(fact.goto(9))
    with pytest.raises(IndexError):
        fact.note("nowhere", 999)
    assert len(fact.notes) == 2


def test_phases_of_calls_branches_and_returns(fact):
    fact.record()
    assert dict(fact.goto(2).phases()) == {
        "fetch": "instruction 2 of fact: 0x1 0x2 0x0 0x1 0x1",
        "decode": "call fact in: %1 dst: %2",
        "read": "%1 = 2",
        "call": "the Relax function fact: a frame is pushed",
        "write": "the registers of a new frame of fact; instruction 0 of fact is next",
    }
    phases = dict(fact.goto(0).phases())
    assert phases["read"] == "%0 = 3"
    assert phases["call"] == "nothing"
    assert phases["write"] == "no register; instruction 1 of fact is next"
    last = dict(fact.goto(FACT_STEPS - 1).phases())
    assert last["call"] == "nothing: the frame of fact is left"
    assert last["write"] == "no register; the run is over"
    assert fact.goto(FACT_STEPS).phases() == []
    fact.goto(2).inside = True
    assert "inside instruction 2\n  fetch   instruction 2 of fact" in str(fact)


def test_a_step_that_has_not_run_yet_has_no_results(fact):
    assert [name for name, _ in fact.phases()] == ["fetch", "decode", "read"]


# ---- forks ----------------------------------------------------------------------------------


def test_a_fork_runs_on_from_another_value_and_leaves_the_original_alone(fact):
    fact.record().goto(5)
    before = str(fact)
    fork = fact.fork(0, 5)
    assert str(fact) == before
    assert fork.position == 5
    assert fork.state.frames[1].registers[0].text == "5"
    assert fork.goto(4).state == fact.timeline.state(4)
    assert fork.record().result == 15  # 3 * (5 * fact(1))
    assert fact.result == 6
    said = str(fork.goto(5))
    assert "EDITED at step 5, %0 of #1 was 2: from there on this is no run of the program" in said
    assert "EDITED: %0 of fact was set to 5." in said
    assert "* %0 n  5   (was 2)" in said


def test_a_fork_before_the_first_step_and_a_fork_of_a_fork(fact):
    fork = fact.fork(0, 4)
    assert fork.record().result == 24
    again = fork.goto(4).fork(0, 5)
    assert [edit.position for edit in again.edits] == [0, 4]
    assert again.record().result == 4 * 5 * 4 * 3 * 2
    assert again.goto(4).value(0) == 5
    assert again.goto(2).value(0) == 4
    assert again.restart().edits == []
    assert again.record().result == 6


def test_a_fork_with_a_tensor_copies_it(memory):
    memory.goto(4)
    mine = np.array([8.0, 9.0], "float32")
    fork = memory.fork(0, mine)
    mine[:] = 0
    assert fork.value(0).numpy().tolist() == [8.0, 9.0]
    assert fork.step().value(0).numpy().tolist() == [1.0, 1.0]
    assert fork.value(0).numpy().tolist() != tensor(mine).numpy().tolist()
    fork.record()
    assert fork.goto(4).value(0).numpy().tolist() == [8.0, 9.0]
    assert type(fork.error) is ZeroDivisionError


def test_a_fork_is_refused_where_nothing_can_be_edited(fact):
    with pytest.raises(IndexError, match="no register %9"):
        fact.fork(9, 1)
    fact.continue_()
    with pytest.raises(IndexError, match="the program is over"):
        fact.fork(0, 1)


def test_a_fork_of_a_run_that_cannot_be_repeated_is_refused(monkeypatch):
    calls = []
    monkeypatch.setitem(HOST, "host.iadd", lambda a, b: calls.append(1) or len(calls))
    session = DebugSession(build(("down", 1, ["n"], count_down)), "down", 3).goto(3)
    with pytest.raises(ReplayError, match="differs from the recorded one at step 3"):
        session.fork(0, 1)
    session.close()
