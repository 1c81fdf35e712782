"""Tensors, the storages they live in, and from when to when: the table, without the analysis.

:class:`LifetimeBuilder` is told step by step what a program allocates, mentions and kills;
:class:`FunctionMemory` is what it makes of that. The steps are bindings or instructions, whoever
tells it knows (``storage_liveness.py``). There is no TVM counterpart.

Examples
--------
>>> builder = LifetimeBuilder()
>>> builder.storage("s", "storage", 16, "16", "float32", "global", 0)
>>> builder.tensor("a", "a", "s", 0, "(4,)", "float32", 16)
>>> builder.next_step()
>>> builder.use("a")
>>> builder.next_step()
>>> memory = builder.finish("main", ["a = alloc", "exp(a, b)"], ["", ""])
>>> memory.storages[0].tensors[0].last, memory.peak
(1, 16)
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["FunctionMemory", "LifetimeBuilder", "StorageLifetime", "TensorLifetime", "union"]

#: What a value refers to: some allocations, or those of each field of a tuple.
Claim = Any
_NOTHING: Final[frozenset[int]] = frozenset()
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WIDEST_PICTURE: Final = 120


@dataclass(frozen=True, slots=True)
class TensorLifetime:
    """A tensor inside a storage.

    Attributes
    ----------
    name
        The variable or register that it was allocated into.
    shape, dtype
        Its type, as text.
    nbytes
        Its size; None when it is not constant.
    offset
        Where in the storage it begins, in bytes.
    first, last
        Steps of allocation and of the last call that is given it, under any name. The result of a
        function is used one step after the last.
    killed
        Step of the kill of its last name; None when it is kept until the function returns.
    names
        What else it was called: views, fields of tuples, results of branches.
    """

    name: str
    shape: str
    dtype: str
    nbytes: int | None
    offset: int
    first: int
    last: int
    killed: int | None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StorageLifetime:
    """A storage, with the tensors that live in it one after the other.

    Attributes
    ----------
    index
        Its number, in order of allocation.
    nbytes, size
        Its size; as text when it is not constant.
    dtype, scope, device
        What it was allocated for.
    first, last
        Steps of allocation and of the last use of any tensor in it.
    killed
        Step after which nothing holds it any more; None when that is the function's end.
    planned
        False for a tensor that was allocated by itself.
    """

    index: int
    name: str
    nbytes: int | None
    size: str
    dtype: str
    scope: str
    device: int
    first: int
    last: int
    killed: int | None
    planned: bool
    tensors: tuple[TensorLifetime, ...]

    def conflicts(self) -> tuple[tuple[TensorLifetime, TensorLifetime], ...]:
        """Return pairs of tensors that need the same bytes at the same time; none, if all is well.

        A tensor whose size is not known takes all bytes from its offset on.
        """
        return tuple(
            (one, other)
            for i, one in enumerate(self.tensors)
            for other in self.tensors[i + 1 :]
            if one.first <= other.last and other.first <= one.last and _overlap(one, other)
        )


def _overlap(one: TensorLifetime, other: TensorLifetime) -> bool:
    low, high = (one, other) if one.offset <= other.offset else (other, one)
    return low.nbytes is None or high.offset < low.offset + low.nbytes


@dataclass(frozen=True, slots=True)
class FunctionMemory:
    """The memory of one function.

    Attributes
    ----------
    function
        Its name.
    steps
        Text of each binding or instruction.
    places
        The lines of the program that each runs, as text.
    storages
        All storages, in order of allocation.
    first_step
        Number of the first step: instructions are counted through the whole program.
    """

    function: str
    steps: Sequence[str]
    places: Sequence[str]
    storages: tuple[StorageLifetime, ...]
    first_step: int = 0

    @property
    def tensors(self) -> tuple[TensorLifetime, ...]:
        """All tensors, in order of allocation."""
        found = [tensor for storage in self.storages for tensor in storage.tensors]
        return tuple(sorted(found, key=lambda tensor: tensor.first))

    @property
    def unplanned_bytes(self) -> int:
        """Bytes of all tensors of constant size: what is allocated without sharing."""
        return sum(tensor.nbytes or 0 for tensor in self.tensors)

    @property
    def planned_bytes(self) -> int:
        """Bytes of all storages of constant size."""
        return sum(storage.nbytes or 0 for storage in self.storages)

    @property
    def saved_bytes(self) -> int:
        """What sharing storages saved."""
        return self.unplanned_bytes - self.planned_bytes

    @property
    def shared(self) -> int:
        """How many tensors live in a storage that another one used before."""
        return sum(max(0, len(storage.tensors) - 1) for storage in self.storages)

    @property
    def dynamic(self) -> int:
        """How many storages and tensors have a size that is not constant; sums leave them out."""
        return [s.nbytes for s in self.storages].count(None) + [
            t.nbytes for t in self.tensors
        ].count(None)

    def live(self, step: int) -> tuple[StorageLifetime, ...]:
        """Return the storages that are needed at a step."""
        return tuple(s for s in self.storages if s.first <= step <= s.last)

    @property
    def peak_step(self) -> int:
        """The first step at which the storages that are needed have the most bytes."""
        changes: Counter[int] = Counter()
        for storage in self.storages:
            changes[storage.first] += storage.nbytes or 0
            changes[storage.last + 1] -= storage.nbytes or 0
        now = most = 0
        at = self.first_step
        for step, change in sorted(changes.items()):
            now += change
            if now > most:
                most, at = now, step
        return at

    @property
    def peak(self) -> int:
        """Bytes of the storages that are needed at :attr:`peak_step`."""
        return sum(storage.nbytes or 0 for storage in self.live(self.peak_step))

    def conflicts(self) -> tuple[tuple[TensorLifetime, TensorLifetime], ...]:
        """Return tensors that overwrite each other; none, unless a pass or a program is wrong."""
        return tuple(pair for storage in self.storages for pair in storage.conflicts())

    def __str__(self) -> str:
        """Return a table of storages, and a picture when the function is not too long."""
        head = (
            f"{self.function}: {_count(len(self.tensors), 'tensor')} in "
            f"{_count(len(self.storages), 'storage')}, {self.unplanned_bytes} bytes in "
            f"{self.planned_bytes}"
        )
        if self.unplanned_bytes and self.saved_bytes > 0:
            head += f" (saved {100 * self.saved_bytes / self.unplanned_bytes:.1f}%)"
        head += f", peak {self.peak} at step {self.peak_step}"
        if self.dynamic:
            head += f"; {_count(self.dynamic, 'dynamic size')} not counted"
        if not self.storages:
            return head
        rows = [
            ("storage", "bytes", "dtype", "scope", "steps", "tensors"),
            *map(_row, self.storages),
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = [head]
        for name, size, dtype, scope, steps, tensors in rows:
            lines.append(
                f"  {name:<{widths[0]}}  {size:>{widths[1]}}  {dtype:<{widths[2]}}  "
                f"{scope:<{widths[3]}}  {steps:>{widths[4]}}  {tensors}"
            )
        if len(self.steps) < _WIDEST_PICTURE:
            lines += self._picture(widths[0])
        return "\n".join(lines)

    def _picture(self, width: int) -> list[str]:
        """Return a line for each storage, a column for each step, a letter for each tensor."""
        letters = {id(t): _LETTERS[i % len(_LETTERS)] for i, t in enumerate(self.tensors)}
        lines = []
        for storage in self.storages:
            row = [
                "." if storage.first <= self.first_step + i <= storage.last else " "
                for i in range(len(self.steps) + 1)
            ]
            for tensor in storage.tensors:
                for step in range(tensor.first, tensor.last + 1):
                    row[step - self.first_step] = letters[id(tensor)]
            lines.append(f"  {storage.name:<{width}} |{''.join(row)}|")
        return lines

    def to_data(self) -> dict[str, Any]:
        """Return everything as plain data, for views."""
        return {
            "function": self.function,
            "first_step": self.first_step,
            "steps": list(self.steps),
            "places": list(self.places),
            "unplanned_bytes": self.unplanned_bytes,
            "planned_bytes": self.planned_bytes,
            "peak": self.peak,
            "peak_step": self.peak_step,
            "dynamic": self.dynamic,
            "storages": [
                {
                    "index": s.index,
                    "name": s.name,
                    "nbytes": s.nbytes,
                    "size": s.size,
                    "dtype": s.dtype,
                    "scope": s.scope,
                    "device": s.device,
                    "first": s.first,
                    "last": s.last,
                    "killed": s.killed,
                    "planned": s.planned,
                    "tensors": [
                        {
                            "name": t.name,
                            "shape": t.shape,
                            "dtype": t.dtype,
                            "nbytes": t.nbytes,
                            "offset": t.offset,
                            "first": t.first,
                            "last": t.last,
                            "killed": t.killed,
                            "names": list(t.names),
                        }
                        for t in s.tensors
                    ],
                }
                for s in self.storages
            ],
        }


def _row(storage: StorageLifetime) -> tuple[str, ...]:
    return (
        storage.name + ("" if storage.planned else " (by itself)"),
        storage.size,
        storage.dtype,
        storage.scope,
        f"{storage.first}-{storage.last}",
        ", ".join(f"{t.name} {t.first}-{t.last}" for t in storage.tensors),
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


@dataclass(slots=True)
class _Object:
    """A storage or a tensor while its life is being followed."""

    name: str
    first: int
    last: int
    facts: dict[str, Any]
    #: Values that refer to it and were not killed.
    holders: set[Hashable] = field(default_factory=set)
    killed: int | None = None
    names: dict[str, None] = field(default_factory=dict)
    tensors: list[int] = field(default_factory=list)


class LifetimeBuilder:
    """Follows allocations through a program, step by step.

    Values are named by keys: variables, or numbers of registers.

    Parameters
    ----------
    first_step
        Number of the first step.
    """

    def __init__(self, first_step: int = 0) -> None:
        self.first_step = first_step
        self.step = first_step
        self._objects: list[_Object] = []
        self._storages: dict[int, None] = {}
        self._claims: dict[Hashable, Claim] = {}
        self._taken: Counter[tuple[str, str]] = Counter()

    def next_step(self) -> None:
        """Go on to the next binding or instruction."""
        self.step += 1

    def storage(
        self,
        key: Hashable,
        name: str,
        nbytes: int | None,
        size: str,
        dtype: str,
        scope: str,
        device: int,
        planned: bool = True,
    ) -> None:
        """Allocate a storage into a value."""
        facts = {
            "nbytes": nbytes,
            "size": size,
            "dtype": dtype,
            "scope": scope,
            "device": device,
            "planned": planned,
        }
        self._storages[len(self._objects)] = None
        self._new(key, name, facts, "storage")

    def tensor(
        self,
        key: Hashable,
        name: str,
        storage: Hashable,
        offset: int,
        shape: str,
        dtype: str,
        nbytes: int | None,
    ) -> None:
        """Allocate a tensor out of a storage; one that is not known makes no entry."""
        homes = [i for i in _flat(self._claims.get(storage)) if i in self._storages]
        self.use(storage)
        if not homes:
            return
        facts = {"shape": shape, "dtype": dtype, "nbytes": nbytes, "offset": offset}
        number = len(self._objects)
        self._new(key, name, facts, "tensor")
        self._objects[homes[0]].tensors.append(number)
        self._hold(key, frozenset({number, homes[0]}))

    def _new(self, key: Hashable, name: str, facts: dict[str, Any], kind: str) -> None:
        before = self._taken[kind, name]
        unique = f"{name}_{before}" if before else name
        self._taken[kind, name] += 1
        number = len(self._objects)
        self._objects.append(_Object(unique, self.step, self.step, facts))
        self._hold(key, frozenset({number}))

    def claim(self, key: Hashable) -> Claim:
        """Return what a value refers to."""
        return self._claims.get(key, _NOTHING)

    def assign(self, key: Hashable, claim: Claim, name: str = "") -> None:
        """Let a value refer to what others refer to; ``name`` is its own."""
        if not _flat(claim):
            self._claims.pop(key, None)
            return
        self._hold(key, claim)
        for number in _flat(claim):
            if name and self._objects[number].name != name and number not in self._storages:
                self._objects[number].names[name] = None

    def _hold(self, key: Hashable, claim: Claim) -> None:
        self._claims[key] = claim
        for number in _flat(claim):
            self._objects[number].holders.add(key)
            self._objects[number].killed = None

    def use(self, key: Hashable) -> None:
        """Mention a value at this step."""
        self.use_claim(self.claim(key))

    def use_claim(self, claim: Claim) -> None:
        """Mention what a claim refers to at this step."""
        for number in _flat(claim):
            self._objects[number].last = self.step

    def kill(self, key: Hashable) -> None:
        """Let a value go."""
        for number in _flat(self._claims.pop(key, _NOTHING)):
            one = self._objects[number]
            one.holders.discard(key)
            if not one.holders:
                one.killed = self.step

    def finish(self, function: str, steps: Sequence[str], places: Sequence[str]) -> FunctionMemory:
        """Return the table."""
        storages = []
        for index, number in enumerate(self._storages):
            one = self._objects[number]
            tensors = tuple(self._tensor(self._objects[i]) for i in one.tensors)
            storages.append(
                StorageLifetime(
                    index,
                    one.name,
                    first=one.first,
                    last=max([one.last, *(tensor.last for tensor in tensors)]),
                    killed=one.killed,
                    tensors=tensors,
                    **one.facts,
                )
            )
        return FunctionMemory(function, steps, places, tuple(storages), self.first_step)

    def _tensor(self, one: _Object) -> TensorLifetime:
        return TensorLifetime(
            one.name,
            first=one.first,
            last=one.last,
            killed=one.killed,
            names=tuple(one.names),
            **one.facts,
        )


def _flat(claim: Claim) -> frozenset[int]:
    """Return all allocations that a claim refers to."""
    if claim is None:
        return _NOTHING
    if isinstance(claim, frozenset):
        return claim
    return union(claim)


def union(claims: Iterable[Claim]) -> frozenset[int]:
    """Return what any of several values may refer to."""
    return _NOTHING.union(*map(_flat, claims))
