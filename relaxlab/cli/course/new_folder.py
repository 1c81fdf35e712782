"""A folder that appears whole, or not at all.

Examples
--------
>>> import tempfile
>>> here = Path(tempfile.mkdtemp())
>>> with new_folder(here / "out") as draft:
...     _ = (draft / "a.txt").write_text("a")
...     print((here / "out").exists())
False
>>> [path.name for path in (here / "out").iterdir()]
['a.txt']
"""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relaxlab.cli import Mistake
from relaxlab.cli._files import writing

__all__ = ["new_folder"]


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Give a folder to write into; it becomes ``out`` at the end of the block.

    An empty folder is taken over. If the block raises, nothing is left behind.

    Raises
    ------
    Mistake
        If ``out`` is a file or holds something, or its parent does not exist.
    """
    target = out.absolute()
    if target.is_dir() and any(target.iterdir()):
        raise Mistake(f"{out} is not empty: name a folder that does not exist yet")
    if target.exists() and not target.is_dir():
        raise Mistake(f"{out} is a file: name a folder that does not exist yet")
    if not target.parent.is_dir():
        raise Mistake(f"no folder {target.parent} to make {target.name} in")
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    with writing(out):
        draft.mkdir()
    try:
        yield draft
        if target.is_dir():
            target.rmdir()
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
