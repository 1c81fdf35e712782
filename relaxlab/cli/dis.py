"""Print an executable as text, whether relaxlab or TVM wrote it.

Why it exists: the compiled program is the one thing that both systems share to the byte, and the
first thing to read when a result surprises. Nothing is run, so that a program which the verifier
refuses can be read too, and a shared library is read without being loaded. TVM's counterpart is
``VMExecutable.as_text``.

Examples
--------
``relaxlab dis model.bin --json``
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from relaxlab.cli._files import FILE_HELP, PROGRAM, reading
from relaxlab.runtime.vm import VMExecutable
from relaxlab.runtime.vm.listing import listing, words_of
from relaxlab.runtime.vm.section_map import section_map

__all__ = ["EXAMPLE", "configure", "run"]

EXAMPLE = """
relaxlab dis model.bin
relaxlab dis model.so --words
relaxlab dis model.rlx --sections
relaxlab dis model.bin --python
relaxlab dis model.bin --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``relaxlab dis``."""
    parser.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        help=FILE_HELP,
    )
    parser.add_argument(
        "--python", action="store_true", help="print the builder calls that make the program"
    )
    parser.add_argument(
        "--words", action="store_true", help="print every word in hexadecimal, with its meaning"
    )
    parser.add_argument(
        "--sections", action="store_true", help="print where the parts lie in the file"
    )
    parser.add_argument("--stats", action="store_true", help="print the constants and functions")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print an object with the keys as_text, as_python and stats, and those of the "
        "options sections and words",
    )


def run(args: argparse.Namespace) -> int:
    """Load the file, without running or judging it, and print it."""
    with reading(args.file, PROGRAM):
        data = args.file.read_bytes()  # once: a pipe has it once
        executable = VMExecutable.load_from_bytes(data, verify=False, origin=args.file.name)
    if args.json:
        print(json.dumps(_forms(executable, data, args), indent=2))
        return 0
    if args.sections:
        print("  offset    size  section              content")
        print(*section_map(data, args.file.name), sep="\n")
    if args.stats:
        print(executable.stats(), end="")
    if args.python:
        print(executable.as_python(), end="")
    if args.words:
        print(listing(executable), end="")
    if not (args.sections or args.stats or args.python or args.words):
        print(executable.as_text(), end="")
    return 0


def _forms(executable: VMExecutable, data: bytes, args: argparse.Namespace) -> dict[str, Any]:
    forms: dict[str, Any] = {
        "as_text": executable.as_text(),
        "as_python": executable.as_python(),
        "stats": executable.stats(),
    }
    if args.sections:
        forms["sections"] = [asdict(section) for section in section_map(data, args.file.name)]
    if args.words:
        forms["words"] = [
            {**asdict(word), "hex": word.hex}
            for pc in range(executable.num_instructions)
            for word in words_of(executable, pc, executable.instruction(pc))
        ]
    return forms
