"""The bytes of an executable: what the view holds, says and refuses."""

import json

import pytest
import traitlets

from relaxlab.errors import InternalError
from relaxlab.runtime.vm.executable import VMExecutable
from relaxlab.widgets import ExecutableView
from tests import golden_vm
from tests.trace.conftest import build, count_down
from tests.widgets.conftest import page_of


def pair(ib):
    ib.emit_call("vm.builtin.make_tuple", [ib.r(0), ib.r(0)], dst=1)
    ib.emit_ret(ib.r(1))


@pytest.fixture
def view():
    return ExecutableView(build(("down", 1, ["n"], count_down)))


def test_rows_are_the_fields_of_the_file(view):
    assert [row[1:3] for row in view.file["rows"]] == [
        [field.offset, field.size] for field in view.fields
    ]
    assert view.file["size"] == len(view.executable.save_to_bytes())
    assert view.file["left_out"] == 0
    json.dumps(view.file, allow_nan=False)


@pytest.mark.parametrize("suffix", ["so", "dll", "dylib"])
def test_a_library_of_tvm_can_be_looked_into(suffix):
    view = ExecutableView(str(golden_vm.library(suffix)))
    assert view.file["sections"][1][0] == "header"
    assert view.section("constants").row.split()[0] == str(
        {one[0]: one[1] for one in view.file["sections"]}["constants"]
    )


def test_moving_by_byte_section_instruction_and_text(view):
    offsets = {name: offset for name, offset, *_ in view.file["sections"]}
    for name, offset in offsets.items():
        assert view.section(name).goto(offset).file["rows"][view.position][1] == offset
    for pc in range(view.executable.num_instructions):
        row = view.instruction(pc).file["rows"][view.position]
        assert row[5] == pc
        assert row[4] in ("Call", "Ret", "If", "Goto")
    assert "goto" in view.find("goto").row
    first = view.position
    assert view.find("goto").position != first
    view.goto(view.file["size"] - 1)
    assert view.position == len(view.file["rows"]) - 1


def test_what_is_not_there_is_refused_and_moves_nothing(view):
    view.instruction(1)
    at = view.position
    for wrong, error in [
        (lambda: view.goto(10**9), IndexError),
        (lambda: view.section("nope"), KeyError),
        (lambda: view.instruction(999), IndexError),
        (lambda: view.find("no such text"), LookupError),
        (lambda: setattr(view, "position", 10**6), traitlets.TraitError),
        (lambda: setattr(view, "position", -1), traitlets.TraitError),
    ]:
        with pytest.raises(error):
            wrong()
        assert view.position == at


def test_wrong_programs_are_refused(tmp_path):
    with pytest.raises(TypeError, match="a machine or a path"):
        ExecutableView(7)
    path = tmp_path / "x.bin"
    path.write_bytes(b"nothing")
    with pytest.raises(InternalError):
        ExecutableView(path)
    with pytest.raises(ValueError, match="limit"):
        ExecutableView(VMExecutable(), limit=0)


def test_the_page_and_python_move_together(view):
    page = page_of(view)
    page.says(position=7)
    assert view.position == 7
    view.instruction(2)
    assert page.states()[-1] == {"position": view.position}


def test_rows_beyond_the_limit_are_counted():
    ex = build(("down", 1, ["n"], count_down))
    all_rows = len(ExecutableView(ex).fields)
    view = ExecutableView(ex, limit=10)
    assert len(view.file["rows"]) == 10
    assert view.file["left_out"] == all_rows - 10
    assert f"the last {all_rows - 10} rows" in str(view)


def test_the_text_twin_says_the_same(view):
    view.instruction(3)
    text = str(view)
    assert text.startswith(view.heading)
    assert f"> {view.row}" in text
    for name, offset, size, content in view.file["sections"]:
        assert f"{offset:8}{size:8}  {name:20} {content}" in text
    assert view.executable.function_at(3).name in view.row


def test_differences_are_those_of_the_comparison():
    one, two = build(("f", 1, ["n"], count_down)), build(("f", 1, ["n"], pair))
    view = ExecutableView(one, two)
    assert view.file["compared"] == "another program"
    assert view.file["differences"]
    assert "function f" in str(view)
    same = ExecutableView(one, one)
    assert same.file["differences"] == []
    assert "the programs are the same" in str(same)


def test_the_page_needs_nothing_else(view, tmp_path):
    view.find("ret")
    path = view.to_html(tmp_path / "file.html")
    assert "https:" not in path.read_text("utf-8")
