"""`relaxlab lab --check` on the real tour, as CI and a class room's machine run it."""

import subprocess
import sys
import time


def test_the_tour_passes_the_check_in_time():
    clock = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "relaxlab", "lab", "--check"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.perf_counter() - clock < 55
    assert done.stdout.rstrip().endswith("the tour works")
    assert done.stderr == ""
