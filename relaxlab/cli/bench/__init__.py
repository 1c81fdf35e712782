"""Measure relaxlab beside its peers, as ratios in one run.

Why it exists: a claim about speed is a command that anybody can run. Peers are used when they are
installed and named when they are not. TVM has no counterpart.

Examples
--------
>>> from relaxlab.cli import main
>>> main(["bench", "vm"])  # doctest: +SKIP
"""

import argparse
import json
from collections.abc import Iterator
from importlib import import_module

from relaxlab.cli import Mistake
from relaxlab.cli.bench.rows import Row

__all__ = ["EXAMPLE", "configure", "run"]

EXAMPLE = """
relaxlab bench vm
relaxlab bench vm llm --json
"""

#: Groups of rows in the order they are run; each is a module of this package with ``rows()``.
_GROUPS = ("vm", "kernels", "compile", "kv", "llm", "views")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the groups to measure."""
    parser.add_argument(
        "groups", nargs="*", metavar="GROUP", help=f"any of: {', '.join(_GROUPS)} (default all)"
    )
    parser.add_argument("--json", action="store_true", help="print a list of rows as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure and print; the exit code is 1 if a bar that could be judged is missed.

    Raises
    ------
    Mistake
        If a group is unknown.
    """
    unknown = [group for group in args.groups if group not in _GROUPS]
    if unknown:
        raise Mistake(f"unknown group {unknown[0]!r}: expected any of {', '.join(_GROUPS)}")
    rows: list[Row] = []
    for row in _measured(args.groups or list(_GROUPS)):
        rows.append(row)
        if not args.json:
            print(_line(row), flush=True)
    if args.json:
        print(json.dumps([row.record() for row in rows], indent=1))
    return 1 if any(row.ok is False for row in rows) else 0


def _measured(groups: list[str]) -> Iterator[Row]:
    for group in groups:
        yield from import_module(f"{__name__}.{group}").rows()


def _line(row: Row) -> str:
    """Return a row as one aligned line of text."""
    verdict = {True: "ok", False: "MISSED", None: ""}[row.ok]
    text = f"{row.name:<28} {row.ours:>10.4g} {row.unit:<6}"
    if row.peer is not None:
        if row.peer_value is None:
            text += f" {row.peer}: not installed"
        else:
            text += f" {row.peer}: {row.peer_value:.4g} {row.unit}  ratio {row.ratio:.2f}"
    if row.bar is not None:
        text += f"  (bar {row.bar.relation} {row.bar.value:g}) {verdict}"
    return text.rstrip()
