"""Hand out the course: notebooks for students, or a web site of all of it.

``release`` writes the notebooks without solutions and outputs, ready for a class. ``site`` runs
every notebook and writes it as a page with its views working, offline, without a kernel; exercises
are there without solutions. With ``--solutions`` both leave them in. TVM has no counterpart.

The notebooks are in nbgrader's format. To grade with it, put ``release --solutions`` into the
course's ``source`` folder and run ``nbgrader generate_assignment``; what students hand in is then
graded by ``nbgrader autograde``, whether they were given its copies or those of ``release``.

Examples
--------
``relaxlab course release handout``
"""

import argparse
from pathlib import Path

from relaxlab.cli.course.release import release
from relaxlab.cli.course.site import write_site

__all__ = ["EXAMPLE", "configure", "run"]

EXAMPLE = """
relaxlab course release handout
relaxlab course release --solutions teacher
relaxlab course site public
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``relaxlab course``."""
    parser.add_argument(
        "what",
        choices=["release", "site"],
        help="release: the students' notebooks; site: all notebooks as web pages",
    )
    parser.add_argument("out", metavar="OUT", type=Path, help="a folder that does not exist yet")
    parser.add_argument(
        "--solutions",
        action="store_true",
        help="leave the solutions in: for teachers, and as nbgrader's source",
    )


def run(args: argparse.Namespace) -> int:
    """Write the folder and say what is in it."""
    write = release if args.what == "release" else write_site
    written = write(args.out, solutions=args.solutions)
    print(f"{args.out}: {', '.join(path.name for path in written)}")
    return 0
