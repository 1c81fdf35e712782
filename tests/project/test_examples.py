"""The examples in every command's ``--help`` run as they are printed."""

import io
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from relaxlab.cli import command_names, main
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.relax.vm_build import build
from relaxlab.widgets import demos

LIBRARY = Path(__file__).parents[1] / "golden" / "vm" / "library.so"
EXAMPLES = [
    line
    for name in command_names()
    for line in import_module(f"relaxlab.cli.{name}").EXAMPLE.strip().splitlines()
]
# How an example begins that only its command's own test runs, on something smaller.
ELSEWHERE = {
    "relaxlab bench": "takes minutes",
    "relaxlab course site": "runs every notebook",
    "relaxlab demo": "is timed",
    "relaxlab lab": "becomes a server",
    "relaxlab model get": "needs the network",
}


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """Return the current folder, with the files that the examples name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])  # --import adds this folder
    ib = ExecBuilder()
    with ib.function("main", 2, ["x", "n"]):
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0)], dst=ib.r(2))
        ib.emit_call("vm.builtin.make_tuple", [ib.r(2), ib.r(1)], dst=ib.r(3))
        ib.emit_call("vm.builtin.make_tuple", [ib.r(3)], dst=ib.r(4))
        ib.emit_ret(ib.r(4))
    for name in ("model.bin", "before.bin", "after.bin"):
        ib.get().write_to_file(name)
    build(demos.network(), target="numpy").export_library("model.rlx")
    shutil.copyfile(LIBRARY, "model.so")
    np.save("x.npy", np.ones((2, 4), "float32"))
    np.save("w.npy", np.ones((4, 3), "float32"))
    Path("my_kernels.py").touch()
    return tmp_path


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_runs(here, line, monkeypatch, capsys):
    for start, reason in ELSEWHERE.items():
        if line.startswith(start):
            assert reason
            return
    before, _, command = line.rpartition(" | ")
    given = subprocess.run(before, shell=True, capture_output=True, text=True, check=True).stdout
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    program, *words = shlex.split(command.partition(" > ")[0])
    assert program == "relaxlab"
    # the one model that is always there
    code = main(["tiny" if word == "smollm2" else word for word in words])
    out, err = capsys.readouterr()
    if code == 1:
        # programs that differ, and kernels in a machine code that may not run here
        assert "model.so" in words
        assert words[0] in ("diff", "trace")
    else:
        assert code == 0, err
    assert out or words[0] == "chat"  # which answers nothing to nobody
    if "-o" in words:
        assert (here / words[words.index("-o") + 1]).stat().st_size > 10_000


def test_what_runs_elsewhere_is_there():
    for start in ELSEWHERE:
        assert any(line.startswith(start) for line in EXAMPLES)
