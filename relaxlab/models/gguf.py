"""A memory-mapped reader of GGUF, the file format of llama.cpp's models.

Opening reads the header only: metadata becomes Python values, tensors stay in the file until asked
for. We keep a reader of our own because the ``gguf`` package needs 2.2 s to open the 98 MB SmolLM2
file and trusts the file; here opening takes tens of milliseconds, and every count, length and
offset is checked against the file's size before it is used, so hostile bytes cost an error message
and nothing else. TVM has no counterpart.

Examples
--------
>>> from relaxlab.models.gguf import GGUFFile            # doctest: +SKIP
>>> file = GGUFFile.open("SmolLM2-135M-Instruct.Q4_1.gguf")   # doctest: +SKIP
>>> file.metadata["llama.block_count"], file.tensors["blk.0.ffn_up.weight"].shape  # doctest: +SKIP
(30, (1536, 576))
>>> weights = file.tensors["blk.0.ffn_up.weight"].dequantise()  # doctest: +SKIP
"""

import mmap
import os
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import overload

import numpy as np
from numpy.typing import NDArray

from relaxlab.models.dequantise import KINDS, TensorKind, dequantise

__all__ = ["GGUFError", "GGUFFile", "GGUFTensor", "GGUFValue", "Strings"]

_VERSIONS = (2, 3)
_MAX_DIMENSIONS = 4  # ggml's limit
_MAX_ENTRIES = 1 << 16  # of metadata or tensors: real files have some hundreds to thousands
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: Mapping[int, struct.Struct] = MappingProxyType(
    {
        0: struct.Struct("<B"),
        1: struct.Struct("<b"),
        2: struct.Struct("<H"),
        3: struct.Struct("<h"),
        4: struct.Struct("<I"),
        5: struct.Struct("<i"),
        6: struct.Struct("<f"),
        _BOOL: struct.Struct("<?"),
        10: struct.Struct("<Q"),
        11: struct.Struct("<q"),
        12: struct.Struct("<d"),
    }
)
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class GGUFError(ValueError):
    """A file is not the GGUF that its reader can use.

    The message names the section, the byte offset, what was expected and what was found.
    """


class Strings(Sequence[str]):
    """An array of strings, decoded one by one when asked for.

    A tokenizer's vocabulary and merges are a hundred thousand strings; remembering where each lies
    is all that opening a file needs.
    """

    def __init__(self, data: bytes, ends: Sequence[int], section: str, offset: int) -> None:
        self._data = data
        self._ends = ends
        self._section = section
        self._offset = offset

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        start = (self._ends[index - 1] if index else 0) + 8  # a length of 8 bytes precedes each
        return self._decode(start, self._ends[index])

    def __iter__(self) -> Iterator[str]:
        start = 8
        for end in self._ends:
            yield self._decode(start, end)
            start = end + 8

    def _decode(self, start: int, end: int) -> str:
        return _text(self._data[start:end], self._section, self._offset + start)

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3]))
        return f"Strings({len(self)}: {shown}{', ...' if len(self) > 3 else ''})"


GGUFValue = int | float | bool | str | NDArray[np.generic] | Strings
"""A metadata value: numbers, text, a read-only NumPy array of numbers, or strings."""


@dataclass(frozen=True, slots=True, eq=False)
class GGUFTensor:
    """Where one tensor lies in the file.

    Attributes
    ----------
    shape
        In NumPy's order, the slowest dimension first (the file stores them the other way round).
    kind
        How its values are packed.
    offset
        First byte in the file.
    data
        The packed bytes, ``uint8[n]``, mapped and read-only.
    """

    name: str
    shape: tuple[int, ...]
    kind: TensorKind
    offset: int
    data: NDArray[np.uint8] = field(repr=False)

    def dequantise(self, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the values as a new float32 array of ``shape``, or write them into ``out``.

        ``out`` must be contiguous and hold as many values; ValueError if it does not, or if we
        have no decoder for the kind (the message names the kinds we have).
        """
        try:
            return dequantise(self.kind, self.data, out).reshape(self.shape)
        except ValueError as error:
            raise GGUFError(f"tensor {self.name!r} at byte {self.offset}: {error}") from None


@dataclass(frozen=True, slots=True, eq=False)
class GGUFFile:
    """The header of an open file.

    Attributes
    ----------
    path, size
        The file and its length in bytes.
    version
        2 or 3.
    metadata
        Typed values by key, in the file's order.
    tensors
        Tensors by name, in the file's order. Each keeps the mapping alive; there is nothing to
        close.
    """

    path: Path
    size: int
    version: int
    alignment: int
    metadata: Mapping[str, GGUFValue] = field(repr=False)
    tensors: Mapping[str, GGUFTensor] = field(repr=False)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "GGUFFile":
        """Map the file and read its header.

        Raises
        ------
        GGUFError
            The bytes are not a whole, consistent GGUF file of version 2 or 3.
        OSError
            The file cannot be read.
        """
        path = Path(path)
        if path.is_fifo():  # would block for ever; a folder gives its own OSError below
            raise GGUFError(f"header at byte 0: expected a file, got the pipe {str(path)!r}")
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size < 24:
                raise GGUFError(
                    f"header at byte 0: expected at least 24 bytes, got a file of {size} bytes"
                )
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return _parse(path, mapped)


def _text(raw: bytes, section: str, offset: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise GGUFError(
            f"{section} at byte {offset + error.start}: expected UTF-8 text, got {raw[:32]!r}"
        ) from None


class _Cursor:
    """Reads forward and refuses to leave the file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.size = len(data)
        self.at = 0
        self.section = "header"

    def fail(self, expected: str, got: object, at: int | None = None) -> GGUFError:
        where = self.at if at is None else at
        return GGUFError(f"{self.section} at byte {where}: expected {expected}, got {got}")

    def take(self, count: int) -> int:
        """Step over ``count`` bytes and return where they start."""
        start, left = self.at, self.size - self.at
        if count > left:
            raise self.fail(f"{count} more bytes", f"{left} (the file ends at {self.size})")
        self.at = start + count
        return start

    def u32(self) -> int:
        value: int = _U32.unpack_from(self.data, self.take(4))[0]
        return value

    def u64(self) -> int:
        value: int = _U64.unpack_from(self.data, self.take(8))[0]
        return value

    def count(self, of: str, each: int, limit: int | None = None) -> int:
        """Read a count of things that take at least ``each`` bytes of the file apiece."""
        at = self.at
        count = self.u64()
        left = self.size - self.at
        if count * each > left:
            raise self.fail(f"at most {left // each} {of} in the {left} bytes left", count, at)
        if limit is not None and count > limit:
            raise self.fail(f"at most {limit} {of}", count, at)
        return count

    def string(self) -> str:
        length = self.u64()
        start = self.take(length)
        return _text(self.data[start : self.at], self.section, start)

    def value(self) -> GGUFValue:
        code = self.u32()
        if code == _STRING:
            return self.string()
        if code == _ARRAY:
            return self._array()
        scalar = self._scalar(code)
        value: int | float | bool = scalar.unpack_from(self.data, self.take(scalar.size))[0]
        return value

    def _scalar(self, code: int) -> struct.Struct:
        scalar = _SCALARS.get(code)
        if scalar is None:
            raise self.fail("a value type from 0 to 12", code, self.at - 4)
        return scalar

    def _array(self) -> GGUFValue:
        code = self.u32()
        if code == _STRING:
            return self._strings(self.count("strings", 8))
        if code == _ARRAY:
            raise self.fail("an array of numbers or strings", "an array of arrays", self.at - 4)
        scalar = self._scalar(code)
        length = self.count("values", scalar.size)
        start = self.take(length * scalar.size)
        letter = scalar.format.replace("?", "B")
        numbers: NDArray[np.generic] = np.frombuffer(self.data, letter, length, start)
        return numbers != 0 if code == _BOOL else numbers

    def _strings(self, length: int) -> Strings:
        # The hot loop of opening: a vocabulary and its merges are ~100 000 strings.
        data, size, start, unpack = self.data, self.size, self.at, _U64.unpack_from
        at, ends = (
            start,
            array("Q"),
        )  # an array, so that a hostile file costs its own size and no more
        add = ends.append
        for _ in range(length):
            if at + 8 > size:
                self.take(size)  # raises, naming the end of the file
            at += 8 + unpack(data, at)[0]
            if at > size:
                self.at = start + (ends[-1] if ends else 0)
                raise self.fail("a string within the file", f"one that ends at byte {at}")
            add(at - start)
        self.at = at
        return Strings(data[start:at], ends, self.section, start)


def _parse(path: Path, data: mmap.mmap) -> GGUFFile:
    cursor = _Cursor(data)
    magic = data[cursor.take(4) : 4]
    if magic != b"GGUF":
        raise cursor.fail("the magic b'GGUF'", magic, 0)
    version = cursor.u32()
    if version not in _VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        hint = " (a big-endian file; only little-endian ones are read)" * (swapped in _VERSIONS)
        raise cursor.fail("version 2 or 3", f"{version}{hint}", 4)
    tensor_count = cursor.count("tensors", 24, _MAX_ENTRIES)
    metadata = _metadata(cursor, cursor.count("metadata entries", 13, _MAX_ENTRIES))

    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 8 or alignment % 8 or alignment > 1 << 20:
        raise cursor.fail("general.alignment to be a multiple of 8 up to 1 MiB", repr(alignment))
    tensors = _tensors(cursor, tensor_count, alignment)
    return GGUFFile(
        path, cursor.size, version, alignment, MappingProxyType(metadata), MappingProxyType(tensors)
    )


def _metadata(cursor: _Cursor, count: int) -> dict[str, GGUFValue]:
    metadata: dict[str, GGUFValue] = {}
    for index in range(count):
        cursor.section = f"metadata entry {index} of {count}"
        key = cursor.string()
        cursor.section += f" ({key!r:.80})"
        if key in metadata:
            raise cursor.fail("each key once", "a second one")
        metadata[key] = cursor.value()
    return metadata


def _tensors(cursor: _Cursor, count: int, alignment: int) -> dict[str, GGUFTensor]:
    infos: dict[str, tuple[tuple[int, ...], TensorKind, int, int, int]] = {}
    for index in range(count):
        cursor.section = f"tensor entry {index} of {count}"
        name = cursor.string()
        cursor.section += f" ({name!r:.80})"
        if name in infos:
            raise cursor.fail("each tensor name once", "a second one")
        shape, kind, nbytes = _tensor_type(cursor)
        infos[name] = (shape, kind, nbytes, cursor.u64(), cursor.at - 8)

    base = -(-cursor.at // alignment) * alignment
    tensors: dict[str, GGUFTensor] = {}
    spans: list[tuple[int, int, str]] = []
    for name, (shape, kind, nbytes, relative, at) in infos.items():
        cursor.section = f"data offset of tensor {name!r:.80}"
        start = base + relative
        if relative % alignment:
            raise cursor.fail(f"a multiple of {alignment}", relative, at)
        if start + nbytes > cursor.size:
            raise cursor.fail(
                f"{nbytes} bytes of {kind.name}{list(shape)} from byte {start} on",
                f"a file that ends at byte {cursor.size}",
                at,
            )
        data = np.frombuffer(cursor.data, np.uint8, nbytes, start)
        tensors[name] = GGUFTensor(name, shape, kind, start, data)
        spans.append((start, start + nbytes, name))
    # Overlapping tensors would let a small file claim any amount of memory.
    for (_, end, before), (start, _, name) in pairwise(sorted(spans)):
        if start < end:
            cursor.section = f"data offset of tensor {name!r:.80}"
            raise cursor.fail(f"data after {before!r:.80}, from byte {end} on", start, start)
    return tensors


def _tensor_type(cursor: _Cursor) -> tuple[tuple[int, ...], TensorKind, int]:
    at = cursor.at
    rank = cursor.u32()
    if not 1 <= rank <= _MAX_DIMENSIONS:
        raise cursor.fail(f"1 to {_MAX_DIMENSIONS} dimensions", rank, at)
    dims = tuple(cursor.u64() for _ in range(rank))
    code = cursor.u32()
    kind = KINDS.get(code)
    if kind is None:
        known = ", ".join(f"{k.code} {k.name}" for k in KINDS.values())
        raise cursor.fail(f"a tensor kind ({known})", code, cursor.at - 4)
    values = 1
    for dim in dims:
        if dim < 1:
            raise cursor.fail("dimensions of at least 1", list(dims), at + 4)
        values *= dim
    if dims[0] % kind.values:
        raise cursor.fail(
            f"rows of {kind.name} to be a multiple of {kind.values} values", dims[0], at + 4
        )
    return dims[::-1], kind, values // kind.values * kind.nbytes
