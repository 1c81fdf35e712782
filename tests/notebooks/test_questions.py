"""What a student may ask of a chapter, and where its view answers in at most three actions.

The cells of a chapter are run until they have made the view or session that a question is put to.
An action is a method of it, as a button, a key or a line of the notebook calls it; the answer is
read in the text twin, which says what the view shows.
"""

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from relaxlab.exercises import check
from relaxlab.trace.commands import Commands
from relaxlab.widgets import PagePool

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
MOST_ACTIONS = 3


@cache
def cells_of(number):
    """The code cells of a chapter."""
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def printed_by(number):
    """What a chapter prints, as committed: nbval holds it to that."""
    outputs = (output for cell in cells_of(number) for output in cell["outputs"])
    return "".join("".join(one["text"]) for one in outputs if one["output_type"] == "stream")


@pytest.fixture
def chapter(tmp_path, monkeypatch):
    """Run a chapter until it has a name; return what the name is of."""
    monkeypatch.chdir(NOTEBOOKS)  # a chapter reads the file beside it

    def run(number, name):
        space = {"__name__": f"chapter_{number}"}
        for at, cell in enumerate(cells_of(number)):
            # a decorator reads its class's source, which must be in a file
            path = tmp_path / f"{number}_{at}.py"
            path.write_text("".join(cell["source"]), "utf-8")
            exec(compile(path.read_text("utf-8"), str(path), "exec"), space)
            if name in space:
                return space[name]
        raise AssertionError(f"chapter {number} has no {name}")

    return run


def ask(view, *actions):
    """Do what the actions say and return the text twin; a text that an action gives is returned."""
    assert len(actions) <= MOST_ACTIONS
    for name, *arguments in actions:
        answer = getattr(view, name)(*arguments)
    return answer if actions and isinstance(answer, str) else str(view)


def moment(view, kind):
    """The position after the first event of a kind, which one clicks in the list of events."""
    events = view.timelines[0].events
    return next(at for at, event in enumerate(events, 1) if type(event).__name__ == kind)


def test_which_instruction_writes_the_heap_slot_of_n(chapter):
    stepper = chapter("06", "stepper")
    stepper.goto(0)
    told = ask(stepper, ("watch", 2), ("continue_",), ("continue_",))
    # it stops behind the instruction that changed the heap; the arrow is at the next one
    assert "(was int64[3] s2 [0, 0, 0])" in told
    assert "done: vm.builtin.match_shape changed what %2 shows." in told
    current = int(re.search(r"=> +(\d+)", told)[1])
    assert check("06.q1", current - 1)


def test_why_a_register_changes_its_type_and_what_killed_it(chapter):
    stepper = chapter("00", "stepper")
    told = ask(stepper, ("watch", 4), ("continue_",))
    assert "done: vm.builtin.alloc_storage gave %4 = storage s4" in told
    told = ask(stepper, ("continue_",))
    assert "done: vm.builtin.null_value gave %4 = None." in told


def test_who_last_wrote_the_storage_behind_a_register(chapter):
    session = chapter("00", "session")
    terminal = Commands(session)
    session.goto(18)  # relu is about to write into %8
    assert "s4: %8 of #0" in ask(terminal, ("run", "storages"))
    told = ask(terminal, ("run", "storages"), ("run", "writer s4"), ("run", "goto 10"))
    assert "next: Call matmul with" in told


def test_why_a_page_was_copied_at_a_fork_and_which(chapter):
    fork = chapter("09", "fork")
    told = ask(fork, ("goto", moment(fork, "PartialPageCopied")))
    assert (
        "done: The first 2 rows of page 1 (block 2) are copied to page 3 of block 3: "
        "a page in mid-use cannot be shared."
    ) in told


def test_what_a_refused_batch_changed(chapter):
    view = PagePool(chapter("09", "recorder"))
    told = ask(view)
    assert "done: Call: begin_forward([0], [40]). It was refused: The KV cache is full." in told
    assert "6 more must be given back first" in told
    (timeline,) = view.timelines
    before, after = (timeline.state(position) for position in (view.position - 1, view.position))
    assert before == after


def test_what_is_in_the_key_of_a_graph(chapter):
    assert "region 0, sizes [3]" in ask(chapter("13", "keys"))


def test_where_the_constants_start_in_the_file(chapter):
    view = chapter("07", "view")
    told = ask(view, ("section", "constants"))
    assert re.search(r"^ +23019 +482 +constants +9 constants$", told, re.MULTILINE)
    assert "23019" in view.row
    assert check("07.q1", 23019)


def test_which_pass_first_allocates_storage(chapter):
    explorer = chapter("03", "explorer")
    told = ask(explorer, ("select", "DispatchSampling"), ("search", "alloc_storage"))
    name = re.search(r"^\+\+\+ after (\w+)$", told, re.MULTILINE)[1]
    assert re.search(r"^\+ .*alloc_storage", told, re.MULTILINE)
    assert check("03.q1", name)


def test_which_tensors_share_a_storage_and_when(chapter):
    assert "%2         128  uint8  global   4-18  %3 5-10, %6 12-18" in ask(chapter("05", "plan"))


def test_who_bound_a_size_that_does_not_fit(chapter):
    vm = chapter("06", "vm")

    with pytest.raises(RuntimeError, match="populated with 3 by parameter 'x' of main"):
        vm["main"](np.ones((3, 2), "float32"), np.ones(4, "float32"))


def test_why_a_prefix_was_forgotten():
    lines = printed_by("11").splitlines()
    under_lru = lines[lines.index("evicts by lru") + 1]
    assert under_lru.strip() == "lru: not used for 3 ticks (last at tick 4), the longest of all"


def test_in_which_step_the_machine_learned_a_size(chapter):
    told = ask(chapter("02", "stepper"))
    assert "done: vm.builtin.match_shape changed what %1 shows." in told
    assert "* %1    int64[2] s1 [3, 0]   (was int64[2] s1 [0, 0])" in told
