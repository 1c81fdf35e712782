"""`relaxlab dis`: the three texts of an executable, from a file."""

import json
import os
from pathlib import Path

import pytest

from relaxlab.cli import main

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "vm"


@pytest.fixture
def program(tmp_path):
    """Return a function which writes a recorded executable to a file, and its recorded texts."""

    def write(name: str) -> tuple[str, dict]:
        recorded = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
        path = tmp_path / f"{name}.bin"
        path.write_bytes(bytes.fromhex(recorded["bytes_hex"]))
        return str(path), recorded

    return write


@pytest.mark.parametrize("name", ["cg_if", "eb_loop", "build_symbolic", "eb_undefined_register"])
def test_dis_prints_what_tvm_prints(program, capsys, name):
    path, recorded = program(name)
    assert main(["dis", path]) == 0
    assert capsys.readouterr().out == recorded["as_text"]
    assert main(["dis", path, "--python"]) == 0
    assert capsys.readouterr().out == recorded["as_python"]
    assert main(["dis", path, "--json"]) == 0
    forms = json.loads(capsys.readouterr().out)
    assert forms == {key: recorded[key] for key in ("as_text", "as_python", "stats")}


@pytest.mark.parametrize(
    ("content", "words"), [(None, ["No such file", "absent.bin"]), (b"nonsense", ["relaxlab: "])]
)
def test_a_file_that_is_no_executable_is_one_line(tmp_path, capsys, content, words):
    path = tmp_path / "absent.bin"
    if content is not None:
        path.write_bytes(content)
    assert main(["dis", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert all(word in error for word in words)


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="needs /dev/fd")
def test_a_pipe_is_read_once(program, capsys):
    path, _ = program("cg_if")
    for data, code in ((Path(path).read_bytes(), 0), (b"nonsense", 1)):
        reader, writer = os.pipe()
        os.write(writer, data)
        os.close(writer)
        assert main(["dis", f"/dev/fd/{reader}", "--sections"]) == code
        os.close(reader)
        shown = capsys.readouterr()
        assert ("magic number" in shown.out, "magic number" in shown.err) == (not code, bool(code))


def test_a_cut_file_is_one_line_with_the_place(program, capsys):
    path, _ = program("cg_if")
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[: len(data) // 2])
    assert main(["dis", path]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "byte" in error


def test_words_sections_and_statistics_are_options(program, capsys):
    path, recorded = program("eb_if")
    assert main(["dis", path, "--words"]) == 0
    words = capsys.readouterr().out
    assert "           2  0000000000000003  if 0: +3 to instruction 3\n" in words
    assert main(["dis", path, "--stats"]) == 0
    assert capsys.readouterr().out == recorded["stats"]
    assert main(["dis", path, "--sections", "--stats"]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith(recorded["stats"])
    assert shown.splitlines()[1].split()[:4] == ["0", "8", "header", "magic"]
    assert main(["dis", path, "--json", "--sections", "--words"]) == 0
    forms = json.loads(capsys.readouterr().out)
    assert set(forms) == {"as_text", "as_python", "stats", "sections", "words"}
    assert forms["sections"][0]["name"] == "header"
    assert forms["words"][2] == {
        "pc": 0,
        "at": 2,
        "value": 3,
        "meaning": "if 0: +3 to instruction 3",
        "hex": "0000000000000003",
    }
    assert len(forms["words"]) == 19
