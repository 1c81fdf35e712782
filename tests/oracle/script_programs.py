"""Run by a Python with the real TVM: read scripts from a JSON file, print what it makes of them.

usage: script_programs.py FILE    FILE: a list of texts; output: a list of texts
"""

import json
import sys
from pathlib import Path

from tvm.script import from_source


def again(text: str) -> str:
    try:
        return from_source(text, check_well_formed=False).script()
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever it does is the answer
        return f"error: {error}"


json.dump([again(text) for text in json.loads(Path(sys.argv[1]).read_text())], sys.stdout)
