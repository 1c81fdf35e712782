"""The index arrays of a round: who reads which pages, who writes where.

Kernels find their way by int32 arrays. Attention sees a sequence's blocks at two depths: the root
at depth 0, all others at depth 1. A chunk is what one kernel work item reads: some rows of the
batch, and the pages of one block (at depth 1: of a block and those after it). Sequences that share
a block at depth 0 can be one chunk. All arrays of a round lie in one buffer, as in TVM's cached
auxiliary manager, each on a multiple of 16 bytes. Counterpart: kv.md 3.5 and 3.6.

Examples
--------
>>> arrays = IndexArrays()
>>> arrays.put("append_position_map", [8, 12, 16])
>>> arrays.put("mask", [0, 2, 1, 2], (2, 2))
>>> arrays.tensor("mask").array.tolist(), arrays.tensor("mask").byte_offset
([[0, 2], [1, 2]], 16)
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.kv.block import Block
from relaxlab.runtime.kv.sliding_window import layer_offset, layer_pages
from relaxlab.runtime.tensor import Tensor

__all__ = ["Chunk", "DepthTable", "IndexArrays", "coalesce", "page_ratio", "prefix_sums"]

_ALIGNMENT: Final = 4
_INT32: Final = DataType("int32")


class IndexArrays:
    """Named int32 arrays in one buffer.

    Arrays are put in first; taking the first tensor fixes the buffer.
    """

    def __init__(self) -> None:
        self._buffer = array("i")
        self._places: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._tensors: dict[str, Tensor] = {}
        self._page_tables: dict[str, tuple[Tensor, ...]] = {}

    def put(self, name: str, values: Iterable[int], shape: tuple[int, ...] | None = None) -> None:
        """Add an array; its shape is one-dimensional if not given."""
        start = len(self._buffer)
        self._buffer.extend(values)
        size = len(self._buffer) - start
        self._places[name] = (start, (size,) if shape is None else shape)
        if size % _ALIGNMENT:
            self._buffer.extend((0,) * (_ALIGNMENT - size % _ALIGNMENT))

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def names(self) -> list[str]:
        """Return the names of all arrays, in the order of the buffer."""
        return list(self._places)

    def tensor(self, name: str) -> Tensor:
        """Return an array as a tensor: a view of the buffer, the same one each time."""
        found = self._tensors.get(name)
        if found is None:
            start, shape = self._places[name]
            whole = np.frombuffer(self._buffer, np.int32) if self._buffer else _NOTHING
            size = 1
            for extent in shape:
                size *= extent
            view = whole[start : start + size].reshape(shape)
            found = self._tensors[name] = Tensor(view, _INT32, byte_offset=4 * start)
        return found

    def page_table(self, prefix: str, depth: int) -> tuple[Tensor, ...]:
        """Return what every kernel over pages is given, in order, of one depth.

        Page indptr, pages, lengths, position of the first key, positions of the queries.
        """
        key = f"{prefix}{depth}"
        found = self._page_tables.get(key)
        if found is None:
            names = ("page_indptr", "page_indices", "length_info", "k_rope_pos_offset")
            found = self._page_tables[key] = (
                *(self.tensor(f"{prefix}{name}.{depth}") for name in names),
                self.tensor("q_rope_position_map"),
            )
        return found

    def forget(self, name: str, start: int, count: int, value: int) -> None:
        """Overwrite a part of an array."""
        first, _ = self._places[name]
        self._buffer[first + start : first + start + count] = array("i", [value] * count)


_NOTHING: Final = np.empty(0, np.int32)


@dataclass(slots=True)
class Chunk:
    """Rows of the batch that read the same blocks.

    Attributes
    ----------
    rows
        How many rows of the batch.
    blocks
        What they read, in order; empty if the sequence has no block at this depth.
    """

    rows: int
    blocks: list[Block]

    @property
    def first(self) -> Block | None:
        """The block that decides whether neighbours can be one chunk."""
        return self.blocks[0] if self.blocks else None


def coalesce(chunks: list[Chunk]) -> list[Chunk]:
    """Merge neighbours that read the same block."""
    merged: list[Chunk] = []
    for chunk in chunks:
        if merged and merged[-1].first is chunk.first:
            merged[-1] = Chunk(merged[-1].rows + chunk.rows, chunk.blocks)
        else:
            merged.append(chunk)
    return merged


def page_ratio(plain: list[Chunk], merged: list[Chunk]) -> float:
    """Return how many times as many page reads the plain list needs; 0 if there are none."""

    def pages(chunks: list[Chunk]) -> int:
        return sum(len(chunk.blocks[0].pages) for chunk in chunks if chunk.blocks)

    total = pages(merged)
    return pages(plain) / total if total else 0.0


def prefix_sums(counts: Iterable[int]) -> "array[int]":
    """Return 0, c0, c0 + c1, ..."""
    sums, total = array("i", [0]), 0
    for count in counts:
        total += count
        sums.append(total)
    return sums


def _ints() -> "array[int]":
    return array("i")


@dataclass(slots=True)
class DepthTable:
    """The arrays of one depth; entry i of each belongs to chunk i.

    Attributes
    ----------
    qo_indptr, page_indptr
        Where the rows and the pages of each chunk begin, with the end.
    page_indices
        Pages of all chunks.
    last_page_len, offset, sink
        Used rows of the last page; the window's offset and sink.
    k_rope_pos_offset
        Position of the first key.
    """

    qo_indptr: "array[int]"
    page_indptr: "array[int]"
    page_indices: "array[int]" = field(default_factory=_ints)
    last_page_len: "array[int]" = field(default_factory=_ints)
    offset: "array[int]" = field(default_factory=_ints)
    sink: "array[int]" = field(default_factory=_ints)
    k_rope_pos_offset: "array[int]" = field(default_factory=_ints)

    @staticmethod
    def of(chunks: list[Chunk], *, exact: bool = False) -> "DepthTable":
        """Return the table of chunks as their blocks are now.

        A window counts rows from the beginning of the last block, kernels from the beginning of
        the chunk; with ``exact`` the difference is forgotten, as TVM does.
        """
        table = DepthTable(prefix_sums(chunk.rows for chunk in chunks), array("i", [0]))
        for chunk in chunks:
            if not chunk.blocks:
                table._add(0, 0, 0, 0)
                continue
            length = 0
            for block in chunk.blocks:
                table.page_indices.extend(block.pages)
                length += block.length
            last = chunk.blocks[-1]
            used = 0
            if length:
                used = (length - last.sink + last.offset - 1) % last.page_size + 1
            before = length - last.length if last.offset and not exact else 0
            table._add(used, before + last.offset, before + last.sink, chunk.blocks[0].start)
        return table

    @staticmethod
    def of_window(chunks: list[Chunk], window: int) -> "DepthTable":
        """Return the table for a layer that sees the last ``window`` tokens of each chunk."""
        table = DepthTable(prefix_sums(chunk.rows for chunk in chunks), array("i", [0]))
        for chunk in chunks:
            if not chunk.blocks:
                table._add(0, 0, 0, 0)
                continue
            last = chunk.blocks[-1]
            length = sum(block.length for block in chunk.blocks)
            pages = array("i")
            for block in chunk.blocks:
                pages.extend(block.pages)
            seen = layer_pages(length, window=window, page_size=last.page_size)
            table.page_indices.extend(pages[max(len(pages) - seen, 0) :])
            offset = layer_offset(length, window=window, page_size=last.page_size)
            used = 0
            if length:
                used = (length - last.sink + last.offset - 1) % last.page_size + 1
            start = max(0, chunk.blocks[0].start + length - window)
            table._add(used, offset, last.sink, start)
        return table

    def _add(self, used: int, offset: int, sink: int, start: int) -> None:
        self.page_indptr.append(len(self.page_indices))
        self.last_page_len.append(used)
        self.offset.append(offset)
        self.sink.append(sink)
        self.k_rope_pos_offset.append(start)

    def put_length_info(self, arrays: IndexArrays, name: str, *, rows: int) -> None:
        """Add the lengths, as one row or, where a window matters, as three."""
        count = len(self.last_page_len)
        if rows == 1:
            arrays.put(name, self.last_page_len)
        else:
            arrays.put(name, self.last_page_len + self.offset + self.sink, (3, count))
