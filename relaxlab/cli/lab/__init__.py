"""Open the notebooks in JupyterLab.

Why it exists: the first command a reader types must end in a running notebook. It starts JupyterLab
on loopback, with a token, at the tour. ``--check`` starts it headless instead, runs every cell of
the tour through the server as a browser would, and says what happened; a class room's machine, a
container and CI use it to know that the whole stack works. TVM has no counterpart.

Examples
--------
``relaxlab lab --check``
"""

import argparse
import os
import subprocess
from pathlib import Path

from relaxlab.cli import Mistake
from relaxlab.cli.lab.check import check
from relaxlab.cli.lab.notebooks import TOUR, find_notebooks, work_folder
from relaxlab.cli.lab.server import lab_command, port_is_free

__all__ = ["EXAMPLE", "configure", "run"]

EXAMPLE = """
relaxlab lab
relaxlab lab --no-browser --port 8900
relaxlab lab --check
"""

_CHECK_SECONDS = 50.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``relaxlab lab``."""
    parser.add_argument(
        "--check",
        action="store_true",
        help="start headless, run the tour through the server, report, and stop everything",
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address instead of opening it"
    )
    parser.add_argument(
        "--port",
        type=int,
        metavar="N",
        help="listen here or not at all (default the first free port from 8888)",
    )


def run(args: argparse.Namespace) -> int:
    """Start JupyterLab, or check that it works.

    Raises
    ------
    Mistake
        If the port is no port, or is taken.
    """
    port: int | None = args.port
    if port is not None and not 0 < port < 65536:
        raise Mistake(f"--port must be between 1 and 65535, got {port}")
    if port is not None and not port_is_free(port):
        raise Mistake(
            f"port {port} is taken on 127.0.0.1; choose another one, or leave --port out to get a "
            "free one"
        )
    source = find_notebooks()
    if args.check:
        return check(source, port=port, seconds=_CHECK_SECONDS)
    root, notebooks = work_folder(source, Path.cwd())
    options = [f"--LabApp.default_url=/lab/tree/{(notebooks / TOUR).as_posix()}"]
    if args.no_browser:
        options.append("--no-browser")
    if port is not None:
        options += [f"--port={port}", "--ServerApp.port_retries=0"]
    command = lab_command(root, *options)
    print(f"Starting JupyterLab in {root}; Ctrl-C stops it.", flush=True)
    if os.name == "posix":
        # Become the server: signals, the terminal and the exit code are then JupyterLab's own.
        os.execv(command[0], command)
    return subprocess.call(command)  # pragma: no cover - other platforms
