"""Compare two executables, function by function.

Why it exists: after a change of the compiler, or beside another compiler, the question is which
instruction became another one. Constants are compared by content and callees by name, so that a
shifted index is no difference; kernels are compared where both files keep them as text. TVM has no
counterpart.

Examples
--------
``relaxlab diff before.bin after.bin``
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from relaxlab.cli._files import FILE_HELP, load_unverified
from relaxlab.runtime.vm.compare import compare

__all__ = ["EXAMPLE", "configure", "run"]

EXAMPLE = """
relaxlab diff before.bin after.bin
relaxlab diff model.so model.rlx
relaxlab diff before.bin after.bin --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``relaxlab diff``."""
    parser.add_argument("first", metavar="A", type=Path, help=FILE_HELP)
    parser.add_argument("second", metavar="B", type=Path, help="another one")
    parser.add_argument("--json", action="store_true", help="print a list of differences")
    parser.epilog = f"{parser.epilog}\n\nThe exit code is 0 if both mean the same, else 1."


def run(args: argparse.Namespace) -> int:
    """Print what differs; return 1 if anything does."""
    one, two = load_unverified(args.first), load_unverified(args.second)
    differences = compare(one, two)
    if args.json:
        print(json.dumps([asdict(one) for one in differences], indent=2))
    elif differences:
        print(f"- {args.first}\n+ {args.second}\n")
        print(*differences, sep="\n\n")
    else:
        same = "to the byte" if one.save_to_bytes() == two.save_to_bytes() else "in meaning"
        print(f"the programs are the same {same}")
    return 1 if differences else 0
