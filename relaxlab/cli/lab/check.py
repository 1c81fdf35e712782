"""Run the tour through a real server and kernel, and say what happened.

This is what a browser does, without the browser: open a session, connect to the kernel's web
socket, send the cells one by one, and read what comes back. A cell passes when it raises nothing
and its text is the text in the committed notebook, after the same clean-up of addresses and timings
that the notebook tests apply.

Examples
--------
>>> check(find_notebooks(), seconds=50)  # doctest: +SKIP
JupyterLab answers on http://127.0.0.1:40213 (3.1 s)
...
"""

import asyncio
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relaxlab.cli import Stopped
from relaxlab.cli.lab.kernel import CellOutput, Kernel, connected_kernel, text_of
from relaxlab.cli.lab.notebooks import TOUR
from relaxlab.cli.lab.server import ServerError, running_server

__all__ = ["Sanitizer", "check", "first_difference"]

_SANITIZE_FILE = "nbval_sanitize.cfg"
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Sanitizer:
    """Replaces what may differ between two runs: addresses, timings, renderings.

    Attributes
    ----------
    rules
        Pairs of a pattern and its replacement, applied in order.
    """

    rules: tuple[tuple[re.Pattern[str], str], ...]

    @classmethod
    def from_file(cls, path: Path) -> "Sanitizer":
        """Read a file in nbval's format: ``regex:`` and ``replace:`` lines in pairs."""
        pairs = re.findall(
            r"^regex: (.*)$\n^replace: (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE
        )
        return cls(tuple((re.compile(pattern), replacement) for pattern, replacement in pairs))

    def __call__(self, text: str) -> str:
        """Return ``text`` with every rule applied."""
        for pattern, replacement in self.rules:
            text = pattern.sub(replacement, text)
        return text


def check(notebooks: Path, *, port: int | None = None, seconds: float) -> int:
    """Run the tour of ``notebooks`` through a server, on a copy, and print what happened.

    Parameters
    ----------
    notebooks
        Folder with the tour and the sanitize file.
    port
        Port on 127.0.0.1; a free one when None.
    seconds
        The whole check gives up after this long.

    Returns
    -------
    int
        0 when every cell passed, else 1.
    """
    with tempfile.TemporaryDirectory(prefix="relaxlab-check-") as folder:
        root = Path(folder) / "root"
        shutil.copytree(notebooks, root / "notebooks", ignore=shutil.ignore_patterns(".*"))
        return asyncio.run(_check(root, Path(folder), port, seconds))


async def _check(root: Path, scratch: Path, port: int | None, seconds: float) -> int:
    task = asyncio.current_task()
    assert task is not None
    if sys.platform != "win32":
        # A supervisor's SIGTERM must not leave a server behind: unwind as for Ctrl-C.
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGTERM, task.cancel, str(signal.SIGTERM.value)
        )
    started = time.perf_counter()
    try:
        async with asyncio.timeout(seconds):
            failures = await _run_tour(root, scratch, port)
    except TimeoutError:
        print(f"FAILED: not finished after {seconds:.0f} s; everything was stopped")
        return 1
    except ServerError as error:
        print(f"FAILED: {error}")
        return 1
    except asyncio.CancelledError as cancelled:
        print("stopped by a signal; everything was stopped")
        if cancelled.args:
            raise Stopped(int(cancelled.args[0])) from None
        raise KeyboardInterrupt from None
    elapsed = time.perf_counter() - started
    print(f"server and kernel stopped ({elapsed:.1f} s in all)")
    print(f"FAILED: {failures} cells" if failures else "the tour works")
    return 1 if failures else 0


async def _run_tour(root: Path, scratch: Path, port: int | None) -> int:
    clock = time.perf_counter()
    async with running_server(root, scratch, port=port) as server:
        print(f"JupyterLab answers on {server.url} ({time.perf_counter() - clock:.1f} s)")
        path = f"notebooks/{TOUR}"
        # Through the server, so that what is run is what a browser would be given.
        contents = await server.get(f"contents/{path}")
        notebook: Any = contents["content"]
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        clock = time.perf_counter()
        async with connected_kernel(server, path) as kernel:
            print(
                f"kernel {kernel.name} is ready ({time.perf_counter() - clock:.1f} s)", flush=True
            )
            sanitize = Sanitizer.from_file(root / "notebooks" / _SANITIZE_FILE)
            return await _run_cells(kernel, cells, sanitize)


async def _run_cells(kernel: Kernel, cells: list[Any], sanitize: Sanitizer) -> int:
    failures = 0
    for number, cell in enumerate(cells, 1):
        source = text_of(cell["source"])
        clock = time.perf_counter()
        output = await kernel.execute(source)
        elapsed = time.perf_counter() - clock
        problem = _problem(cell, output, sanitize)
        word = "ok" if problem is None else "FAILED"
        first_line = source.strip().partition("\n")[0][:_SHOWN]
        print(f"cell {number:2}/{len(cells)}  {word:6} {elapsed:5.1f} s  {first_line}", flush=True)
        if problem is not None:
            failures += 1
            print("    " + problem.replace("\n", "\n    "), flush=True)
    return failures


def _problem(cell: Mapping[str, Any], output: CellOutput, sanitize: Sanitizer) -> str | None:
    tags = cell.get("metadata", {}).get("tags", [])
    if output.error is not None:
        return None if "raises-exception" in tags else output.error
    if "nbval-ignore-output" in tags:
        return None
    recorded = CellOutput.from_notebook(cell["outputs"])
    for what in ("stdout", "stderr", "results"):
        expected = sanitize(getattr(recorded, what))
        got = sanitize(getattr(output, what))
        if expected != got:
            return f"{what} differs from the committed notebook: {first_difference(expected, got)}"
    return None


def first_difference(expected: str, got: str) -> str:
    """Say in one line where two texts that differ part."""
    old, new = expected.splitlines(), got.splitlines()
    for number, (left, right) in enumerate(zip(old, new, strict=False), 1):
        if left != right:
            return f"line {number}: expected {left!r}, got {right!r}"
    common = min(len(old), len(new))
    verb, line = ("missing", old[common]) if len(old) > common else ("added", [*new, ""][common])
    return f"expected {len(old)} lines, got {len(new)}; {verb}: {line!r}"
