"""The stepper's closer looks from Python: each is a trait that the page is told."""

import json

import numpy as np
import pytest
import traitlets

from relaxlab.runtime.tensor import tensor
from relaxlab.widgets import VMStepper
from relaxlab.widgets.tensor_picture import TensorPicture, level_of
from tests.trace.conftest import build
from tests.widgets.conftest import page_of
from tests.widgets.programs import arguments, executable


def test_watched_expressions_are_values_by_step(stepper):
    stepper.display("r1 + n", "nobody")
    text, positions, values = stepper.displays[0]
    assert text == "r1 + n"
    session = stepper.session
    for position in range(13):
        index = max(i for i, at in enumerate(positions) if at <= position)
        stepper.goto(position)
        line = next((one for one in str(stepper).splitlines() if "r1 + n" in one), "")
        if position == 12:
            assert (values[index], line) == ("", "")
        else:
            assert line.strip() == f"r1 + n = {values[index]}"
    assert "no value here" in stepper.displays[1][2][0]
    assert page_of(stepper).states()[0]["displays"] == stepper.displays
    stepper.hide("nobody")
    assert [one.text for one in session.displays] == ["r1 + n"]
    assert stepper.hide().displays == []


def test_log_points_are_lines_and_marks_that_stop_nothing(stepper):
    point = stepper.log_at("n = {r1}", "down", 2)
    assert stepper.halts == [[str(point), 2, [], []]]
    assert stepper.breakpoints == []
    assert stepper.logs == [[2, "n = 3"], [5, "n = 2"], [8, "n = 1"]]
    assert stepper.continue_().position == 12
    stepper.remove(point.number)
    assert stepper.logs == stepper.halts == []


def test_notes_go_both_ways_and_into_the_export(stepper, tmp_path):
    stepper.note("look").note("begin", 0)
    assert stepper.notes == [[0, "look"], [0, "begin"]]
    page_of(stepper).says(notes=[[4, "from the page"], [0, "look"]])
    assert stepper.session.notes == [(0, "look"), (4, "from the page")]
    assert "note: from the page" in str(stepper.goto(4))
    assert "from the page" in stepper.to_html(tmp_path / "x.html").read_text("utf-8")
    for wrong in ([[99, "x"]], [[1]], ["x"], [[1, 2]]):
        with pytest.raises(traitlets.TraitError):
            stepper.notes = wrong
    assert len(stepper.notes) == 2


def test_switches_reach_the_session(stepper):
    page_of(stepper).says(inside=True, skip_builtins=True)
    assert stepper.session.inside
    assert "inside instruction 0" in str(stepper)
    assert stepper.step().position == 1
    assert stepper.back().position == 0
    assert stepper.goto(1).back().position == 0


def test_lines_of_the_program_and_of_its_ir_are_told():
    stepper = VMStepper(executable(), "main", *map(tensor, arguments()))
    kernels = {kernel for _, _, kernel in stepper.sources.values() if kernel}
    assert any("matmul" in kernel for kernel in kernels)
    places = [place for found, _, _ in stepper.sources.values() for place in found]
    assert any("R.nn.softmax" in place for place in places)
    assert json.loads(json.dumps(stepper.sources)) == stepper.sources


def test_a_fork_is_another_view_that_says_so(stepper):
    fork = stepper.goto(5).fork(1, 1)
    assert repr(stepper) == "VMStepper(down, step 5 of 12)"
    assert repr(fork) == "VMStepper(down, step 5 of 9, edited)"
    assert fork.heading == "down: 9 steps, edited at step 5"
    assert fork.edited == ["at step 5, %1 of #0 was 2"]
    assert stepper.edited == []


def test_a_picture_has_every_number():
    values = np.arange(60, dtype="float32").reshape(6, 10)
    values[2, 3] = np.nan
    machine = build(("f", 1, ["x"], lambda ib: ib.emit_ret(ib.r(0))))
    stepper = VMStepper(machine, "f", tensor(values))
    picture = stepper.picture(0)
    text = str(picture)
    assert text.splitlines()[0] == "float32[6, 10], from 0.0 to 59.0"
    assert [float(one) for one in text.splitlines()[6].split()] == values[5].tolist()
    assert "nan" in text.splitlines()[3].split()
    assert stepper.pictures == [[0, 0, 0, picture.grid()]]
    stepper.picture(0)
    assert len(stepper.pictures) == 1
    drawn = picture._repr_html_()
    assert drawn.count("<rect") == 60
    assert "<title>[5, 9] 59.0</title>" in drawn
    json.dumps(stepper.pictures, allow_nan=False)
    whole = VMStepper(machine, "f", 3)
    with pytest.raises(TypeError, match="expected a tensor in %0, it holds int"):
        whole.picture(0)


def test_pictures_of_large_empty_and_narrow_tensors():
    large = TensorPicture(tensor(np.zeros((100, 3, 50), "int64")))
    assert "the first 32 of 300 rows, 32 of 50 columns" in large.heading
    assert str(TensorPicture(tensor(np.zeros((0, 4), "float32")))) == "float32[0, 4]"
    assert TensorPicture(tensor(np.array(True))).texts() == [["True"]]
    assert TensorPicture(tensor(np.array([0.1], "float16"))).texts() == [["0.099975586"]]
    assert [level_of(one, 0, 6) for one in (0, 1, 5.9, 6, np.inf)] == [0, 1, 5, 5, -1]
    assert level_of(3, 3, 3) == 0
