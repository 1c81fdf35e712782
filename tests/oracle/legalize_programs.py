"""Run by a Python with the real TVM: legalize the programs of a JSON file, print scripts as JSON.

usage: legalize_programs.py FILE    FILE: a list of sources; output: a list of scripts or null
"""

import json
import sys
from pathlib import Path

import tvm
from tvm.relax import backend, transform
from tvm.script import from_source


def legalize(source: str) -> str | None:
    try:
        with tvm.target.Target("llvm"):
            mod = backend.DispatchSortScan()(backend.DispatchSampling()(from_source(source)))
            return transform.LegalizeOps()(mod).script()
    except (Exception, SystemExit):  # noqa: BLE001  # whatever it does, the answer is "refused"
        return None


json.dump([legalize(source) for source in json.loads(Path(sys.argv[1]).read_text())], sys.stdout)
