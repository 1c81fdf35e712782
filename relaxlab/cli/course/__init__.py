"""Hand out the course: notebooks for students, or a web site of all of it.

``release`` writes the notebooks without solutions and outputs, ready for a class (they keep the
metadata of nbgrader). ``site`` runs every notebook and writes it as a page with its views working,
offline, without a kernel. TVM has no counterpart.

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


def run(args: argparse.Namespace) -> int:
    """Write the folder and say what is in it."""
    written = release(args.out) if args.what == "release" else write_site(args.out)
    print(f"{args.out}: {', '.join(path.name for path in written)}")
    return 0
