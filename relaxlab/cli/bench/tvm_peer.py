"""The same work in Apache TVM, timed in a process of its own.

It runs in a subprocess because it can crash: with the Python that RELAXLAB_ORACLE names, else with
this one, so that the extra ``tvm`` decides whether it is there; on one thread, as ours does. What
it runs is a few lines of the public API below.

Examples
--------
>>> run_tvm("result(1.5)") in (1.5, None)
True
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

__all__ = ["run_tvm"]

_PRELUDE = """
import json, statistics, sys, time
import numpy as np
import tvm
from tvm import relax

def measure(function, rounds=7, seconds=0.05):
    function()
    start = time.perf_counter(); function()
    count = max(1, int(seconds / max(time.perf_counter() - start, 1e-9)))
    results = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            function()
        results.append((time.perf_counter() - start) / count)
    return statistics.median(results)

def result(value):
    print("RESULT", json.dumps(value))

TEXT = sys.stdin.read()
"""


def run_tvm(script: str, text: str = "", *, timeout: float = 300.0) -> float | None:
    """Run a script that calls ``result(number)`` with TVM at hand; None if TVM is not installed.

    Parameters
    ----------
    script
        Python source; ``tvm``, ``relax``, ``np``, ``measure`` and ``TEXT`` are defined.
    text
        What ``TEXT`` is.
    timeout
        Seconds after which the script is given up.

    Raises
    ------
    RuntimeError
        If TVM is installed and the script fails; the message is the end of its output.
    """
    python = os.environ.get("RELAXLAB_ORACLE")
    if python is None and find_spec("tvm") is None:
        return None
    done = subprocess.run(
        [python or sys.executable, "-c", _PRELUDE + script],
        input=text,
        env={**os.environ, "TVM_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return float(json.loads(line.removeprefix("RESULT ")))
    if "No module named 'tvm'" in done.stderr:
        return None
    raise RuntimeError(f"the TVM peer failed: {done.stderr.strip()[-500:]}")
