"""`relaxlab lab --check`: a real server, a real kernel, a small tour."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from relaxlab.cli import main
from relaxlab.cli.lab.check import Sanitizer, check, first_difference
from relaxlab.cli.lab.kernel import CellOutput
from relaxlab.cli.lab.notebooks import work_folder

REPOSITORY = Path(__file__).resolve().parents[2]


def code_cell(source: str, *outputs: dict[str, object], tags: tuple[str, ...] = ()) -> dict:
    return {
        "cell_type": "code",
        "execution_count": 1,
        "id": f"c{abs(hash(source)) % 10**6}",
        "metadata": {"tags": list(tags)} if tags else {},
        "outputs": list(outputs),
        "source": source,
    }


def printed(text: str) -> dict[str, object]:
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}


def result(text: str) -> dict[str, object]:
    return {
        "output_type": "execute_result",
        "execution_count": 1,
        "metadata": {},
        "data": {"text/plain": [text]},
    }


@pytest.fixture
def tour(tmp_path):
    """Return a function which writes a folder of notebooks whose tour has the given cells."""

    def write(*cells: dict) -> Path:
        folder = tmp_path / "notebooks"
        folder.mkdir()
        notebook = {
            "cells": list(cells),
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        (folder / "00_tour.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
        sanitize = (REPOSITORY / "notebooks" / "nbval_sanitize.cfg").read_text(encoding="utf-8")
        (folder / "nbval_sanitize.cfg").write_text(sanitize, encoding="utf-8")
        return folder

    return write


def family():
    """Return the processes that this one has started, and those that they have."""
    return set(psutil.Process().children(recursive=True))


def test_every_difference_is_reported_and_nothing_is_left(tour, capsys):
    already = family()  # Python keeps one of its own, once anything was shared between processes
    folder = tour(
        code_cell("print('hello')", printed("hello\n")),
        code_cell("6 * 7", result("42")),
        code_cell("print('took 3.5 ms')", printed("took 17 ms\n")),
        code_cell("object()", result("<object at 0x7f0000000000>")),
        code_cell("import ipywidgets\nipywidgets.IntSlider()", result("IntSlider(value=0)")),
        code_cell("1 / 0"),
        code_cell("1 / 0", tags=("raises-exception",)),
        code_cell("print('new')", printed("old\n")),
        code_cell("print('any')", printed("thing\n"), tags=("nbval-ignore-output",)),
    )
    before = folder.joinpath("00_tour.ipynb").read_bytes()
    assert check(folder, seconds=50) == 1
    out = capsys.readouterr().out
    verdicts = [line.split()[2] for line in out.splitlines() if line.startswith("cell")]
    assert verdicts == ["ok", "ok", "ok", "ok", "ok", "FAILED", "ok", "FAILED", "ok"]
    assert "ZeroDivisionError: division by zero" in out
    assert "stdout differs from the committed notebook: line 1: expected 'old', got 'new'" in out
    assert out.rstrip().endswith("FAILED: 2 cells")
    assert folder.joinpath("00_tour.ipynb").read_bytes() == before
    assert family() == already


def test_a_cell_without_end_is_given_up_and_nothing_is_left(tour, capsys):
    already = family()
    folder = tour(code_cell("print('ok')", printed("ok\n")), code_cell("while True: pass"))
    clock = time.perf_counter()
    assert check(folder, seconds=6) == 1
    assert time.perf_counter() - clock < 12
    assert "FAILED: not finished after 6 s" in capsys.readouterr().out
    assert family() == already


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_check_and_its_processes(tour, number):
    folder = tour(code_cell("print('ready')", printed("ready\n")), code_cell("while True: pass"))
    program = f"""
import sys
from pathlib import Path
from relaxlab.cli.lab.check import check
try:
    check(Path({str(folder)!r}), seconds=45)
except KeyboardInterrupt:
    sys.exit(130)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith("cell"))
        assert "ok" in line
        family = psutil.Process(process.pid).children(recursive=True)
        assert family
        process.send_signal(number)
        assert process.wait(timeout=15) == 130
        rest = process.stdout.read()
    assert "Traceback" not in rest
    assert not [child for child in family if child.is_running()]


def test_a_taken_port_is_said_clearly(capsys):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert main(["lab", "--no-browser", "--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"port {port} is taken" in error


def test_an_impossible_port_is_refused(capsys):
    assert main(["lab", "--check", "--port", "70000"]) == 2
    assert "between 1 and 65535" in capsys.readouterr().err


def test_a_checkout_is_served_where_it_is(tmp_path):
    assert work_folder(REPOSITORY / "notebooks", tmp_path) == (REPOSITORY, Path("notebooks"))
    assert list(tmp_path.iterdir()) == []


def test_installed_notebooks_are_copied_once(tmp_path, monkeypatch):
    installed = tmp_path / "site"
    installed.mkdir()
    (installed / "00_tour.ipynb").write_text("new")
    (installed / "01_more.ipynb").write_text("more")
    monkeypatch.setattr("relaxlab.cli.lab.notebooks._INSTALLED", installed)
    here = tmp_path / "here"
    (here / "relaxlab-notebooks").mkdir(parents=True)
    (here / "relaxlab-notebooks" / "00_tour.ipynb").write_text("a reader's answers")
    assert work_folder(installed, here) == (here, Path("relaxlab-notebooks"))
    assert (here / "relaxlab-notebooks" / "00_tour.ipynb").read_text() == "a reader's answers"
    assert (here / "relaxlab-notebooks" / "01_more.ipynb").read_text() == "more"


def test_the_sanitize_file_hides_what_may_differ():
    sanitize = Sanitizer.from_file(REPOSITORY / "notebooks" / "nbval_sanitize.cfg")
    assert sanitize("<A at 0xdeadbeef> 3.25 ms") == "<A at ADDR> TIME"
    assert sanitize('<?xml version="1.0"?>\n<svg>\n</svg>\n') == "SVG"
    assert sanitize("12 values") == "12 values"


def test_an_error_keeps_its_text_without_colours():
    output = CellOutput()
    output.add("error", {"ename": "E", "evalue": "v", "traceback": ["\x1b[31mE\x1b[0m: v"]})
    assert output.error == "E: v"


@pytest.mark.parametrize(
    ("expected", "got", "words"),
    [
        ("a\nb\n", "a\nc\n", "line 2: expected 'b', got 'c'"),
        ("a\nb\n", "a\n", "expected 2 lines, got 1; missing: 'b'"),
        ("a\n", "a\nb\n", "expected 1 lines, got 2; added: 'b'"),
        ("a", "a\n", "expected 1 lines, got 1; added: ''"),
    ],
)
def test_the_first_difference_is_shown(expected, got, words):
    assert first_difference(expected, got) == words
