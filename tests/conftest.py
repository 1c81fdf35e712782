"""Settings and fixtures for every test."""

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

# A loaded machine is slow, not wrong. CI must give the same verdict twice.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where RELAXLAB_FORBID_SKIPS=1, unless a GPU is what is missing."""
    report = yield
    forbidden = os.environ.get("RELAXLAB_FORBID_SKIPS") == "1"
    if forbidden and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if "GPU" not in reason:
            report.outcome = "failed"
            report.longrepr = f"{reason}\n(RELAXLAB_FORBID_SKIPS=1: only a missing GPU may skip)"
    return report


@pytest.fixture(scope="session")
def oracle_python() -> Path:
    """Return a Python that can import the real TVM; it runs in subprocesses, since it may crash.

    It is RELAXLAB_ORACLE where that is set, else the Python that runs the tests.
    """
    python = Path(os.environ.get("RELAXLAB_ORACLE", sys.executable))
    probe = [python, "-c", "import tvm.relax"]
    try:
        subprocess.run(probe, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("no real TVM here: install relaxlab[tvm], or set RELAXLAB_ORACLE to a Python")
    return python
