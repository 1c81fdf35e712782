"""Every field of an executable's file: which bytes say what.

The section map tells where the large parts lie; this tells it for each count, length, name, number
and word, with what the bytes mean. Fields follow one another without gaps, from the first byte of
the executable to its last. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> for field in field_map(VMExecutable().save_to_bytes(), "empty.bin")[:3]:
...     print(field)
       0  1e 15 14 42 2f de 25 d2  the magic number: 0xd225de2f4214151e
       8  04 00 00 00 00 00 00 00  the number of bytes of the version: 4
      16  30 2e 31 34              the version: '0.14'
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.runtime.vm.bytecode import VMFuncKind
from relaxlab.runtime.vm.executable import VMExecutable
from relaxlab.runtime.vm.library_file import Contents, read_library
from relaxlab.runtime.vm.listing import words_of
from relaxlab.runtime.vm.serialize import (
    MAGIC_V1,
    ByteReader,
    ConstantKind,
    Sections,
    read_sections,
)

__all__ = ["Field", "field_map"]

_BYTES_SHOWN: Final = 8
_TEXT_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Field:
    """Some consecutive bytes with one meaning.

    Attributes
    ----------
    section
        The section they are in, as :func:`relaxlab.runtime.vm.section_map.section_map` calls it.
    offset, size
        Their place in the file (in a saved library, in the member ``executable.bin``).
    head
        The first of the bytes, at most 8.
    what
        What they are.
    value
        What they say; empty where they are mere data.
    pc
        The instruction they belong to, or None.
    """

    section: str
    offset: int
    size: int
    head: bytes
    what: str
    value: str = ""
    pc: int | None = None

    @property
    def hex(self) -> str:
        """The first bytes in hexadecimal; an ellipsis where there are more."""
        return self.head.hex(" ") + (" ..." if self.size > len(self.head) else "")

    @property
    def meaning(self) -> str:
        """What the bytes are and say."""
        return f"{self.what}: {self.value}" if self.value else self.what

    def __str__(self) -> str:
        return f"{self.offset:8}  {self.hex:{3 * _BYTES_SHOWN - 1}}  {self.meaning}"


class _FieldReader(ByteReader):
    """A reader that notes every field it reads; the vectors of words are noted by their count."""

    def __init__(self, data: memoryview, base: int) -> None:
        super().__init__(data, base=base)
        self.fields: list[Field] = []
        self._seen = {"a function kind": 0, "a constant kind": 0}

    def take(self, count: int, what: str) -> memoryview:
        at = self.at
        taken = super().take(count, what)
        self.fields.append(self._field(at, taken, what))
        return taken

    def _field(self, at: int, taken: memoryview, what: str) -> Field:
        head = bytes(taken[:_BYTES_SHOWN])
        value = _plain(taken, what)
        return Field(self.section, self.base + at, len(taken), head, _cut(what), value)

    def number(self, form: str, what: str) -> Any:
        value = super().number(form, what)
        self._say(self._numbered(what, value))
        return value

    def _numbered(self, what: str, value: Any) -> str:
        if what not in self._seen:
            return f"{value:#x}" if "magic" in what else str(value)
        index = self._seen[what]
        self._seen[what] += 1
        if what == "a function kind":
            return f"{value} ({_named(VMFuncKind, value)}), of function {index}"
        return f"{value} ({_named(ConstantKind, value)}), of c[{index}]"

    def string(self, what: str) -> str:
        text = super().string(what)
        self._say(repr(_cut(text)))
        return text

    def words(self, what: str) -> NDArray[np.int64]:
        values = super().words(what)
        if self.section != "constants":  # told word by word later
            self.fields.pop()
        return values

    def _say(self, value: str) -> None:
        last = self.fields[-1]
        self.fields[-1] = Field(
            last.section, last.offset, last.size, last.head, last.what, value, last.pc
        )


def field_map(data: bytes | bytearray | memoryview, origin: str) -> list[Field]:
    """Return the fields of an executable, in the order of its file.

    Parameters
    ----------
    data
        A file of any form that ``VMExecutable.load_from_bytes`` reads.
    origin
        Its name, for messages.

    Raises
    ------
    InternalError
        If it holds no executable, or an instruction that cannot be decoded.
    """
    contents = read_library(data, origin)
    reader = _FieldReader(contents.raw, contents.at)
    magic = reader.number("Q", "the magic number")
    sections = read_sections(reader, has_scopes=magic != MAGIC_V1)
    fields: list[Field] = []
    for field in reader.fields:
        fields.append(field)
        if field.what == "the number of instruction offsets":
            fields += _offsets(contents, sections, field)
        elif field.what == "the number of words of instructions":
            fields += _words(contents, sections, field)
    return fields


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_SHOWN else f"{text[: _TEXT_SHOWN - 1]}…"


def _named(kinds: type[IntEnum], value: int) -> str:
    known = {kind.value: kind.name.lower() for kind in kinds}
    return known.get(value, "unknown")


def _plain(taken: memoryview, what: str) -> str:
    """Say what the bytes hold that are read several numbers at a time."""
    match what.split(" of ")[0], len(taken):
        case "the numbers", 32:
            start, end, num_args, size = struct.unpack("<4q", taken)
            return f"instructions {start} to {end}, {num_args} parameters, {size} registers"
        case "a tensor header", 12:
            device, number, ndim = struct.unpack("<3i", taken)
            return f"device type {device}, device {number}, rank {ndim}"
        case "a dtype", 4:
            code, bits, lanes = struct.unpack("<BBH", taken)
            return f"code {code}, {bits} bits, {lanes} lane{'' if lanes == 1 else 's'}"
        case (("a tensor's shape" | "extents"), size) if size <= 256:
            return str(struct.unpack(f"<{size // 8}q", taken))
        case _:
            return ""


def _offsets(contents: Contents, sections: Sections, count: Field) -> Iterator[Field]:
    start = count.offset + count.size
    for pc, word in enumerate(sections.instr_offset.tolist()):
        head = struct.pack("<q", word)
        yield Field(
            count.section, start + 8 * pc, 8, head, f"start of instruction {pc}", f"word {word}", pc
        )


def _words(contents: Contents, sections: Sections, count: Field) -> Iterator[Field]:
    start = count.offset + count.size
    ex = VMExecutable(
        sections.func_table,
        sections.constants,
        sections.memory_scopes,
        sections.instr_offset,
        sections.instr_data,
    )
    for pc in range(ex.num_instructions):
        for word in words_of(ex, pc, ex.instruction(pc)):
            head = struct.pack("<q", word.value)
            place = start + 8 * word.at
            # a hostile file could repeat a very long name in every instruction
            yield Field(count.section, place, 8, head, _cut(word.meaning), "", pc)
