"""The compact trace: what a view finds in it."""

import json

import numpy as np
import pytest

from relaxlab.runtime.tensor import tensor
from relaxlab.trace import DebugSession, Timeline, compact_trace, line_text, state_at
from tests.trace.conftest import build, count_down


def test_the_whole_trace_of_a_short_run():
    session = DebugSession(build(("down", 1, ["n"], count_down)), "down", 1)
    session.continue_()
    assert session.trace() == {
        "version": 1,
        "functions": [
            ["down", 1, 0, 5, ["n"], 2],
            ["vm.builtin.copy", 0, 0, 0, [], 0],
            ["host.iadd", 0, 0, 0, [], 0],
        ],
        "code": {
            "pc": [0, 1, 2, 3, 4],
            "text": [
                "call  vm.builtin.copy  in: %0           dst: %1",
                "If    %1, 3",
                "call  host.iadd        in: %1, i-1      dst: %1",
                "goto  -2",
                "ret   %1",
            ],
            "op": ["call", "if", "call", "goto", "ret"],
            "operands": [["%0"], ["%1"], ["%1", "i-1"], [], ["%1"]],
            "words": [
                ["1", "1", "1", "1", "0"],
                ["4", "1", "3"],
                ["1", "1", "2", "2", "1", "1ffffffffffffff"],
                ["3", "fffffffffffffffe"],
                ["2", "1"],
            ],
        },
        "constants": {},
        "values": [["int", "1"], ["none", "None"], ["int", "0"]],
        "first_step": 0,
        "start": [],
        "before": [1, 0, 0, -1, 2, 0, 1],
        "pc": [0, 1, 2, 3, 1, 4, -1],
        "depth": [0, 0, 0, 0, 0, 0, -1],
        "ops": [[0, 0, 1, 0], [], [0, 0, 1, 2], [], [], [2]],
        "lines": [
            *([0, 1], [1, 1], [2, 1], [3, 2], [4, 1, -1], [5, 0]),
            *([6, 1], [7, 1], [8, 0, 4], [9, 4], [10, 0], [11, 0]),
        ],
        "templates": [
            "Take %0 = \x1a (the same value, nothing is copied); the result goes to %1.",
            "vm.builtin.copy gave %1 = \x1a.",
            "%1 = \x1a, so go on with the next instruction.",
            "%1 was true: went to instruction \x1a.",
            "Call host.iadd with %1 = \x1a and \x1a; the result goes to %1.",
            "host.iadd gave %1 = \x1a.",
            "Go back to instruction \x1a.",
            "Went to instruction \x1a.",
            "%1 = \x1a, so go to instruction \x1a.",
            "%1 was false: went to instruction \x1a.",
            "Return %1 = \x1a to the host.",
            "down returned \x1a to the host.",
        ],
        "say": [0, 2, 4, 6, 8, 10, 11],
        "did": [1, 3, 5, 7, 9, 11],
        "console": [],
        "outcome": {"result": 2},
    }


def test_a_trace_of_a_run_that_is_not_over(countdown):
    countdown.step(2)
    trace = countdown.trace()
    assert trace["pc"] == [0, 1, 2]
    assert len(trace["ops"]) == 2
    assert trace["outcome"] == {}
    assert line_text(trace, trace["say"][2]).startswith("Call host.iadd with %1 = 3")
    assert state_at(trace, 2) == countdown.timeline.state(2)


def test_a_trace_of_a_failure(memory):
    memory.continue_()
    trace = json.loads(json.dumps(memory.trace()))
    assert trace["outcome"]["error"] == "ZeroDivisionError"
    assert line_text(trace, trace["say"][-1]).startswith("ZeroDivisionError: ")
    assert trace["constants"] == {
        "0": "'global'",
        "1": "shape (32,)",
        "2": "uint8",
        "3": "shape (2,)",
        "4": "float32",
    }
    for position in range(7):
        assert state_at(trace, position) == memory.timeline.state(position)


def test_numbers_that_javascript_cannot_hold_travel_as_text():
    array = np.array([2**60 + 1, -(2**60) - 1, 5], "int64")
    session = DebugSession(
        build(("f", 1, ["x"], lambda ib: ib.emit_ret(ib.r(0)))), "f", tensor(array)
    )
    trace = json.loads(json.dumps(session.trace()))
    (encoded,) = (value for value in trace["values"] if value[0] == "tensor")
    assert encoded[6] == [str(2**60 + 1), str(-(2**60) - 1), 5]
    assert state_at(trace, 0) == session.timeline.state(0)


@pytest.mark.parametrize("values", [[True, False], [1, 0], [1.0, 0.0]])
def test_values_that_python_calls_equal_stay_apart(values):
    machine = build(("f", 2, ["x", "y"], lambda ib: ib.emit_ret(ib.r(0))))
    session = DebugSession(machine, "f", 1, np.array(values))
    trace = json.loads(json.dumps(session.trace()))
    (encoded,) = (value for value in trace["values"] if value[0] == "tensor")
    assert [type(one) for one in encoded[6]] == [type(one) for one in values]


def test_positions_outside_are_refused(countdown):
    trace = countdown.trace()
    for position in (-1, 1):
        with pytest.raises(IndexError, match=f"position {position} is outside the trace: 0 to 0"):
            state_at(trace, position)


def test_an_empty_recording():
    session = DebugSession(build(("f", 0, [], lambda ib: ib.emit_ret(ib.void_arg()))), "f")
    trace = compact_trace(session.vm.executable, Timeline())
    assert trace["ops"] == []
    assert state_at(trace, 0).frames == ()


def test_ten_thousand_steps_fit_into_330_kilobytes(countdown):
    countdown.restart(3_333)
    countdown.continue_()
    trace = countdown.trace()
    assert len(trace["ops"]) == 10_002
    size = len(json.dumps(trace, separators=(",", ":")))
    assert size < 330_000
