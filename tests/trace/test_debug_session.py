"""Stepping by hand: every command on programs whose course is known."""

import itertools

import numpy as np
import pytest

from relaxlab.runtime.tensor import tensor
from relaxlab.trace import DebugSession, ExpressionError, ReplayError
from tests.trace.conftest import build, count_down


def where(session):
    """Return position, depth and instruction."""
    top = session.top
    return (session.position, -1, None) if top is None else (session.position, top.depth, top.pc)


def test_a_step_is_one_instruction_and_enters_relax_functions(fact):
    assert where(fact) == (0, 0, 0)
    assert where(fact.step()) == (1, 0, 1)
    assert where(fact.step()) == (2, 0, 2)
    assert where(fact.step()) == (3, 1, 0)
    assert fact.reason == "one step"
    assert where(fact.into()) == (4, 1, 1)


def test_over_runs_a_call_to_its_end(fact):
    fact.step(2)
    assert where(fact.over()) == (21, 0, 3)
    assert fact.reason == "step over"
    assert fact.state.frames[-1].registers[2].text == "2"


def test_out_runs_until_the_function_has_returned(fact):
    fact.goto(6)
    assert where(fact) == (6, 2, 0)
    assert where(fact.out()) == (17, 1, 3)
    assert fact.reason == "returned"
    assert where(fact.out()) == (21, 0, 3)
    assert fact.out().at_end


def test_the_end_says_what_came_out(fact):
    fact.continue_()
    assert fact.at_end
    assert fact.finished
    assert fact.result == 6
    assert fact.reason == "finished with 6"
    assert where(fact) == (25, -1, None)
    assert where(fact.step()) == (25, -1, None)
    assert repr(fact) == "<DebugSession of fact: finished after 25 steps with 6>"


def test_going_back_does_not_run_anything(fact):
    fact.continue_()
    printed = fact.timeline.text(25)
    assert printed == "said 1\nsaid 1\nsaid 2\nsaid 6\n"
    assert where(fact.back()) == (24, 0, 7)
    assert fact.timeline.text(fact.position) == printed
    assert where(fact.back(3)) == (21, 0, 3)
    assert fact.timeline.text(fact.position) == "said 1\nsaid 1\nsaid 2\n"
    assert where(fact.back_over()) == (2, 0, 2)
    assert where(fact.goto(8).back_out()) == (5, 1, 2)
    assert fact.reason == "before the call"
    assert where(fact.reverse_continue()) == (0, 0, 0)
    assert where(fact.back()) == (0, 0, 0)
    assert fact.reason == "before the first instruction"
    assert fact.finished
    assert not fact.at_end


def test_going_to_a_step_that_is_not_there(fact):
    with pytest.raises(IndexError, match="no step 99: the program ended after 25"):
        fact.goto(99)
    with pytest.raises(IndexError, match="step -1 is not recorded: the first is 0"):
        fact.goto(-1)
    assert where(fact.goto(25)) == (25, -1, None)


def test_a_breakpoint_set_before_the_run_stops_it_and_counts(fact):
    point = fact.break_at("fact", 5)
    assert where(fact.continue_()) == (10, 3, 5)
    assert fact.reason == "breakpoint 1 at fact+5, hit 1"
    assert fact.continue_().at_end
    assert point.hits == [10]
    assert where(fact.reverse_continue()) == (10, 3, 5)


def test_a_breakpoint_set_afterwards_knows_its_earlier_hits(fact):
    fact.continue_()
    point = fact.break_at("fact")
    assert point.hits == [0, 3, 6, 9]
    assert [point.count(position) for position in (0, 2, 3, 25)] == [1, 1, 2, 4]
    assert [fact.reverse_continue().position for _ in range(4)] == [9, 6, 3, 0]


def test_conditions_and_ignored_hits(fact):
    fact.break_at("fact", condition="n == 1")
    late = fact.break_at("fact", 7, ignore=2)
    assert where(fact.continue_()) == (6, 2, 0)
    assert where(fact.continue_()) == (20, 1, 7)
    assert fact.reason == "breakpoint 2 at fact+7, hit 3"
    assert fact.reverse_continue().position == 6
    late.enabled = False
    assert fact.continue_().at_end
    assert late.count(25) == 4


def test_a_condition_without_a_value_stops_and_says_so(fact):
    fact.break_at("fact", 2, condition="%2 > 1")
    fact.continue_()
    assert fact.position == 2
    assert "condition failed: '%2 > 1' has no value here" in fact.reason


def test_a_breakpoint_by_instruction_index(countdown):
    assert str(countdown.break_at(pc=3)) == "breakpoint 1 at down+3 (instruction 3)"
    assert where(countdown.continue_()) == (3, 0, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs a function"),
        ({"function": "nothing"}, "no Relax function 'nothing': expected one of fact"),
        ({"function": "host.iadd"}, "no Relax function 'host.iadd'"),
        ({"function": "fact", "pc": 8}, "no instruction 8 in 'fact': expected 0 to 7"),
        ({"function": "fact", "pc": -1}, "no instruction -1"),
        ({"pc": 8}, "no instruction 8: the executable has 0 to 7"),
        ({"function": "fact", "condition": "n +"}, "cannot read"),
    ],
)
def test_a_bad_breakpoint_is_refused(fact, arguments, message):
    with pytest.raises(ValueError, match=message):
        fact.break_at(**arguments)
    assert fact.breakpoints == {}


def test_removing(fact):
    point = fact.break_at("fact", 7)
    with pytest.raises(KeyError, match="no breakpoint or watch 9; there are: 1"):
        fact.remove(9)
    fact.remove(point.number)
    assert fact.continue_().at_end


def test_a_register_watch_stops_after_the_write_and_backwards_before_it(countdown):
    countdown.watch(1)
    stops = [countdown.continue_().position for _ in range(4)]
    assert stops == [1, 3, 6, 9]
    assert countdown.reason == "watch 1: %1 of down changed"
    assert countdown.continue_().at_end
    assert [countdown.reverse_continue().position for _ in range(5)] == [8, 5, 2, 0, 0]


def test_a_register_watch_belongs_to_one_frame(fact):
    fact.watch(3)
    assert where(fact.continue_()) == (22, 0, 4)


def test_a_storage_watch_sees_writes_through_any_view(memory):
    memory.step(3)
    watch = memory.watch_storage(memory.frame.registers[2].storage)
    assert str(watch) == "watch 1 of storage s1"
    assert memory.continue_().position == 4
    assert memory.reason == "watch 1: storage s1 changed"
    assert [r.text.split()[-2:] for r in memory.frame.registers[2:4]] == [
        ["[7.0,", "7.0]"],
        ["[7.0,", "0.0]"],
    ]
    assert memory.continue_().at_end


def test_the_last_writer(memory):
    memory.goto(5)
    assert memory.last_writer(2).step == 3
    assert memory.last_writer(2).cause == "memory"
    assert memory.last_writer(1).cause == "result"
    assert memory.last_writer(4) is None
    assert memory.last_storage_writer(0) == 4
    memory.goto(3)
    assert memory.last_writer(2).step == 1
    assert memory.last_writer(0).cause == "argument"
    assert memory.last_storage_writer(0) is None


def test_the_last_writer_in_another_frame(fact):
    fact.goto(9)
    assert [fact.last_writer(0, depth).step for depth in range(4)] == [0, 2, 5, 8]
    assert [fact.last_writer(1, depth).step for depth in range(3)] == [1, 4, 7]


def test_an_error_of_the_program_is_an_outcome(memory):
    memory.continue_()
    assert memory.at_end
    assert isinstance(memory.error, ZeroDivisionError)
    assert memory.reason.startswith("failed: ZeroDivisionError:")
    assert memory.position == 6
    assert repr(memory).startswith("<DebugSession of main: ended after 6 steps failed: ZeroDiv")
    assert memory.back().top.pc == 5
    assert memory.timeline.events_of(5)[-1].error_type == "ZeroDivisionError"


def test_the_run_uses_the_arguments_themselves_and_replays_use_copies():
    machine = build(
        (
            "main",
            1,
            ["x"],
            lambda ib: [ib.emit_call("host.fill", [ib.r(0), ib.imm(5)]), ib.emit_ret(ib.r(0))],
        )
    )
    x = tensor(np.zeros(2, "float32"))
    session = DebugSession(machine, "main", x)
    session.continue_()
    assert session.result is x
    np.testing.assert_array_equal(x.numpy(), [5, 5])
    np.testing.assert_array_equal(session.goto(0).value(0).numpy(), [0, 0])
    np.testing.assert_array_equal(session.goto(1).value(0).numpy(), [5, 5])
    np.testing.assert_array_equal(session.restart().value(0).numpy(), [0, 0])


def test_full_values_are_copies(memory):
    memory.goto(4)
    for _ in range(2):
        value = memory.value(2)
        np.testing.assert_array_equal(value.numpy(), [7, 7])
        value.array[...] = 9
        memory.goto(5).goto(4)


def test_a_program_that_differs_the_second_time_is_noticed():
    count = itertools.count()
    machine = build(
        (
            "main",
            1,
            ["f"],
            lambda ib: [
                ib.emit_call("vm.builtin.invoke_closure", [ib.vm_state(), ib.r(0)], dst=1),
                ib.emit_ret(ib.r(1)),
            ],
        )
    )
    session = DebugSession(machine, "main", lambda: next(count))
    session.step().step().back()
    with pytest.raises(ReplayError, match="differs from the recorded one at step 1"):
        session.value(1)


def test_registers_and_frames_that_are_not_there(fact):
    for action in (fact.value, fact.last_writer, fact.watch):
        with pytest.raises(IndexError, match=r"no register %4 in fact: it has 4"):
            action(4)
    with pytest.raises(IndexError, match="no frame 1: expected 0 to 0"):
        fact.select(1)
    fact.continue_()
    with pytest.raises(IndexError, match="the program is over"):
        fact.value(0)
    with pytest.raises(ExpressionError, match="the program is over"):
        fact.evaluate("n")


def test_expressions_in_the_selected_frame(fact):
    fact.goto(9)
    assert fact.evaluate("n") == 0
    assert fact.select(1).evaluate("n * 10 + depth") == 21
    assert fact.step().evaluate("n") == 0


def test_changes_are_marked_against_the_frames_own_last_stop(fact):
    fact.goto(2)
    before = fact.top.registers
    fact.break_at("fact", 6)
    fact.continue_()
    assert fact.top.depth == 3
    assert fact.previous_registers == fact.top.entry
    while fact.top.depth:
        fact.continue_()
    assert fact.previous_registers == before


def test_restart_keeps_breakpoints_and_takes_new_arguments(countdown):
    point = countdown.break_at("down", 4)
    countdown.continue_()
    assert point.hits == [11]
    countdown.restart(1)
    assert point.hits == []
    assert where(countdown) == (0, 0, 0)
    assert countdown.continue_().position == 5
    assert countdown.restart().continue_().position == 5


def test_a_bounded_session_says_what_was_dropped():
    machine = build(("down", 1, ["n"], count_down))
    session = DebugSession(machine, "down", 50, limit=20)
    session.continue_()
    assert session.timeline.end == 153
    first = session.timeline.first_step
    assert 153 - 40 <= first <= 153 - 20
    assert session.reverse_continue().position == first
    assert session.reason == f"the first step that is kept; {first} were dropped"
    assert f"(the first {first} steps were dropped)" in str(session)
    assert session.state.frames[0].registers[0].text == "50"
    with pytest.raises(IndexError, match=f"step 0 is not recorded: the first is {first}"):
        session.goto(0)
    assert session.last_writer(0) is None


def test_an_interrupt_stops_a_long_run(countdown, monkeypatch):
    step = type(countdown._execution).step
    calls = itertools.count()

    def interrupted(run):
        if next(calls) == 4:
            raise KeyboardInterrupt
        return step(run)

    monkeypatch.setattr(type(countdown._execution), "step", interrupted)
    countdown.continue_()
    assert countdown.reason == "interrupted"
    assert countdown.position == 4
    assert countdown.continue_().at_end


def test_closing_gives_the_run_up(fact):
    fact.step(4)
    fact.close()
    assert fact.finished
    assert (
        fact.goto(fact.timeline.end).reason == "failed: GeneratorExit: the execution was given up"
    )
    # the machine is free again
    assert fact.vm["fact"](3) == 6


def test_wrong_arguments_are_refused_before_anything_runs():
    machine = build(("down", 1, ["n"], count_down))
    with pytest.raises(RuntimeError, match="expects 1 arguments"):
        DebugSession(machine, "down")
    with pytest.raises(AttributeError, match="no function 'up'"):
        DebugSession(machine, "up")


def test_changes_are_marked_against_the_last_other_step(fact):
    fact.step(4).step()
    marked = fact.previous_registers
    assert marked != fact.frame.registers
    # a look at another frame of the same step, and back, changes nothing
    fact.select(0).select(1)
    assert fact.previous_registers == marked
    assert [visit[:2] for visit in fact.visits] == [(0, None), (4, None), (5, None), (5, 0), (5, 1)]
    assert fact.visited == 5
    fact.restart()
    assert [visit[:2] for visit in fact.visits] == [(0, None)]
