"""Which released storage serves the next tensor: the pool of the memory planner.

Storages of one device, scope and dtype share a shelf. A shelf of constant sizes is sorted, so that
a request takes the smallest storage that is large enough (at most 16 times), else the largest
that is too small (at least a 16th), which is then enlarged. Symbolic sizes are only matched when
provably equal. Counterpart: TVM's ``TokenAllocator1D``.

Examples
--------
>>> from relaxlab.runtime.dtype import DataType
>>> from relaxlab.ir import IntImm
>>> pool, key = StoragePool(), StorageKey(0, "global", DataType("float32"))
>>> small = pool.allocate(key, IntImm("int64", 16), 1)
>>> pool.release(small)
>>> pool.request(key, IntImm("int64", 32), 1) is small, small.size.value
(True, 32)
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from relaxlab.ir import Expr, IntImm, structural_equal, structural_hash
from relaxlab.ir.sym import Analyzer
from relaxlab.runtime.dtype import DataType

__all__ = ["Storage", "StorageKey", "StoragePool"]

#: A storage may serve a tensor up to this many times smaller or larger than itself.
_RANGE: Final = 16


class StorageKey(NamedTuple):
    """What storages must agree in to be exchangeable."""

    device: int
    scope: str
    dtype: DataType


@dataclass(eq=False, slots=True)
class Storage:
    """A piece of memory that tensors take turns in.

    Attributes
    ----------
    index
        Its number, in order of creation.
    key
        Device, scope and dtype.
    size
        Bytes, an int64 expression; grows when a larger tensor takes the storage over.
    pending
        Uses left of the tensor that holds it now.
    depth
        How many branches were open when it was created; it cannot be seen outside the innermost.
    """

    index: int
    key: StorageKey
    size: Expr
    pending: int
    depth: int


@dataclass(slots=True)
class _Shelf:
    """Released storages of one key; ``constant`` is kept sorted by (size, order of release)."""

    constant: list[tuple[int, int, Storage]] = field(default_factory=list)
    symbolic: list[Storage] = field(default_factory=list)


class StoragePool:
    """Released storages, waiting for the next tensor.

    Parameters
    ----------
    analyzer
        What is known of the symbolic variables in sizes.
    """

    def __init__(self, analyzer: Analyzer | None = None) -> None:
        self.analyzer = analyzer or Analyzer()
        #: All storages ever made, in order.
        self.storages: list[Storage] = []
        self._depth = 0
        self._shelves: dict[StorageKey, _Shelf] = {}
        self._releases = 0
        self._equal: dict[tuple[int, int], bool] = {}
        self._representatives: dict[int, list[Expr]] = {}

    def allocate(self, key: StorageKey, size: Expr, pending: int) -> Storage:
        """Make a new storage."""
        size = size if isinstance(size, IntImm) else self._representative(size)
        storage = Storage(len(self.storages), key, size, pending, self._depth)
        self.storages.append(storage)
        return storage

    def request(self, key: StorageKey, size: Expr, pending: int) -> Storage | None:
        """Take a released storage for a tensor of ``size`` bytes with ``pending`` uses.

        None when no storage fits, and for a tensor that nobody uses.
        """
        shelf = self._shelves.get(key)
        if shelf is None or pending == 0:
            return None
        if isinstance(size, IntImm):
            storage = _take(shelf.constant, size.value)
            if storage is not None and isinstance(storage.size, IntImm):
                storage.size = size if size.value > storage.size.value else storage.size
        else:
            storage = self._take_equal(shelf.symbolic, size)
        if storage is not None:
            storage.pending = pending
        return storage

    def release(self, storage: Storage) -> None:
        """Put a storage back: the tensor in it had its last use."""
        shelf = self._shelves.setdefault(storage.key, _Shelf())
        if isinstance(storage.size, IntImm):
            insort(shelf.constant, (storage.size.value, self._releases, storage))
            self._releases += 1
        else:
            shelf.symbolic.append(storage)

    def enter_branch(self) -> None:
        """Begin a branch: what is created from here on is not visible after it."""
        self._depth += 1

    def leave_branch(self) -> None:
        """End a branch and forget its storages; those of the outside stay, enlargements too.

        Every tensor of a branch has its last use inside, so that whatever the branch took from
        the outside has been released by now.
        """
        self._depth -= 1
        for shelf in self._shelves.values():
            shelf.constant = [e for e in shelf.constant if e[2].depth <= self._depth]
            shelf.symbolic = [s for s in shelf.symbolic if s.depth <= self._depth]

    def _take_equal(self, released: list[Storage], size: Expr) -> Storage | None:
        wanted = self._representative(size)
        for i, storage in enumerate(released):
            if self._provably_equal(storage.size, wanted):
                return released.pop(i)
        return None

    def _representative(self, size: Expr) -> Expr:
        """Return the first size seen that is written like this one, so that proofs are shared."""
        known = self._representatives.setdefault(structural_hash(size), [])
        for other in known:
            if structural_equal(other, size):
                return other
        known.append(size)
        return size

    def _provably_equal(self, a: Expr, b: Expr) -> bool:
        if a is b:
            return True
        pair = (id(a), id(b))
        if pair not in self._equal:
            self._equal[pair] = self.analyzer.can_prove_equal(a, b)
        return self._equal[pair]


def _take(released: list[tuple[int, int, Storage]], size: int) -> Storage | None:
    at = bisect_left(released, size, key=lambda entry: entry[0])
    if at < len(released) and released[at][0] <= size * _RANGE:
        return released.pop(at)[2]
    first = bisect_left(released, size // _RANGE, key=lambda entry: entry[0])
    if first < at:
        return released.pop(at - 1)[2]
    return None
