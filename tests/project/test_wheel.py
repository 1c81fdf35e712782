"""An installed wheel holds what a checkout holds: code, views, notebooks."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

REPOSITORY = Path(__file__).resolve().parents[2]
NOT_SHIPPED = {"__pycache__", ".ipynb_checkpoints"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    (path,) = WheelBuilder(str(REPOSITORY)).build(directory=str(folder))
    return Path(path)


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    shipped = [
        path
        for folder in ("relaxlab", "notebooks")
        for path in (REPOSITORY / folder).rglob("*")
        if path.is_file() and not NOT_SHIPPED & set(path.parts)
    ]
    assert shipped
    for path in shipped:
        name = path.relative_to(REPOSITORY).as_posix()
        if name.startswith("notebooks/"):
            name = name.replace("notebooks/", "relaxlab/_notebooks/", 1)
        assert name in names
    assert {name.partition("/")[0] for name in names} == {"relaxlab", wheel_info(names)}


def wheel_info(names: set[str]) -> str:
    (folder,) = {name.partition("/")[0] for name in names if name.endswith("/METADATA")}
    return folder


def test_an_installed_wheel_finds_its_notebooks(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    program = """
from pathlib import Path
import relaxlab.cli.lab.notebooks as notebooks
folder = notebooks.find_notebooks()
print(folder)
print(*notebooks.work_folder(folder, Path.cwd()))
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    here = tmp_path / "here"
    here.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        str(tmp_path / "site" / "relaxlab" / "_notebooks"),
        f"{here} relaxlab-notebooks",
    ]
    assert (here / "relaxlab-notebooks" / "00_tour.ipynb").is_file()
