"""The students' notebooks: solutions and outputs removed, everything else as it is.

A solution stands between the lines ``### BEGIN SOLUTION`` and ``### END SOLUTION``, as nbgrader
marks it; ``# YOUR CODE HERE`` takes its place.

Examples
--------
>>> print(without_solutions('''y = 1
... ### BEGIN SOLUTION
... y = 2
... ### END SOLUTION
... y'''))
y = 1
# YOUR CODE HERE
y
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any, Final

from relaxlab.cli import Mistake
from relaxlab.cli.course.new_folder import new_folder
from relaxlab.cli.lab.notebooks import find_notebooks

__all__ = ["release", "without_solutions"]

_SOLUTION: Final = re.compile(
    r"^(?P<indent>[ \t]*)### BEGIN SOLUTION[ \t]*\n.*?^[ \t]*### END SOLUTION[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
_LEFT_OVER: Final = re.compile(r"### (BEGIN|END) SOLUTION")


def release(out: Path, *, solutions: bool = False) -> list[Path]:
    """Write the students' notebooks, or the teacher's.

    Parameters
    ----------
    out
        A folder that does not exist yet.
    solutions
        Whether solutions and outputs are left in: what ``nbgrader generate_assignment`` takes as
        its source, and what a teacher reads.

    Returns
    -------
    list of Path
        What was written.

    Raises
    ------
    Mistake
        If the folder exists, cannot be made, or a notebook marks a solution by half.
    """
    with new_folder(out) as draft:
        for source in sorted(find_notebooks().glob("*.ipynb")):
            notebook = json.loads(source.read_text(encoding="utf-8"))
            for cell in notebook["cells"]:
                if not solutions:
                    _clear(cell, source.name)
            text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
            (draft / source.name).write_text(text, encoding="utf-8")
        for extra in sorted(find_notebooks().glob("*.*")):
            if extra.suffix in (".png", ".svg", ".so", ".bin", ".rlx", ".npy"):
                shutil.copyfile(extra, draft / extra.name)
    return sorted(out.iterdir())


def _clear(cell: dict[str, Any], name: str) -> None:
    if cell["cell_type"] != "code":
        return
    source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
    try:
        cell["source"] = without_solutions(source).splitlines(keepends=True)
    except ValueError as error:
        raise Mistake(f"{name}: {error}") from None
    cell["outputs"] = []
    cell["execution_count"] = None


def without_solutions(source: str) -> str:
    """Return a cell's text with every solution replaced.

    Raises
    ------
    ValueError
        If a mark has no partner.
    """
    text = _SOLUTION.sub(lambda match: f"{match['indent']}# YOUR CODE HERE", source)
    if found := _LEFT_OVER.search(text):
        raise ValueError(f"{found[0]!r} has no partner")
    return text
