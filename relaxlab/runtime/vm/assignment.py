"""Definite assignment: every register is written before it is read, on every path.

The data-flow half of the verifier. A function is cut into blocks; inside a block a read must follow
a write, which NumPy answers for all reads at once. A read before any write of its block is
*exposed*: its register must be written on every path into the block. Only registers with exposed
reads need an analysis over the blocks, with sets of registers as the bits of Python integers, so
straight-line code costs nothing here. The work is bounded: jumps that would need more rounds than
the limits allow end with "unknown". The same analysis is in every JVM; TVM has none.

Examples
--------
>>> import numpy as np
>>> def column(*numbers): return np.array(numbers, dtype=np.int64)
>>> # 0: If %0, 2   1: Call -> %1   2: Ret %1
>>> undefined_reads(
...     Flow(0, column(4, 1, 2), column(0, 0, 0), column(2, 0, 0)),
...     2, column(2), column(1), column(1), column(1)
... ).tolist()
[0]
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.runtime.vm.bytecode import Opcode

__all__ = ["Flow", "undefined_reads", "unreachable"]

_MAX_ROUNDS: Final = 64
_LEAST_ROUNDS: Final = 3
_MAX_VISITS: Final = 16_000_000
_CHUNK: Final = 2048

_Words = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Flow:
    """The jumps of one function.

    Attributes
    ----------
    first
        Index of its first instruction.
    opcode
        Opcode of each instruction.
    goto_offset, false_offset
        Offset of each Goto and of each If; anything for the other instructions. All targets are
        inside the function, and the last instruction does not fall through.
    """

    first: int
    opcode: _Words
    goto_offset: _Words
    false_offset: _Words


def undefined_reads(
    flow: Flow,
    num_registers: int,
    read_pc: _Words,
    read_register: _Words,
    write_pc: _Words,
    write_register: _Words,
) -> _Words | None:
    """Return the indices of the reads that some path reaches without a write, in order.

    Parameters
    ----------
    flow
        The jumps.
    num_registers
        All register numbers are below it.
    read_pc, read_register
        Reads in order of position, those of parameters left out. A read counts as before a write
        of the same instruction.
    write_pc, write_register
        Writes in order of position.

    Returns
    -------
    numpy.ndarray or None
        None if the jumps are too entangled for the bounded analysis.
    """
    blocks = _Blocks(flow)
    read_block = blocks.at(read_pc)
    write_block = blocks.at(write_pc)
    exposed = _exposed(
        read_block * num_registers + read_register,
        read_pc,
        write_block * num_registers + write_register,
        write_pc,
    )
    if not len(exposed):
        return exposed
    before, after = blocks.edges()
    order = _reverse_postorder(after)
    reachable = np.zeros(blocks.count, dtype=np.bool_)
    reachable[order] = True
    exposed = exposed[reachable[read_block[exposed]]]
    wanted, place = np.unique(read_register[exposed], return_inverse=True)
    chunks = -(-len(wanted) // _CHUNK)
    rounds = min(_MAX_ROUNDS, _MAX_VISITS // max(1, len(order) * chunks))
    if rounds < _LEAST_ROUNDS:
        return None
    found: list[int] = []
    by_register = np.argsort(place, kind="stable")
    for chunk in range(chunks):
        registers = wanted[chunk * _CHUNK : (chunk + 1) * _CHUNK]
        written = _written(blocks.count, registers, write_block, write_register)
        entry = _solve(order, before, written, (1 << len(registers)) - 1, rounds)
        if entry is None:
            return None
        bounds = np.searchsorted(place[by_register], (chunk * _CHUNK, (chunk + 1) * _CHUNK))
        for i in by_register[bounds[0] : bounds[1]].tolist():
            read = int(exposed[i])
            if not entry[int(read_block[read])] >> int(place[i]) - chunk * _CHUNK & 1:
                found.append(read)
    return np.array(sorted(found), dtype=np.int64)


def unreachable(flow: Flow) -> list[tuple[int, int]]:
    """Return the half-open ranges of instructions that no path from the entry leads to."""
    blocks = _Blocks(flow)
    dead = np.ones(blocks.count, dtype=np.bool_)
    dead[_reverse_postorder(blocks.edges()[1])] = False
    bounds = np.append(blocks.starts, len(flow.opcode)) + flow.first
    # neighbouring blocks make one range
    edges = np.flatnonzero(np.diff(np.concatenate([[False], dead, [False]]).astype(np.int8)))
    return [(int(bounds[a]), int(bounds[b])) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _exposed(read_key: _Words, read_pc: _Words, write_key: _Words, write_pc: _Words) -> _Words:
    """Return the reads without an earlier write of the same key (block and register)."""
    keys, first = np.unique(write_key, return_index=True)
    if not len(keys):
        return np.arange(len(read_key), dtype=np.int64)
    slot = np.minimum(np.searchsorted(keys, read_key), len(keys) - 1)
    earlier = (keys[slot] == read_key) & (write_pc[first[slot]] < read_pc)
    return np.flatnonzero(~earlier)


class _Blocks:
    """Straight pieces of a function: control enters at the first instruction only."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        size = len(flow.opcode)
        positions = np.arange(size, dtype=np.int64)
        self.gotos = positions[flow.opcode == Opcode.GOTO]
        self.ifs = positions[flow.opcode == Opcode.IF]
        self.goto_targets = self.gotos + flow.goto_offset[self.gotos]
        self.if_targets = self.ifs + flow.false_offset[self.ifs]
        leader = np.zeros(size + 1, dtype=np.bool_)
        leader[0] = True
        leader[1:][flow.opcode != Opcode.CALL] = True
        leader[self.goto_targets] = True
        leader[self.if_targets] = True
        self.starts = np.flatnonzero(leader[:-1])
        self.count = len(self.starts)

    def at(self, pcs: _Words) -> _Words:
        return np.searchsorted(self.starts, pcs - self.flow.first, side="right") - 1

    def edges(self) -> tuple[list[list[int]], list[list[int]]]:
        """Return the blocks before and after each block."""
        after: list[list[int]] = [[] for _ in range(self.count)]
        last = np.append(self.starts[1:], len(self.flow.opcode)) - 1
        falls = np.isin(self.flow.opcode[last], (int(Opcode.CALL), int(Opcode.IF)))
        for block in np.flatnonzero(falls).tolist():
            after[block].append(block + 1)
        for sources, targets in ((self.gotos, self.goto_targets), (self.ifs, self.if_targets)):
            source_blocks = (np.searchsorted(self.starts, sources, side="right") - 1).tolist()
            target_blocks = (np.searchsorted(self.starts, targets, side="right") - 1).tolist()
            for source, target in zip(source_blocks, target_blocks, strict=True):
                after[source].append(target)
        before: list[list[int]] = [[] for _ in range(self.count)]
        for source, successors in enumerate(after):
            for target in successors:
                before[target].append(source)
        return before, after


def _written(
    count: int, registers: _Words, write_block: _Words, write_register: _Words
) -> list[int]:
    """Return which of ``registers`` each block writes, as bits."""
    written = [0] * count
    bit = np.minimum(np.searchsorted(registers, write_register), len(registers) - 1)
    matches = np.flatnonzero(registers[bit] == write_register)
    pairs = zip(write_block[matches].tolist(), bit[matches].tolist(), strict=True)
    for block, position in pairs:
        written[block] |= 1 << position
    return written


def _reverse_postorder(after: list[list[int]]) -> list[int]:
    """Return the blocks reachable from the first one, each before its successors where possible."""
    seen = [False] * len(after)
    seen[0] = True
    order: list[int] = []
    stack = [(0, iter(after[0]))]
    while stack:
        block, successors = stack[-1]
        for successor in successors:
            if not seen[successor]:
                seen[successor] = True
                stack.append((successor, iter(after[successor])))
                break
        else:
            stack.pop()
            order.append(block)
    order.reverse()
    return order


def _solve(
    order: list[int], before: list[list[int]], written: list[int], everything: int, rounds: int
) -> list[int] | None:
    """Return what is surely written at the entry of each block, or None after too many rounds."""
    entry = [everything] * len(written)
    leave = [everything] * len(written)
    entry[0] = 0
    leave[0] = written[0]
    for _ in range(rounds):
        changed = False
        for block in order[1:]:
            known = everything
            for previous in before[block]:
                known &= leave[previous]
            if known != entry[block]:
                entry[block] = known
                leave[block] = known | written[block]
                changed = True
        if not changed:
            return entry
    return None
