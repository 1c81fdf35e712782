"""Prefill and decode in two real processes, with MPI between them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from relaxlab.models.reference import ReferenceLlama, greedy
from relaxlab.serve.page_memory import breaks
from tests.models.test_generate import TOKENS
from tests.serve.two_processes_prompts import PROMPTS

PROGRAM = Path(__file__).with_name("two_processes.py")
ROOT = Path(__file__).parents[2]


def _run(case, model="tiny"):
    alone = ["-disable-auto-cleanup"] if case == "death" else []
    return _launch(["mpiexec", *alone, "-n", "2", sys.executable, str(PROGRAM), case, model])


def _launch(command):
    """Run a program of two processes; return the JSON that it prints."""
    pytest.importorskip("mpi4py", reason="two processes need relaxlab[mpi]")
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    if shutil.which("mpiexec", path=search) is None:
        pytest.skip("two processes need an mpiexec, from Debian or PyPI (mpich)")
    environment = {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "PATH": search}
    command[0] = shutil.which(command[0], path=search) or command[0]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | environment,
        cwd=ROOT,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stdout + done.stderr
    return json.loads(lines[-1])


@pytest.fixture(scope="module")
def expected(tiny_model):
    plain = ReferenceLlama(tiny_model.config, dict(tiny_model.weights))
    return [list(greedy(plain, list(prompt), 12)) for prompt in PROMPTS]


def test_two_processes_give_the_tokens_of_one(expected, tiny_model):
    report = _run("plain")
    assert report["outputs"] == expected
    assert report["errors"] == []
    assert report["empty"]
    assert 4 <= report["served"] <= 5
    c = tiny_model.config
    token = 2 * c.layers * c.kv_heads * c.head_dim * 4
    assert report["bytes"] % token == 0
    assert report["bytes"] >= token * (len(PROMPTS[0]) - 1)


def test_engines_of_a_notebook_are_two_such_processes(tiny_model):
    pytest.importorskip("ipyparallel", reason="engines of a notebook need relaxlab[mpi]")
    report = _launch([sys.executable, str(PROGRAM.with_name("with_ipyparallel.py"))])
    plain = ReferenceLlama(tiny_model.config, dict(tiny_model.weights))
    prompt = list(b"the pages of a book are turned")
    assert report == {"served": 1, "output": list(greedy(plain, prompt, 12))}


def test_smollm2_across_two_processes(smollm2_path, smollm2):
    report = _run("plain", str(smollm2_path))
    assert report["outputs"] == [[int(token) for token in TOKENS.split()]]
    assert report["served"] == 1
    assert report["bytes"] == 4 * 30 * 2 * 3 * 64 * 4


def test_another_layout_is_refused_before_anything_moves(expected):
    report = _run("mismatch")
    assert report["bytes"] == 0
    assert report["errors"]
    assert all("layouts differ" in error for error in report["errors"])
    assert report["outputs"] == expected  # computed here instead
    assert report["empty"]


def test_a_process_that_dies_leaves_the_pool_whole(expected):
    report = _run("death")
    assert any("gone" in error for error in report["errors"])
    assert report["outputs"] == expected
    assert report["empty"]


def test_pages_of_a_cancelled_prompt_stay_pinned_until_it_has_come(expected):
    report = _run("cancel")
    assert report["outputs"][0] == []
    assert report["outputs"][1:] == expected[1:]
    assert report["empty"]


def test_rows_travel_in_runs_that_end_with_pages():
    slots = np.array([4, 5, 6, 7, 8, -1, -1, 3, 2, 9], np.int32)
    receivers = np.array([1, 1, 1, 1, 1, -1, -1, 1, 1, 2], np.int32)
    assert np.flatnonzero(breaks(slots, receivers, 4)).tolist() == [3, 4, 6, 7, 8]
