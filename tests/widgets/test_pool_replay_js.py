"""The page's fold of a cache's events equals Python's: see tests/js/pool_replay.test.mjs."""

import json
import re
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from relaxlab.runtime.device import cpu
from relaxlab.runtime.vm import VirtualMachine
from relaxlab.trace import DebugSession, PoolRecorder
from relaxlab.trace.pool_timeline import PoolTimeline
from relaxlab.widgets import PagePool
from tests.trace.engine_runs import crowded
from tests.trace.pool_runs import new_cache, paged_program, random_run, story

REPOSITORY = Path(__file__).resolve().parents[2]
RUNS = 200


def case(recorder, seed):
    timeline = PoolTimeline.of(recorder)
    return {
        "seed": seed,
        "run": PagePool(recorder).pool["runs"][0],
        "states": [asdict(timeline.state(at)) for at in range(len(timeline) + 1)],
        "names": timeline.names(len(timeline)),
        "engines": [plain(timeline.engine(at)) for at in range(len(timeline) + 1)],
    }


def clock_case(tokens, limit):
    """Return a clock and what Python's says of every step, and of every event."""
    cache = new_cache(40)
    PoolRecorder.of(cache)
    machine = VirtualMachine(paged_program(tokens), cpu())
    session = DebugSession(machine, "main", cache, limit=limit).record()
    clock = session.pools[0].since(session.timeline.first_step)
    return {
        "data": clock.to_data(),
        "before": [clock.events_before(step) for step in range(clock.end + 1)],
        "steps": [
            [event, near, clock.step_of(event, near)]
            for event in range(len(clock.recorder.events) + 1)
            for near in range(session.timeline.first_step, clock.end + 1, 5)
        ],
    }


def plain(engine):
    """Return the state of an engine as the page has it: requests are called ``0.0``."""
    if engine is None:
        return None
    found = asdict(engine)
    found["entries"] = {f"{one}.{two}": entry for (one, two), entry in found["entries"].items()}
    found["running"] = [f"{one}.{two}" for one, two in engine.running]
    return found


def test_the_page_folds_as_python_does_on_200_random_runs(tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not here: apt-get install nodejs")
    cases = [case(random_run(seed, operations=25)[1], seed) for seed in range(RUNS)]
    cases.append(case(story(), RUNS))
    cases += [case(crowded(size, policy)[1], size) for size, policy in ((48, "lru"), (64, "lfu"))]
    # recordings whose first events were dropped, of caches and of an engine
    cases += [case(random_run(seed, limit=20)[1], seed) for seed in range(20)]
    recorder = crowded(48, "lru")[1]
    full = PoolTimeline.of(recorder)
    recorder.events[:] = full.since(len(full) // 2)
    cases.append(case(recorder, 0))
    path = tmp_path / "cases.json"
    clocks = [clock_case(3, None), clock_case(40, 20), clock_case(40, 3)]
    path.write_text(json.dumps({"cases": cases, "clocks": clocks}), encoding="utf-8")
    done = subprocess.run(
        [node, "--test", "tests/js/pool_replay.test.mjs"],
        cwd=REPOSITORY,
        env={"PATH": "", "RELAXLAB_CASES": str(path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    # the modules' texts are in the addresses of stack traces
    assert done.returncode == 0, re.sub(r"base64,[\w+/=]+", "…", done.stdout)[-6000:]
