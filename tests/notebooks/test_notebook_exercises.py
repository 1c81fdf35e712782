"""Each notebook has one exercise, whose check fails until it is solved.

Their outputs are compared by nbval; here is what makes that mean something.
"""

import re
import time
from itertools import pairwise
from pathlib import Path

import nbclient
import nbformat
import pytest

from relaxlab.cli.course.release import without_solutions
from relaxlab.exercises import exercises

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))

SCHEMA = {"grade", "grade_id", "locked", "schema_version", "solution", "task"}
LONGEST_CELL = 15
LONGEST_RUN = 60  # seconds, on two cores that do nothing else


def exercise_cells(notebook):
    return [
        number
        for number, cell in enumerate(notebook.cells)
        if cell.cell_type == "code" and "### BEGIN SOLUTION" in cell.source
    ]


def run(notebook, folder):
    where = {"metadata": {"path": str(folder)}}  # a chapter may read a file beside it
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=where).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_exercises_fail_until_they_are_solved(path):
    notebook = nbformat.read(path, as_version=4)
    (number,) = exercise_cells(notebook)
    cell, judge = notebook.cells[number : number + 2]
    cell.source = without_solutions(cell.source)
    assert "# YOUR CODE HERE" in cell.source
    compile(cell.source, path.name, "exec")  # what is left for the reader is a program
    name = re.search(r"check\(\"(\d\d\.q\d+)\", ", judge.source)[1]
    assert name in exercises()
    assert name.startswith(path.name[:2])
    started = time.monotonic()
    with pytest.raises(nbclient.exceptions.CellExecutionError) as caught:
        run(notebook, path.parent)
    assert time.monotonic() - started < 5 * LONGEST_RUN  # CI shares its cores
    assert f"{name} is not solved yet" in str(caught.value) or cell.source in str(caught.value)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_exercises_are_marked_for_nbgrader(path):
    """As its schema, version 3, wants it: it refuses other keys, and grades by the identifiers."""
    notebook = nbformat.read(path, as_version=4)
    exercises = exercise_cells(notebook)
    for number in exercises:
        cell, judge = (one.metadata.nbgrader for one in notebook.cells[number : number + 2])
        assert (cell.solution, cell.grade, cell.locked) == (True, False, False)
        assert (judge.solution, judge.grade, judge.locked) == (False, True, True)
    marked = [
        (number, dict(cell.metadata.nbgrader))
        for number, cell in enumerate(notebook.cells)
        if "nbgrader" in cell.metadata
    ]
    assert len(marked) == 2 * len(exercises) > 0
    for number, marks in marked:
        assert notebook.cells[number].cell_type == "code"
        assert marks["schema_version"] == 3
        assert marks["task"] is False
        assert re.fullmatch(r"[a-zA-Z0-9_-]+", marks["grade_id"])
        assert marks.keys() == {*SCHEMA, *(["points"] if marks["grade"] else [])}
        if marks["grade"]:
            assert marks["points"] == 1
            assert "SOLUTION" not in notebook.cells[number].source  # it would be cut out
    assert len({marks["grade_id"] for _, marks in marked}) == len(marked)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_are_short_and_links_lead_somewhere(path):
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert len(cell.source.splitlines()) <= LONGEST_CELL
            # without these nbval would have nothing to compare with, and be content
            assert cell.execution_count is not None
            assert cell.outputs or not re.search(r"^print\(", cell.source, re.MULTILINE)
        else:
            for target in re.findall(r"\]\(([^)#\s]+)", cell.source):
                assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_says_at_its_end_that_its_claims_hold(path):
    notebook = nbformat.read(path, as_version=4)
    last = notebook.cells[-1]
    assert "assert " in last.source
    assert last.outputs[-1].text == "all claims hold\n"


@pytest.mark.parametrize(("path", "after"), [*pairwise(NOTEBOOKS), (NOTEBOOKS[-1], NOTEBOOKS[0])])
def test_the_end_of_a_chapter_leads_to_the_next(path, after):
    notebook = nbformat.read(path, as_version=4)
    (*_, last) = (cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert re.findall(r"\]\((\S+\.ipynb)\)", last)[-1] == after.name
