"""A small fuzzing run over every loader; `python -m tests.fuzz` makes long ones."""

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.mutate import mutate
from tests.fuzz.targets import TARGETS

REPOSITORY = Path(__file__).resolve().parents[2]
COUNT = 150


@pytest.fixture(scope="module")
def report():
    """Return what a small run prints; it has its own process, whose memory is bounded."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--count", str(COUNT), "--seed", "20260801"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", TARGETS)
def test_changed_files_are_accepted_or_refused_with_a_named_error(report, name):
    (line,) = re.findall(rf"^{name}: {COUNT} files.*$", report, re.MULTILINE)
    assert "BUG" not in line
    assert "accepted" in line, "no changed file gets past the first check"
    assert "refused" in line, "the changes do no harm"


@pytest.mark.parametrize("name", TARGETS)
def test_the_files_to_start_from_are_accepted(name):
    target = TARGETS[name]
    seeds = target.seeds()
    assert seeds
    accepted = 0
    for data in seeds:
        try:
            accepted += target.use(data)
        except target.errors:
            assert name == "run"  # some recorded programs are refused, or want their kernels
    assert accepted >= len(seeds) / 2


def test_changes_are_many_and_depend_on_the_seed_alone():
    data = bytes(range(256))
    made = [mutate(random.Random(seed), data, [data]) for seed in range(200)]
    assert made == [mutate(random.Random(seed), data, [data]) for seed in range(200)]
    assert len(set(made)) > 180
    assert {len(one) < 256 for one in made} == {len(one) > 256 for one in made} == {True, False}
    assert mutate(random.Random(0), b"", [b""]) is not None
