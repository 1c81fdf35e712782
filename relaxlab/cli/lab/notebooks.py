"""Where the notebooks are: beside the package in a checkout, inside it in an installed wheel.

An installed package may be read-only and is nobody's place to write, so its notebooks are copied to
a work folder before they are opened. A checkout's notebooks are opened where they are.

Examples
--------
>>> (find_notebooks() / TOUR).exists()
True
"""

from pathlib import Path

import relaxlab
from relaxlab.cli import Mistake
from relaxlab.runtime.staged_files import write_whole

__all__ = ["TOUR", "WORK_FOLDER", "find_notebooks", "work_folder"]

TOUR = "00_tour.ipynb"
WORK_FOLDER = "relaxlab-notebooks"

_PACKAGE = Path(relaxlab.__file__).resolve().parent
_INSTALLED = _PACKAGE / "_notebooks"


def find_notebooks() -> Path:
    """Return the folder that holds the tour; a missing tour is a :class:`Mistake`."""
    checkout = _PACKAGE.parent / "notebooks"
    for folder in (checkout, _INSTALLED):
        if (folder / TOUR).is_file():
            return folder
    raise Mistake(
        f"the tour is missing: expected {TOUR} in {checkout} (a checkout) or {_INSTALLED} "
        "(an installed wheel); install relaxlab again"
    )


def work_folder(notebooks: Path, here: Path) -> tuple[Path, Path]:
    """Return a folder to serve and, relative to it, the folder of the notebooks to open.

    Parameters
    ----------
    notebooks
        What :func:`find_notebooks` returned.
    here
        Where a copy of an installed wheel's notebooks may go. A file that is already in the copy is
        kept: it may hold a reader's answers.

    Returns
    -------
    tuple[Path, Path]
        The root for the server, and the notebooks' folder relative to that root.
    """
    if notebooks != _INSTALLED:
        return notebooks.parent, Path(notebooks.name)
    copy = here / WORK_FOLDER
    copy.mkdir(exist_ok=True)
    for source in sorted(notebooks.iterdir()):
        target = copy / source.name
        if source.is_file() and not target.exists():
            # whole: what is there is kept the next time
            write_whole(target, source.read_bytes())
    return here, Path(WORK_FOLDER)
