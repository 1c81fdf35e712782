"""Files that are written whole or not at all.

What is being written has another name until everything is ready, so a failure in the middle leaves
the old files as they were. Counterpart: none.

Examples
--------
>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> with StagedFiles() as files:
...     files.write(folder / "a", b"1")
...     print(list(folder.glob("a")))
[]
>>> (folder / "a").read_bytes()
b'1'
"""

import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["StagedFiles", "write_whole"]


class StagedFiles:
    """Files that appear at the end of the ``with`` block, in the order they were written."""

    def __init__(self) -> None:
        self._staged: dict[Path, Path] = {}

    def write(self, path: str | os.PathLike[str], data: bytes | bytearray) -> None:
        """Write a file under another name for now; a second one of the same path replaces it."""
        target = Path(path)
        partial = self._staged.get(target)
        if partial is None:
            partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
            self._staged[target] = partial
        partial.write_bytes(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                for target, partial in self._staged.items():
                    partial.replace(target)
        finally:
            for partial in self._staged.values():
                partial.unlink(missing_ok=True)


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write one file; the old one stays until the new one is whole."""
    with StagedFiles() as files:
        files.write(path, data)
