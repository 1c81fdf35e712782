"""``relaxlab course``: the students' notebooks, and the web site (opened in tests/browser)."""

import json
import re
from pathlib import Path

import pytest

from relaxlab.cli import main
from relaxlab.cli.course import site
from relaxlab.cli.course.release import without_solutions

REPOSITORY = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))


def test_the_release_has_every_notebook_and_no_solution_of_its_exercises(tmp_path, capsys):
    out = tmp_path / "handout"
    assert main(["course", "release", str(out)]) == 0
    assert "00_tour.ipynb" in capsys.readouterr().out
    assert [path.name for path in sorted(out.glob("*.ipynb"))] == [one.name for one in NOTEBOOKS]
    for path in NOTEBOOKS:
        source, released = (
            json.loads(one.read_text("utf-8"))["cells"] for one in (path, out / path.name)
        )
        assert len(source) == len(released)
        stubs = 0
        for before, after in zip(source, released, strict=True):
            text = "".join(after["source"])
            assert "SOLUTION" not in text
            stubs += "# YOUR CODE HERE" in text
            assert after["metadata"] == before["metadata"]
            if after["cell_type"] == "code":
                assert after["outputs"] == []
                assert after["execution_count"] is None
        assert stubs >= 1


def test_the_teachers_copy_is_what_was_written(tmp_path, capsys):
    out = tmp_path / "source"
    assert main(["course", "release", "--solutions", str(out)]) == 0
    assert "00_tour.ipynb" in capsys.readouterr().out
    for path in NOTEBOOKS:
        before, after = (json.loads(one.read_text("utf-8")) for one in (path, out / path.name))
        assert before == after
    assert (out / "tvm_library.so").exists()


def test_the_site_shows_solutions_to_teachers_only(tmp_path, monkeypatch):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    solution = "answer = 0\n### BEGIN SOLUTION\nanswer = 41 + 1\nprint(answer)\n### END SOLUTION"
    cell = {"cell_type": "code", "id": "b", "metadata": {}, "outputs": [], "execution_count": None}
    notebook = {
        "cells": [
            {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Title\n\nAbout."},
            {**cell, "source": solution},
            {**cell, "id": "c", "source": "assert answer == 42"},
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "x", "language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (folder / "00_x.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    monkeypatch.setattr(site, "find_notebooks", lambda: folder)
    monkeypatch.setattr(site, "_reference", lambda out: {})
    texts = []
    for options in ([], ["--solutions"]):
        out = tmp_path / f"out{len(options)}"
        assert main(["course", "site", *options, str(out)]) == 0
        page = (out / "00_x.html").read_text("utf-8")
        texts.append(re.sub(r"<[^>]*>", "", page.partition("<main>")[2]))
    for_students, for_teachers = texts
    assert "# YOUR CODE HERE" in for_students
    assert "41" not in for_students
    assert "42\n" not in for_students.replace("assert answer == 42\n", "")
    assert "answer = 41 + 1" in for_teachers


@pytest.mark.parametrize("source", ["### BEGIN SOLUTION\nx = 1\n", "x = 1\n### END SOLUTION\n"])
def test_half_a_mark_is_refused(source):
    with pytest.raises(ValueError, match="no partner"):
        without_solutions(source)


def test_a_solution_keeps_its_indentation_and_its_neighbours():
    source = "for i in x:\n    ### BEGIN SOLUTION\n    y = i\n    ### END SOLUTION\n    z = 1"
    assert without_solutions(source) == "for i in x:\n    # YOUR CODE HERE\n    z = 1"


@pytest.mark.parametrize("what", ["release", "site"])
def test_a_folder_in_use_is_left_alone(what, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    for out in ("full", "file", "no/such/folder"):
        assert main(["course", what, str(tmp_path / out)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_cell_that_fails_leaves_no_site(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    notebook = {
        "cells": [
            {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Title\n\nAbout."},
            {
                "cell_type": "code",
                "id": "b",
                "metadata": {},
                "source": "raise ValueError('no')",
                "outputs": [],
                "execution_count": None,
            },
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "x", "language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (folder / "00_x.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    monkeypatch.setattr(site, "find_notebooks", lambda: folder)
    assert main(["course", "site", str(tmp_path / "out")]) == 2
    assert "00_x.ipynb: a cell failed: ValueError: no" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notebooks"]
