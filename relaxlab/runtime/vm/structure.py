"""Jumps of linked bytecode as structured branches and loops.

Python has no goto. Code as compilers emit it (an If whose branches meet again, a loop with its
exit right behind it) becomes nested branches and loops. Code that jumps otherwise becomes blocks
that a loop dispatches. Counterpart: none; ``exec_mode="compiled"`` of TVM starts from structured
code.

Examples
--------
>>> from relaxlab.runtime.vm.linker import GOTO, RET
>>> structured([(GOTO, 1, None, None), (RET, None, None, 0)], 0, 2)
[Step(pc=1)]
>>> structured([(GOTO, 0, None, None)], 0, 1)
[Repeat(head=0, body=[])]
"""

from dataclasses import dataclass
from typing import Literal

from relaxlab.runtime.vm.frame import LinkedInstruction
from relaxlab.runtime.vm.linker import GOTO, IF, RET, TRAP

__all__ = ["Block", "Branch", "Jump", "Node", "Repeat", "Step", "blocks_of", "structured"]

_DEEPEST = 60
"""Python reads at most 100 levels of indentation."""
_MOST_LOOPS = 15
"""Python nests at most 20 loops."""


@dataclass(frozen=True, slots=True)
class Step:
    """Instruction ``pc``, which is no jump."""

    pc: int


@dataclass(frozen=True, slots=True)
class Branch:
    """The If at ``pc``: ``then`` if the condition is not 0, else ``otherwise``."""

    pc: int
    then: "list[Node]"
    otherwise: "list[Node]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """A loop that begins at ``head`` and is left by a break or a return."""

    head: int
    body: "list[Node]"


@dataclass(frozen=True, slots=True)
class Jump:
    """To the head of the innermost loop, or behind it."""

    where: Literal["continue", "break"]


Node = Step | Branch | Repeat | Jump


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions ``start .. end-1``; only the last one may jump, and jumps lead to ``start``."""

    start: int
    end: int


class _UnstructuredError(Exception):
    """The jumps have no structure that this module finds."""


def structured(code: list[LinkedInstruction], entry: int, length: int) -> list[Node] | None:
    """Return the code as nested nodes; None if its jumps have another structure.

    Parameters
    ----------
    code
        Linked instructions, then traps.
    entry
        Where it begins.
    length
        How many instructions there are before the traps.
    """
    if entry != 0:
        return None
    try:
        structure = _Structure(code, length)
        nodes = structure.region(0, length, length, None, 0)
        # running past the end is a trap
        return [*nodes, Step(length)] if length in structure.reached else nodes
    except _UnstructuredError:
        return None


def blocks_of(code: list[LinkedInstruction], entry: int) -> list[Block]:
    """Return the basic blocks of all that can be reached, in order."""
    starts, seen, pending = {entry}, set[int](), [entry]
    while pending:
        pc = pending.pop()
        while pc not in seen:
            seen.add(pc)
            operation, target = code[pc][:2]
            if operation in (RET, TRAP):
                break
            if operation == GOTO:
                starts.add(target)
                pc = target
                continue
            if operation == IF:
                starts.update((target, pc + 1))
                pending.append(target)
            pc += 1
    blocks, start = [], -1
    for pc in sorted(seen):
        if start < 0:
            start = pc
        if pc + 1 in starts or pc + 1 not in seen or code[pc][0] in (IF, GOTO, RET, TRAP):
            blocks.append(Block(start, pc + 1))
            start = -1
    return blocks


@dataclass(frozen=True, slots=True)
class _Loop:
    head: int
    exit: int
    depth: int


class _Structure:
    """The search for the structure of one function."""

    def __init__(self, code: list[LinkedInstruction], length: int) -> None:
        self.code = code
        self.length = length
        self.reached = {pc for block in blocks_of(code, 0) for pc in range(block.start, block.end)}
        #: Where each loop ends: behind the last jump back to its head.
        self.loop_ends: dict[int, int] = {}
        for pc in self.reached:
            operation, target = code[pc][:2]
            if operation == GOTO and target <= pc:
                self.loop_ends[target] = max(self.loop_ends.get(target, 0), pc + 1)

    def region(self, pc: int, stop: int, follow: int, loop: _Loop | None, depth: int) -> list[Node]:
        """Return the nodes of ``pc .. stop-1``; what leaves them goes to ``follow`` or ``stop``.

        Every instruction belongs to one region, and every jump out of a region is one of: on to
        ``follow``, to the head of the loop, or behind the loop. Otherwise there is no structure.
        """
        if depth > _DEEPEST:
            raise _UnstructuredError
        nodes: list[Node] = []
        while pc < stop:
            if pc not in self.reached:
                pc += 1
                continue
            operation, target = self.code[pc][:2]
            end = self.loop_ends.get(pc)
            if end is not None and (loop is None or loop.head != pc):
                if end > stop or (loop is not None and loop.depth >= _MOST_LOOPS):
                    raise _UnstructuredError
                inner = _Loop(pc, end, loop.depth + 1 if loop else 1)
                nodes.append(Repeat(pc, self.region(pc, end - 1, pc, inner, depth + 1)))
                pc = end
            elif operation == GOTO:
                if pc < target <= stop and not self.any_reached(pc + 1, target):
                    pc = target  # over what nothing reaches
                    continue
                if self.any_reached(pc + 1, stop):
                    raise _UnstructuredError
                return nodes + self.jump(target, stop, follow, loop)
            elif operation == IF:
                node, pc = self.branch(pc, stop, follow, loop, depth)
                nodes.append(node)
            else:
                nodes.append(Step(pc))
                if operation in (RET, TRAP):
                    if self.any_reached(pc + 1, stop):
                        raise _UnstructuredError
                    return nodes
                pc += 1
        return nodes

    def branch(
        self, pc: int, stop: int, follow: int, loop: _Loop | None, depth: int
    ) -> tuple[Node, int]:
        """Return the node of the If at ``pc``, and where the region goes on."""
        target = self.code[pc][1]
        if not pc < target < stop:
            otherwise = self.jump(target, stop, follow, loop)
            if otherwise:
                return Branch(pc, [], otherwise), pc + 1
            return Branch(pc, self.region(pc + 1, stop, follow, loop, depth + 1), []), stop
        last = self.code[target - 1]
        if last[0] == GOTO and target - 1 > pc and target - 1 in self.reached:
            meet = last[1]
            inside = target < meet <= stop
            if inside or self.final(meet) in (self.final(stop), self.final(follow)):
                end = meet if inside else stop
                then = self.region(pc + 1, target - 1, meet, loop, depth + 1)
                otherwise = self.region(target, end, meet, loop, depth + 1)
                return Branch(pc, then, otherwise), end
        return Branch(pc, self.region(pc + 1, target, target, loop, depth + 1), []), target

    def jump(self, target: int, stop: int, follow: int, loop: _Loop | None) -> list[Node]:
        """Return what a jump at the end of a region is: nothing if it just goes on."""
        final = self.final(target)
        if final > self.length:
            return [Step(final)]  # a trap behind the code
        if final in (self.final(stop), self.final(follow)):
            return []
        if loop is not None and final == self.final(loop.head):
            return [Jump("continue")]
        if loop is not None and final == self.final(loop.exit):
            return [Jump("break")]
        raise _UnstructuredError

    def any_reached(self, start: int, stop: int) -> bool:
        """Return whether something between two instructions can be reached."""
        return any(pc in self.reached for pc in range(start, stop))

    def final(self, pc: int) -> int:
        """Return where a jump to ``pc`` ends up: Gotos that it meets do nothing else."""
        seen = set()
        while pc < self.length and self.code[pc][0] == GOTO and pc not in seen:
            seen.add(pc)
            pc = self.code[pc][1]
        return pc
