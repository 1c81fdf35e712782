"""`relaxlab verify` and `relaxlab diff`: what they print, and their exit codes."""

import io
import json

import pytest

from relaxlab.cli import main
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime.vm import VMExecutable
from relaxlab.runtime.vm.saved_library import write_saved_library
from relaxlab.runtime.vm.verify import NOTES, RULES
from tests import golden_vm


@pytest.fixture
def program(tmp_path):
    """Return a function which writes a recorded executable to a file."""

    def write(name, data=None):
        path = tmp_path / f"{name}.bin"
        path.write_bytes(golden_vm.executable_bytes(name) if data is None else data)
        return str(path)

    return write


def test_a_safe_program_passes(program, capsys):
    path = program("eb_if")
    assert main(["verify", path]) == 0
    assert capsys.readouterr().out == f"{path}: safe to run; 3 functions, 5 instructions\n"
    assert main(["verify", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "findings": [], "notes": []}


@pytest.mark.parametrize("name", golden_vm.REFUSED)
def test_a_finding_names_function_instruction_word_and_rule(program, capsys, name):
    path = program(name)
    assert main(["verify", path]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == f"{path}: not safe to run, {len(lines)} finding{'s' * (len(lines) > 1)}"
    for line in lines:
        assert line.startswith("function '")
        assert "instruction" in line
        assert "word" in line
        assert line.rpartition("[")[2].rstrip("]") in RULES
    assert main(["verify", path, "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["ok"] is False
    assert len(shown["findings"]) == len(lines)
    assert set(shown["findings"][0]) == {"function", "pc", "word", "rule", "message"}


def test_what_can_never_run_is_a_note_and_no_finding(program, capsys):
    ib = ExecBuilder()
    with ib.function("f", num_inputs=1):
        ib.emit_ret(ib.r(0))
        ib.emit_ret(ib.r(0))
    path = program("dead", ib.get().save_to_bytes())
    assert main(["verify", path]) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        "note: function 'f', instruction 1, word 2: instruction 1 can never run: "
        "no path leads to it [unreachable]"
    )
    assert main(["verify", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"][0]["pc"] == 1


def test_the_rules_are_listed(capsys):
    assert main(["verify", "--rules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted({**RULES, **NOTES})
    assert main(["verify"]) == 2
    assert "expected a FILE" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["verify"], ["dis"], ["diff"], ["step"]])
def test_what_is_no_executable_is_one_line(program, tmp_path, capsys, command):
    path = program("nonsense", b"nonsense, and more of it")
    more = {"diff": [path], "step": ["main"]}.get(command[0], [])
    assert main([*command, path, *more]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "this is not a Relax executable" in error
    assert main([*command, str(tmp_path / "absent"), *more]) == 1
    assert "No such file" in capsys.readouterr().err


def test_libraries_are_accepted_by_every_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("continue\n"))
    saved = tmp_path / "m.rlx"
    with_name = VMExecutable.load_from_bytes(golden_vm.executable_bytes("eb_minimal"))
    saved.write_bytes(write_saved_library(with_name))
    library = str(golden_vm.library("so"))
    assert main(["verify", library]) == 0
    assert main(["verify", str(saved)]) == 0
    assert main(["step", str(saved), "f", "7"]) == 0
    capsys.readouterr()
    assert main(["dis", str(saved)]) == 0
    assert capsys.readouterr().out == golden_vm.case("eb_minimal")["as_text"]
    assert main(["dis", library]) == 0
    assert capsys.readouterr().out == golden_vm.case("library")["as_text"]
    assert main(["diff", library, str(saved)]) == 1


def test_the_same_programs_do_not_differ(program, tmp_path, capsys):
    one = program("eb_if")
    two = tmp_path / "two.rlx"
    two.write_bytes(write_saved_library(VMExecutable.load_from_file(one)))
    assert main(["diff", one, str(two)]) == 0
    assert capsys.readouterr().out == "the programs are the same to the byte\n"
    ex = VMExecutable.load_from_file(one)
    ex.constants.append("unused")
    two.write_bytes(ex.save_to_bytes())
    assert main(["diff", one, str(two)]) == 0
    assert capsys.readouterr().out == "the programs are the same in meaning\n"
    assert main(["diff", one, str(two), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_differences_are_shown_function_by_function(program, capsys):
    one, two = program("eb_if"), program("eb_loop")
    assert main(["diff", one, two]) == 1
    text = capsys.readouterr().out
    assert text.startswith(f"- {one}\n+ {two}\n\nfunction f: ")
    assert "host function golden.imul: only in the first" in text
    assert main(["diff", one, two, "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert set(rows[0]) == {"what", "name", "summary", "lines"}
