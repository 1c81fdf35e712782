"""The library blob: what TVM puts into an exported library beside the machine code.

It is a tree of modules. The root of a Relax library is the executable; below it are the shared
library itself (``_lib``) and whatever else the program imports. Counterpart: the writer in TVM's
``export_library`` and ``runtime.ModulePackImportsToTensor``.

Layout, little-endian: ``u64`` size of what follows; the tree as two vectors of ``u64`` (row
pointers and children, as in a sparse matrix); for each module its kind as a string and, unless that
is ``_lib``, its bytes as another.

Examples
--------
>>> import struct
>>> body = struct.pack("<5Q4s", 2, 0, 0, 0, 4, b"_lib")
>>> [module.kind for module in read_blob(memoryview(struct.pack("<Q", len(body)) + body))]
['_lib']
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from relaxlab.runtime.vm.serialize import ByteReader

__all__ = ["BlobModule", "LIBRARY_KIND", "looks_like_blob", "read_blob"]

LIBRARY_KIND: Final = "_lib"
"""Kind of the module that stands for the shared library itself."""

_MIN_MODULE_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class BlobModule:
    """One module of the tree.

    Attributes
    ----------
    kind
        Its kind, such as ``relax.VMExecutable``.
    payload
        Its bytes; empty for ``_lib``.
    at
        Offset of the payload in the file.
    """

    kind: str
    payload: memoryview
    at: int


def looks_like_blob(view: memoryview) -> bool:
    """Whether the first number is the size of what follows it."""
    return len(view) >= 24 and int.from_bytes(view[:8], "little") == len(view) - 8


def read_blob(view: memoryview, base: int = 0) -> list[BlobModule]:
    """Return the modules of a blob; the first one is the root, which imports the others.

    Parameters
    ----------
    view
        Starts with the blob; what follows it is left alone.
    base
        Offset of the blob in its file.

    Raises
    ------
    InternalError
        For altered or cut bytes, and for a tree that is none.
    """
    outer = ByteReader(view, "library blob", base)
    outer.section = "size"
    size = outer.count("bytes", 1)
    reader = ByteReader(outer.take(size, "the blob"), "library blob", base + 8)
    reader.section = "import tree"
    start = reader.at
    rows = reader.words("row pointers").tolist()
    children = reader.words("children").tolist()
    ordered = all(a <= b for a, b in pairwise(rows))
    if len(rows) < 2 or rows[0] != 0 or not ordered or rows[-1] != len(children):
        raise reader.error(
            f"{len(rows)} row pointers for {len(children)} children: expected one for each module "
            "and one more, from 0 up to the number of children",
            start,
        )
    count = len(rows) - 1
    if not all(0 <= child < count for child in children):
        raise reader.error(f"an imported module does not exist, there are {count}", start)
    reader.section = "modules"
    if count * _MIN_MODULE_BYTES > reader.left:
        raise reader.error(f"{count} modules need more than the {reader.left} bytes that are left")
    modules = []
    for _ in range(count):
        kind = reader.string("a module kind")
        payload, at = memoryview(b""), 0
        if kind != LIBRARY_KIND:
            length = reader.count(f"bytes of module {kind!r}", 1)
            at = reader.base + reader.at
            payload = reader.take(length, "a module")
        modules.append(BlobModule(kind, payload, at))
    reader.finish()
    return modules
