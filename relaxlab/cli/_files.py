"""Reading a file that the user names, and writing one that he asked for.

What goes wrong is told with the name he gave, and, where the file is of another kind, with what it
is and which command wants it. A module whose name begins with an underscore is no command.

Examples
--------
>>> import tempfile
>>> model = Path(tempfile.mkdtemp()) / "x.bin"
>>> _ = model.write_bytes(b"GGUF, and so on")
>>> with reading(model, PROGRAM):
...     raise ValueError("x.bin: no executable")
Traceback (most recent call last):
ValueError: x.bin: no executable; it looks like a GGUF model: see relaxlab generate --help
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from relaxlab.errors import InternalError
from relaxlab.runtime.vm import VMExecutable
from relaxlab.runtime.vm.serialize import MAGIC_V1, MAGIC_V2

__all__ = ["FILE_HELP", "MODEL", "PROGRAM", "load_unverified", "reading", "writing"]

PROGRAM: Final = "program"
MODEL: Final = "model"

FILE_HELP: Final = (
    "an executable that write_to_file wrote, or a library that export_library wrote, here (.rlx) "
    "or in TVM (.so, ...)"
)

# How files of a kind begin, what such a file is for, and what to say of it.
_KINDS: Final = (
    (b"GGUF", MODEL, "a GGUF model: see relaxlab generate --help"),
    (struct.pack("<Q", MAGIC_V2), PROGRAM, "a Relax executable: see relaxlab dis --help"),
    (struct.pack("<Q", MAGIC_V1), PROGRAM, "a Relax executable: see relaxlab dis --help"),
    (b"PK\3\4", PROGRAM, "a library of relaxlab, or another zip archive"),
    (b"\x7fELF", PROGRAM, "a shared library: see relaxlab dis --help"),
    (b"\x93NUMPY", "array", "a NumPy array: relaxlab step takes it as an argument"),
    (b"\x89PNG", "picture", "a picture"),
    (b"<!DOCTYPE html", "page", "a page: open it in a browser"),
)


def load_unverified(path: Path) -> VMExecutable:
    """Read a program of any form without judging it, as what looks at a program must."""
    with reading(path, PROGRAM):
        return VMExecutable.load_from_file(path, verify=False)


@contextmanager
def reading(path: str | os.PathLike[str], expected: str) -> Iterator[None]:
    """Add to the error of a block that reads a file what the file is, if it is of another kind.

    Parameters
    ----------
    path
        The file.
    expected
        What it should be: `PROGRAM` or `MODEL`.
    """
    try:
        yield
    except (InternalError, ValueError) as error:
        if not Path(path).is_file():
            raise  # what a pipe held is gone
        with Path(path).open("rb") as stream:
            start = stream.read(16)
        for magic, use, words in _KINDS:
            if start.startswith(magic) and use != expected:
                kind = InternalError if isinstance(error, InternalError) else ValueError
                raise kind(f"{error}; it looks like {words}") from error
        raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name ``path`` in an OSError of the block, which may be of a draft under another name."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
