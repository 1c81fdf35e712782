"""Random operations on a recurrent state, within exact(), and on the real TVM's: all the same.

RELAXLAB_RNN_SEEDS="first count" runs more programs than the default.
"""

import json
import os
import subprocess
from pathlib import Path

from relaxlab import runtime
from relaxlab.runtime.kv import exact
from tests.oracle.rnn_programs import run

PROGRAM = Path(__file__).with_name("rnn_programs.py")


class Ours:
    """Our machine."""

    get = staticmethod(runtime.get_global_func)
    shape = staticmethod(runtime.ShapeTuple)
    tensor = staticmethod(runtime.tensor)

    @staticmethod
    def function(kernel):
        return kernel

    @staticmethod
    def empty(shape):
        return runtime.empty(shape, "float32")

    @staticmethod
    def array(tensor):
        return tensor.array


def test_random_programs(oracle_python, tmp_path):
    first, count = map(int, os.environ.get("RELAXLAB_RNN_SEEDS", "0 15").split())
    out = tmp_path / "theirs.json"
    command = [str(oracle_python), str(PROGRAM), str(first), str(count), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = json.loads(out.read_text(encoding="utf-8"))
    for number, expected in enumerate(theirs):
        with exact():
            ours = run(first + number, Ours)
        assert ours == expected, f"program {first + number}"
