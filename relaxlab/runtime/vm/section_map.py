"""Where the parts of an executable lie in its file.

For readers who look at the bytes: each section with its offset and length, and what it holds.
Counterpart: ``readelf -S`` for other files; TVM has none.

Examples
--------
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> for section in section_map(VMExecutable().save_to_bytes(), "empty.bin")[:3]:
...     print(section)
       0       8  header               magic number 0xd225de2f4214151e, format V2
       8      12  version              0.14
      20       8  function table       0 functions
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from relaxlab.runtime.vm.library_file import Contents, read_library
from relaxlab.runtime.vm.serialize import MAGIC_V1, VERSION, ByteReader, read_sections

__all__ = ["Section", "section_map"]


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a file.

    Attributes
    ----------
    name
        What it is called in error messages too.
    offset, size
        Its bytes; in a saved library, offsets are inside the member ``executable.bin``.
    content
        What it holds, in words.
    """

    name: str
    offset: int
    size: int
    content: str

    def __str__(self) -> str:
        return f"{self.offset:8}{self.size:8}  {self.name:20} {self.content}"


class _MarkingReader(ByteReader):
    """A reader that remembers where each section begins."""

    def __init__(self, data: memoryview, base: int) -> None:
        self.marks: list[tuple[str, int]] = []
        super().__init__(data, base=base)

    @property
    def section(self) -> str:
        return self.marks[-1][0]

    @section.setter
    def section(self, name: str) -> None:
        self.marks.append((name, self.at))


def section_map(data: bytes | bytearray | memoryview, origin: str) -> list[Section]:
    """Return the sections of an executable, in the order of its file.

    Parameters
    ----------
    data
        A file of any form that ``VMExecutable.load_from_bytes`` reads.
    origin
        Its name, for messages.

    Raises
    ------
    InternalError
        If it holds no executable.
    """
    contents = read_library(data, origin)
    reader = _MarkingReader(contents.raw, contents.at)
    magic = reader.number("Q", "the magic number")
    sections = read_sections(reader, has_scopes=magic != MAGIC_V1)
    words = {
        "header": f"magic number {magic:#x}, format {'V1' if magic == MAGIC_V1 else 'V2'}",
        "version": VERSION,
        "function table": _count(len(sections.func_table), "function"),
        "memory scopes": _count(len(sections.memory_scopes), "scope"),
        "constants": _count(len(sections.constants), "constant"),
        "instruction offsets": _count(len(sections.instr_offset), "instruction"),
        "instruction data": _count(len(sections.instr_data), "word"),
    }
    ends = [at for _, at in reader.marks[1:]] + [reader.at]
    found = [
        Section(name, contents.at + at, end - at, words[name])
        for (name, at), end in zip(reader.marks, ends, strict=True)
    ]
    return [*_around(contents, len(data), reader.at), *found]


def _around(contents: Contents, total: int, size: int) -> Iterator[Section]:
    """Yield what holds the executable, if something does."""
    if contents.form == "saved library":
        kernels = sum(len(library.names) for library in _saved(contents))
        yield Section(
            contents.form, 0, total, f"executable.bin of {size} bytes, {_count(kernels, 'kernel')}"
        )
    elif contents.form != "executable":
        kinds = ", ".join(library.kind for library in contents.imports)
        yield Section(
            contents.form, 0, total, f"executable at byte {contents.at}; imports {kinds or 'none'}"
        )


def _saved(contents: Contents) -> Iterator[Any]:
    pending = list(contents.imports)
    while pending:
        library = pending.pop()
        yield library
        pending += library.imports


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
