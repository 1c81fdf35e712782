"""``relaxlab trace``: one call as one page, and no file where nothing was traced."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from relaxlab.cli import main
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.relax.vm_build import build
from relaxlab.script import from_source

SCRIPT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        with R.dataflow():
            y = R.nn.relu(x)
            z = R.add(y, x)
            R.output(z)
        return z

    @R.function
    def pick(x: R.Tensor((3,), "float32"), i: R.Tensor((2,), "int64")) -> R.Tensor((2,), "float32"):
        return R.take(x, i, axis=0)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "m.rlx"
    build(from_source(SCRIPT), target="numpy").export_library(path)
    return path


def state_of(page: Path) -> dict:
    found = re.search(
        r'<script type="application/json" id="state">(.*?)</script>', page.read_text("utf-8")
    )
    return json.loads(found[1])


def test_the_page_holds_the_whole_run(program, tmp_path, capsys):
    out = tmp_path / "run.html"
    np.save(tmp_path / "x.npy", np.array([1.0, -2.0], "float32"))
    assert main(["trace", str(program), "main", str(tmp_path / "x.npy"), "-o", str(out)]) == 0
    said = capsys.readouterr().out
    state = state_of(out)
    steps = len(state["trace"]["ops"])
    assert said.startswith(f"{out}: {steps} steps, ")
    assert state["position"] == 0
    assert "error" not in state["trace"]["outcome"]
    text = out.read_text("utf-8")
    assert "http://" not in re.sub(r"http://www\.w3\.org/\S+", "", text)
    assert "https://" not in text


def test_a_long_run_says_what_was_dropped(tmp_path, capsys):
    ib = ExecBuilder()
    with ib.function("main", 1, ["x"]):
        for register in range(1, 50):
            ib.emit_call("vm.builtin.make_tuple", [ib.r(0)], dst=register)
        ib.emit_ret(ib.r(1))
    path, out = tmp_path / "long.bin", tmp_path / "long.html"
    ib.get().write_to_file(path)
    assert main(["trace", str(path), "main", "7", "--limit", "10", "-o", str(out)]) == 0
    state = state_of(out)
    first = state["trace"]["first_step"]
    assert first > 0
    assert state["position"] == first
    assert f"the last {50 - first} steps of 50" in capsys.readouterr().out


def test_a_program_that_fails_is_shown_up_to_its_failure(program, tmp_path, capsys):
    out = tmp_path / "run.html"
    assert main(["trace", str(program), "pick", "[1.0, 2.0, 3.0]", "[0, 9]", "-o", str(out)]) == 1
    said = capsys.readouterr()
    assert "9" in said.err
    assert said.err.count("\n") == 1
    assert state_of(out)["trace"]["outcome"]["error"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{program}", "main", "[1, 2]"], 1, "float32"),
        (["{program}", "main", "[[1.0]]"], 1, "main"),
        (["{program}", "main"], 1, "expects 1"),
        (["{program}", "nope", "[1.0]"], 2, "it has: main, pick"),
        (["{program}", "main", "[1.0"], 2, "argument 1"),
        (["{program}", "main", "no.npy"], 2, "no.npy"),
        (["missing.bin", "main", "[1.0]"], 1, "missing.bin"),
        (["{text}", "main", "[1.0]"], 1, "text.bin: executable, section"),
        (["{program}", "main", "[1.0]", "--limit", "0"], 2, "--limit"),
    ],
)
def test_a_refusal_is_one_line_and_leaves_no_file(program, tmp_path, capsys, words, code, said):
    out = tmp_path / "run.html"
    text = tmp_path / "text.bin"
    text.write_text("no program")
    words = [word.format(program=program, text=text) for word in words]
    before = sorted(tmp_path.iterdir())
    assert main(["trace", *words, "-o", str(out)]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_was_there_survives_a_refusal(program, tmp_path, capsys):
    out = tmp_path / "run.html"
    out.write_text("mine")
    assert main(["trace", str(program), "main", "[1, 2]", "-o", str(out)]) == 1
    assert out.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "said"), [("run.txt", "run.html"), ("no/such/folder/run.html", "no folder")]
)
def test_the_page_must_have_a_place_and_a_page_s_name(program, tmp_path, capsys, name, said):
    out = str(tmp_path / name)
    assert main(["trace", str(program), "main", "[1.0]", "-o", out]) == 2
    assert said in capsys.readouterr().err
