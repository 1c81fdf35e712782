"""Record one call and write it as a page that can be stepped in any browser.

Why it exists: a run should be something one can send to a colleague. The page holds the program,
every step and every register, works offline and without Python, and needs no server. A program
that fails in the middle is recorded up to its failure; one that its own checks refuse to run with
these arguments leaves no file. Kernels in a library that TVM exported are called, where
``apache-tvm-ffi`` is installed. TVM has no counterpart.

Examples
--------
``relaxlab trace model.bin main "[1.0, 2.0]" -o run.html``
"""

import argparse
import sys
from pathlib import Path
from typing import Final

from relaxlab.cli import Mistake
from relaxlab.cli._files import writing
from relaxlab.cli._program import configure_program, open_call
from relaxlab.cli._progress import progress
from relaxlab.runtime.vm.observer import CallStarted
from relaxlab.trace import DebugSession
from relaxlab.widgets import VMStepper

__all__ = ["EXAMPLE", "configure", "run"]

EXAMPLE = """
relaxlab trace model.bin main "[1.0, 2.0]" 3 -o run.html
relaxlab trace model.so main x.npy w.npy -o run.html
relaxlab trace model.bin main x.npy 3 --limit 50000 -o run.html
"""

_CHECKS: Final = ("vm.builtin.check_", "vm.builtin.match_")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``relaxlab trace``."""
    configure_program(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT.html",
        type=Path,
        required=True,
        help="the page to write; an existing file is replaced, and only by a whole one",
    )
    parser.epilog = (
        f"{parser.epilog}\n\n"
        "The exit code is 1 if the program failed; the page then ends at the failure."
    )


def run(args: argparse.Namespace) -> int:
    """Run the program once, write the page, and return 1 if the program failed."""
    output: Path = args.output
    if output.suffix not in (".html", ".htm"):
        raise Mistake(f"expected the name of a page, like run.html, after -o; got {output}")
    if not output.absolute().parent.is_dir():
        raise Mistake(f"no folder {output.absolute().parent} to write {output.name} to")
    if output.is_dir():
        raise Mistake(f"{output} is a folder: name a page in it after -o, like {output}/run.html")
    machine, values = open_call(args)
    with DebugSession(machine, args.function, *values, limit=args.limit) as session:
        with progress(f"recording {args.function}"):
            session.record()
        error = session.error
        if error is not None and _refused_its_arguments(session):
            raise error
        stepper = VMStepper(session)
        stepper.goto(session.timeline.first_step)
        with writing(output):
            stepper.to_html(output)
        steps = f"{len(session.timeline)} step{'' if len(session.timeline) == 1 else 's'}"
        dropped = session.timeline.first_step
        kept = f"the last {steps} of {session.timeline.end}" if dropped else steps
        print(f"{output}: {kept}, {output.stat().st_size / 1e6:.1f} MB")
        if error is None:
            return 0
        reason = " ".join(str(error).split())
        print(f"relaxlab: the program failed: {type(error).__name__}: {reason}", file=sys.stderr)
        return 1


def _refused_its_arguments(session: DebugSession) -> bool:
    """Whether the run ended in a check of the entry function, before any kernel was called."""
    called = [event for event in session.timeline.events if isinstance(event, CallStarted)]
    return (
        bool(called)
        and called[-1].depth == 0
        and called[-1].callee.startswith(_CHECKS)
        and all(call.callee.startswith("vm.builtin.") for call in called)
    )
