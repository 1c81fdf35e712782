"""Recordings as Chrome traces: every step and call, and the pages in use, are in them."""

import json

import pytest

from relaxlab.trace import PoolTimeline, Timeline
from relaxlab.trace.perfetto import pool_trace, steps_trace
from relaxlab.widgets import PagePool, VMStepper
from tests.trace.conftest import fact  # noqa: F401
from tests.trace.engine_runs import crowded
from tests.trace.pool_runs import random_run, story


def test_a_step_is_a_slice_inside_the_slices_of_its_frames(fact, tmp_path):  # noqa: F811
    stepper = VMStepper(fact)
    trace = json.loads(stepper.to_perfetto(tmp_path / "steps.json").read_text())["traceEvents"]
    timeline = stepper.session.timeline
    steps = [one for one in trace if one["cat"] == "instruction"]
    frames = [one for one in trace if one["cat"] == "frame"]
    assert [(one["ts"], one["dur"]) for one in steps] == [(at, 1) for at in range(timeline.end)]
    for one in steps:
        around = [
            frame["name"]
            for frame in frames
            if frame["ts"] <= one["ts"] < frame["ts"] + frame["dur"]
        ]
        stack = [frame.function for frame in timeline.state(one["ts"]).frames]
        assert sorted(around) == sorted(stack)
        assert one["args"]["pc"] == timeline.instruction(one["ts"]).pc
    assert len(frames) == 4  # fact of 3, 2, 1 and 0


@pytest.mark.parametrize("seed", range(6))
def test_the_pages_in_use_are_those_of_the_cache(seed):
    timeline = PoolTimeline.of(random_run(seed)[1])
    counted = {
        one["ts"]: one["args"]["pages"]
        for one in pool_trace(timeline)["traceEvents"]
        if one["ph"] == "C"
    }
    used = 0
    for position in range(len(timeline) + 1):
        used = counted.get(position, used)
        assert used == timeline.num_pages - timeline.state(position).available


def test_calls_follow_each_other_and_an_engine_is_told(tmp_path):
    view = PagePool(story())
    trace = json.loads(view.to_perfetto(tmp_path / "pool.json").read_text())["traceEvents"]
    calls = [one for one in trace if one["ph"] == "X"]
    assert [one["ts"] for one in calls] == view.timelines[0].calls
    assert [one["name"] for one in calls if one["cat"] == "refused"] == ["fork_sequence(77, 3)"]
    told = pool_trace(PoolTimeline.of(crowded(48)[1]))["traceEvents"]
    evicted = [one for one in told if one["name"] == "Evicted"]
    assert evicted
    assert all("is evicted: lru" in one["args"]["what"] for one in evicted)


def test_an_empty_recording_has_no_steps():
    assert steps_trace(Timeline(), str)["traceEvents"] == []
