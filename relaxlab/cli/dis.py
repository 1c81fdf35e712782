"""Print an executable as text, whether relaxlab or TVM wrote it.

Why it exists: the compiled program is the one thing that both systems share to the byte, and the
first thing to read when a result surprises. Nothing is run, so that a program which the verifier
refuses can be read too. TVM's counterpart is ``VMExecutable.as_text``.

Examples
--------
``relaxlab dis model.bin --json``
"""

import argparse
import json
from pathlib import Path

from relaxlab.runtime.vm import VMExecutable

__all__ = ["EXAMPLE", "configure", "run"]

EXAMPLE = """
relaxlab dis model.bin
relaxlab dis model.bin --python
relaxlab dis model.bin --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``relaxlab dis``."""
    parser.add_argument("file", metavar="FILE", type=Path, help="an executable or its library blob")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--python", action="store_true", help="print the builder calls that make the program"
    )
    form.add_argument(
        "--json",
        action="store_true",
        help="print an object with the keys as_text, as_python and stats",
    )


def run(args: argparse.Namespace) -> int:
    """Load the file, without running or judging it, and print it."""
    executable = VMExecutable.load_from_file(args.file, verify=False)
    if args.json:
        forms = {
            "as_text": executable.as_text(),
            "as_python": executable.as_python(),
            "stats": executable.stats(),
        }
        print(json.dumps(forms, indent=2))
    elif args.python:
        print(executable.as_python(), end="")
    else:
        print(executable.as_text(), end="")
    return 0
