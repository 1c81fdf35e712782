"""Check whether an executable is safe to run, and say where it is not.

Why it exists: bytecode may be altered, cut or made by a program with a bug, and the machine trusts
what it runs. Every load verifies; this command shows all findings, each with its function,
instruction, word and rule, and what can never run besides. TVM has no counterpart.

Examples
--------
``relaxlab verify model.bin``
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from relaxlab.cli import Mistake
from relaxlab.cli._files import FILE_HELP, load_unverified
from relaxlab.runtime.vm.verify import NOTES, RULES, Finding, find_notes, find_problems

__all__ = ["EXAMPLE", "configure", "run"]

EXAMPLE = """
relaxlab verify model.bin
relaxlab verify model.so --json
relaxlab verify --rules
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``relaxlab verify``."""
    parser.add_argument("file", metavar="FILE", type=Path, nargs="?", help=FILE_HELP)
    parser.add_argument(
        "--json",
        action="store_true",
        help="print an object with the keys ok, findings and notes",
    )
    parser.add_argument("--rules", action="store_true", help="print what every rule demands")
    parser.epilog = f"{parser.epilog}\n\nThe exit code is 0 if the program is safe, else 1."


def run(args: argparse.Namespace) -> int:
    """Print every finding; return 1 if there is one."""
    if args.rules:
        for name, text in sorted({**RULES, **NOTES}.items()):
            print(f"{name:20} {text}")
        return 0
    if args.file is None:
        raise Mistake("expected a FILE (see relaxlab verify --help)")
    executable = load_unverified(args.file)
    findings = find_problems(executable)
    notes = [] if findings else find_notes(executable)
    if args.json:
        rows = {"findings": _rows(findings), "notes": _rows(notes)}
        print(json.dumps({"ok": not findings, **rows}, indent=2))
        return 1 if findings else 0
    for finding in findings:
        print(finding)
    for note in notes:
        print(f"note: {note}")
    if findings:
        print(f"{args.file}: not safe to run, {_count(len(findings), 'finding')}")
        return 1
    size = _count(len(executable.func_table), "function")
    print(f"{args.file}: safe to run; {size}, {_count(executable.num_instructions, 'instruction')}")
    return 0


def _rows(findings: list[Finding]) -> list[dict[str, object]]:
    return [asdict(finding) for finding in findings]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
