"""What the repository promises about itself: layout, README, notebooks, dependencies, Binder."""

import json
import os
import re
import shutil
import stat
import struct
import subprocess
import tomllib
from pathlib import Path

import pytest

from relaxlab.widgets import demos

REPOSITORY = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
LAB_COMMAND = "python -m pip install -e . && relaxlab lab"
TEST_COMMAND = "python -m pip install -e '.[test]' && python -m pytest"


def tracked() -> list[str]:
    if shutil.which("git") is None or not (REPOSITORY / ".git").exists():
        pytest.skip("the list of tracked files needs git and a clone")
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return [name for name in done.stdout.split("\0") if name]


def text_of(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)


def code_cells(path: Path) -> list[dict]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_the_top_level_holds_nothing_else():
    top = {name.partition("/")[0] for name in tracked()}
    assert {name for name in top if not name.startswith(".")} == {
        "LICENSE",
        "README.md",
        "binder",
        "notebooks",
        "pyproject.toml",
        "relaxlab",
        "tests",
    }


def test_no_file_has_a_name_that_says_nothing():
    vague = {"utils.py", "helpers.py", "common.py", "core.py"}
    assert [name for name in tracked() if name.rpartition("/")[2] in vague] == []


def test_the_licence_is_apache():
    text = (REPOSITORY / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert PYPROJECT["project"]["license"] == "Apache-2.0"


def test_every_dependency_says_why_it_is_here():
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    groups = PYPROJECT["project"]["optional-dependencies"]
    wanted = [
        *PYPROJECT["project"]["dependencies"],
        *(r for group in groups.values() for r in group),
    ]
    for requirement in wanted:
        line = rf'^\s*"{re.escape(requirement)}",\s+# \S+ \S+'
        assert re.search(line, text, re.MULTILINE), f"{requirement} has no reason"


def test_the_extras_are_the_promised_ones():
    extras = set(PYPROJECT["project"]["optional-dependencies"])
    promised = {"cuda", "dev", "llm", "mpi", "onnx", "render", "test", "tvm", "tvmffi"}
    assert extras == promised


def test_the_import_contracts_hide_nothing():
    config = PYPROJECT["tool"]["importlinter"]
    layers, runtime = config["contracts"]
    assert layers["type"] == "layers"
    assert layers["exhaustive"] is True
    assert layers["containers"] == ["relaxlab"]
    for contract in (layers, runtime):
        assert not [key for key in contract if "ignore" in key]
    assert not [key for key in config if "ignore" in key or "exclude" in key]


def test_the_runtime_contract_forbids_everything_above_it():
    _, runtime = PYPROJECT["tool"]["importlinter"]["contracts"]
    assert runtime["type"] == "forbidden"
    assert runtime["source_modules"] == ["relaxlab.runtime"]
    package = REPOSITORY / "relaxlab"
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    modules |= {path.parent.name for path in package.glob("*/__init__.py")}
    above = {f"relaxlab.{name}" for name in modules - {"errors", "registry", "runtime"}}
    required = {re.split(r"[<>=]", line)[0] for line in PYPROJECT["project"]["dependencies"]}
    assert set(runtime["forbidden_modules"]) == above | (required - {"numpy", "ml_dtypes"})


def test_the_readme_starts_with_the_two_commands():
    assert len(README.splitlines()) <= 180
    blocks = re.findall(r"```\w*\n(.*?)```", README, re.DOTALL)
    commands = [line for block in blocks for line in block.strip().splitlines()]
    assert commands[:2] == [LAB_COMMAND, TEST_COMMAND]


def test_the_readme_links_only_to_files_that_exist():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (REPOSITORY / link).exists()] == []


def test_the_readmes_pictures_are_small_and_come_light_and_dark():
    shown = re.findall(
        r'<picture><source media="\(prefers-color-scheme: dark\)" srcset="(\S+)-dark\.png">\s*'
        r'<img src="(\S+)-light\.png" alt="[^"]{20,}"></picture>',
        README,
    )
    assert shown
    assert all(dark == light for dark, light in shown)
    named = {f"{place}-{theme}.png" for place, _ in shown for theme in ("light", "dark")}
    folder = REPOSITORY / "notebooks" / "pictures"
    assert {f"notebooks/pictures/{path.name}" for path in folder.iterdir()} == named
    for name in named:
        data = (REPOSITORY / name).read_bytes()
        assert data.startswith(b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", data[16:24])
        assert 1600 <= width <= 2400
        assert 800 <= height <= 2000
        assert len(data) <= 150_000


def test_the_readme_lists_the_exported_demos():
    for name in demos.names():
        assert f"\n   - `{name}.html`: " in README


def test_ci_runs_the_readmes_test_command():
    script = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    assert TEST_COMMAND in script.replace("install -q -e", "install -e")
    for step in ("ruff format --check", "ruff check", "mypy", "lint-imports", "relaxlab model get"):
        assert f"\n{step}" in script
    assert "RELAXLAB_REQUIRE_BROWSER=1" in script
    assert os.access(REPOSITORY / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_executed_in_small_cells(path):
    cells = code_cells(path)
    assert cells
    for cell in cells:
        source = text_of(cell["source"])
        # A stripped notebook would pass every comparison of outputs.
        assert isinstance(cell["execution_count"], int), source
        assert len(source.splitlines()) <= 15, source
    counts = [cell["execution_count"] for cell in cells]
    assert counts == list(range(1, len(counts) + 1)), "run it once, from top to bottom"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_keeps_no_view_and_no_error(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert "widgets" not in notebook["metadata"]
    for cell in code_cells(path):
        tags = cell["metadata"].get("tags", [])
        kinds = {output["output_type"] for output in cell["outputs"]}
        assert "error" not in kinds or "raises-exception" in tags
        assert "/ipykernel_" not in json.dumps(cell["outputs"])


def test_binder_builds_this_repository():
    folder = REPOSITORY / "binder"
    assert {path.name for path in folder.iterdir()} == {
        "apt.txt",
        "requirements.txt",
        "runtime.txt",
        "start",
    }
    runtime = (folder / "runtime.txt").read_text(encoding="utf-8")
    match = re.fullmatch(r"python-3\.(\d+)\n", runtime)
    assert match
    assert int(match[1]) >= 11
    requirements = [
        line
        for line in (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    assert requirements == ["-e ."]
    packages = (folder / "apt.txt").read_text(encoding="utf-8").split()
    assert packages == ["graphviz"]
    start = folder / "start"
    lines = start.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("#!")
    assert lines[-1] == 'exec "$@"'
    assert start.stat().st_mode & stat.S_IXUSR
    assert "?urlpath=lab/tree/notebooks/00_tour.ipynb" in README


def test_binder_start_runs_what_it_is_given():
    done = subprocess.run(
        [REPOSITORY / "binder" / "start", "printf", "%s|", "a b", "c"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "a b|c|"
