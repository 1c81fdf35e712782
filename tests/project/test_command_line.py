"""One style of help, errors and exit codes for every command."""

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

import relaxlab.cli
from relaxlab.cli import command_names, main, summary
from relaxlab.cli._progress import progress
from relaxlab.cli.doctor import examine

PARTS = ["llvm", "cupy", "mpi", "chromium", "model", "renderer", "oracle"]


@pytest.fixture
def extra_command(tmp_path, monkeypatch):
    """Return a function which adds a command ``extra_probe`` with the given body of `run`."""

    def add(body: str) -> None:
        (tmp_path / "extra_probe.py").write_text(
            f'"""Do the extra thing.\n\nMore."""\n\n'
            "import relaxlab.cli\n\n"
            'EXAMPLE = "relaxlab extra_probe 1"\n\n'
            'def configure(parser):\n    parser.add_argument("n", type=int)\n\n'
            f"def run(args):\n    {body}\n",
            encoding="utf-8",
        )
        monkeypatch.setattr(relaxlab.cli, "__path__", [*relaxlab.cli.__path__, str(tmp_path)])

    yield add
    sys.modules.pop("relaxlab.cli.extra_probe", None)


@pytest.mark.parametrize("name", command_names())
def test_every_command_has_a_summary_and_help_with_an_example(name, capsys):
    assert len(summary(name)) > 10
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"usage: relaxlab {name}" in out
    assert f"examples:\n  relaxlab {name}" in out
    assert "--debug" in out


@pytest.mark.parametrize("name", command_names())
def test_a_mistyped_option_is_one_line(name, capsys):
    assert main([name, "--no-such-option"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("relaxlab: ")
    assert error.count("\n") == 1


def test_help_lists_every_command_without_importing_any():
    program = (
        "import sys, relaxlab.cli; code = relaxlab.cli.main(['--help']); "
        "names = [m for m in sys.modules if m.startswith('relaxlab.')]; "
        "assert names == ['relaxlab.cli'], names; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    for name in command_names():
        assert f"    {name} " in done.stdout
    assert "examples:\n  relaxlab lab" in done.stdout


def test_a_new_file_is_a_new_command(extra_command, capsys):
    extra_command("print(args.n + 1)\n    return 0")
    assert main(["extra_probe", "41"]) == 0
    assert capsys.readouterr().out == "42\n"
    assert main(["--help"]) == 0
    assert "Do the extra thing" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "code", "line"),
    [
        ("raise relaxlab.cli.Mistake('use 2')", 2, "relaxlab: use 2"),
        ("raise ValueError('one\\n  two')", 1, "relaxlab: one two"),
        ("raise KeyError('k')", 1, "relaxlab: KeyError: 'k' (--debug shows where)"),
        ("raise RuntimeError", 1, "relaxlab: RuntimeError:  (--debug shows where)"),
        ("open('/no/such/file')", 1, "relaxlab: No such file or directory: /no/such/file"),
        ("raise MemoryError('1 TiB')", 1, "relaxlab: not enough memory: 1 TiB"),
        ("raise KeyboardInterrupt", 130, "relaxlab: stopped by Ctrl-C"),
        ("return 1", 1, ""),
    ],
)
def test_every_failure_is_one_line_and_an_exit_code(extra_command, capsys, body, code, line):
    extra_command(body)
    assert main(["extra_probe", "1"]) == code
    assert capsys.readouterr().err.rstrip("\n") == line


@pytest.mark.parametrize(
    "words", [["--debug", "extra_probe", "1"], ["extra_probe", "1", "--debug"]]
)
def test_debug_shows_the_traceback(extra_command, capsys, words):
    extra_command("raise ValueError('deep')")
    assert main(words) == 1
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert "extra_probe.py" in error


def test_an_unknown_command_is_named_with_the_known_ones(capsys):
    assert main(["nope"]) == 2
    error = capsys.readouterr().err
    assert "'nope'" in error
    assert "doctor" in error
    assert error.count("\n") == 1


def test_the_module_and_its_version():
    done = subprocess.run(
        [sys.executable, "-m", "relaxlab", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"relaxlab {relaxlab.__version__}\n"


@pytest.mark.skipif(os.name != "posix", reason="pipes")
def test_a_reader_who_goes_away_is_no_error(extra_command, tmp_path):
    extra_command("print('x' * 1_000_000)\n    print('y' * 1_000_000)\n    return 0")
    program = (
        f"import sys, relaxlab.cli; relaxlab.cli.__path__.append({str(tmp_path)!r}); "
        "sys.exit(relaxlab.cli.main(['extra_probe', '1']))"
    )
    command = 'set -o pipefail; "$0" -c "$1" | head -c 1'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "x"
    assert done.stderr == ""


def test_ctrl_c_is_not_lost_in_a_destructor(extra_command, capsys):
    extra_command(
        "import time\n"
        "    class Lost:\n"
        "        def __del__(self):\n"
        "            raise KeyboardInterrupt\n"
        "    Lost()\n"
        "    time.sleep(0.5)\n"
        "    for _ in range(10): time.sleep(0.01)\n"
        "    return 0"
    )
    assert main(["extra_probe", "1"]) == 130
    assert capsys.readouterr().err == "relaxlab: stopped by Ctrl-C\n"


def test_signals_have_their_handlers_back(extra_command):
    extra_command("import signal; signal.raise_signal(signal.SIGTERM)\n    return 0")
    before = (signal.getsignal(signal.SIGTERM), sys.unraisablehook)
    assert main(["extra_probe", "1"]) == 143
    assert (signal.getsignal(signal.SIGTERM), sys.unraisablehook) == before


def test_a_console_with_a_small_alphabet_gets_all_the_text(extra_command, monkeypatch):
    extra_command("print('1 \u2026 2')\n    return 0")
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    assert main(["extra_probe", "1"]) == 0
    assert out.buffer.getvalue() == b"1 \\u2026 2\n"


@pytest.mark.parametrize("on_a_terminal", [True, False])
def test_progress_is_for_a_terminal_and_leaves_nothing(monkeypatch, on_a_terminal):
    shown = io.StringIO()
    shown.isatty = lambda: on_a_terminal
    monkeypatch.setattr("sys.stderr", shown)
    with suppress(ValueError), progress("compiling"):
        during = shown.getvalue()
        raise ValueError
    assert during == ("\r\x1b[Kcompiling …" if on_a_terminal else "")
    assert shown.getvalue() == during + ("\r\x1b[K" if on_a_terminal else "")


def test_doctor_names_every_part_and_how_to_add_it(capsys):
    assert main(["doctor", "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)
    assert [part["name"] for part in parts] == PARTS
    for part in parts:
        assert bool(part["command"]) != part["present"]
        assert part["detail"]
        assert "\n" not in part["detail"]
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for part in parts:
        assert part["name"] in out
        assert part["command"] in out


def test_doctor_on_a_machine_with_nothing(monkeypatch, tmp_path):
    def no_distribution(name):
        raise relaxlab.cli.doctor.PackageNotFoundError(name)

    monkeypatch.setattr("relaxlab.cli.doctor.version", no_distribution)
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("RELAXLAB_HOME", str(tmp_path))
    monkeypatch.setenv("RELAXLAB_ORACLE", str(tmp_path / "python"))
    monkeypatch.setattr("relaxlab.cli.doctor.sys.executable", str(tmp_path / "python"))
    parts = examine()
    assert [part.name for part in parts] == PARTS
    assert not any(part.present for part in parts)
    assert all(part.command for part in parts)
