"""Each notebook has one exercise, whose check fails until it is solved."""

import re
from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
SOLUTION = re.compile(r"^ *### BEGIN SOLUTION\n.*?^ *### END SOLUTION\n", re.DOTALL | re.MULTILINE)


def exercise_cells(notebook):
    return [
        number
        for number, cell in enumerate(notebook.cells)
        if cell.cell_type == "code" and "### BEGIN SOLUTION" in cell.source
    ]


def run(notebook):
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_exercises_fail_until_they_are_solved(path):
    notebook = nbformat.read(path, as_version=4)
    (number,) = exercise_cells(notebook)
    cell = notebook.cells[number]
    cell.source, count = SOLUTION.subn("", cell.source)
    assert count == 1
    compile(cell.source, path.name, "exec")  # what is left for the reader is a program
    # the check is in the same cell, or in the next
    following = [one for one in notebook.cells[number:] if one.cell_type == "code"][:2]
    assert any("assert " in one.source for one in following)
    with pytest.raises(nbclient.exceptions.CellExecutionError) as caught:
        run(notebook)
    asked = {line for one in following for line in one.source.splitlines()}
    assert any(line.strip() and line.strip() in str(caught.value) for line in asked)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_says_at_its_end_that_its_claims_hold(path):
    notebook = nbformat.read(path, as_version=4)
    last = notebook.cells[-1]
    assert "assert " in last.source
    assert last.outputs[-1].text == "all claims hold\n"
