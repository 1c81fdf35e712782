"""What is written down about a value: never the value itself.

Storage is reused, so an event that held an array would show later contents. A description is
taken when the event happens and holds type, shape, storage, a few elements and some statistics.
It is plain data with value equality, and its numbers for storages are given out in order of
first sight, so two runs of one program give equal descriptions. There is no TVM counterpart.

Examples
--------
>>> import numpy as np
>>> from relaxlab.runtime.tensor import Tensor
>>> x = np.arange(6, dtype="float32")
>>> describer = Describer()
>>> print(describer.describe(Tensor(x)).text)
float32[6] s0 [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
>>> describer.describe(Tensor(x[2:])).storage, describer.describe(Tensor(x[2:])).offset
(0, 8)
"""

import math
import weakref
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.device import Device
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor

__all__ = [
    "Describable",
    "Describer",
    "FunctionValue",
    "HoldsValues",
    "Number",
    "ObjectValue",
    "ScalarKind",
    "ScalarValue",
    "StorageValue",
    "TensorValue",
    "TupleValue",
    "Value",
]

Number = bool | int | float | str
"""An element: non-finite floats are the strings ``"nan"``, ``"inf"``, ``"-inf"``, so that equal
descriptions compare equal and JSON can carry them."""

ScalarKind = Literal["none", "bool", "int", "float", "str", "bytes", "dtype", "device", "shape"]

_EDGE: Final = 4
_MAX_ITEMS: Final = 64
_MAX_DEPTH: Final = 4
_MAX_TEXT: Final = 200
_ROUNDS_TO_INFINITY: Final = 2.0**128 - 2.0**103
"""The least float that no float32 is nearest to."""


@dataclass(frozen=True, slots=True)
class ScalarValue:
    """A small immutable value; ``text`` is how it is shown."""

    kind: ScalarKind
    text: str


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor at one moment.

    Attributes
    ----------
    dtype, shape, device
        Type of the view.
    storage
        Number of the memory that holds the elements; tensors with one number share memory.
    offset
        Bytes from the start of that memory to the first element.
    head, tail
        First and last elements in row-major order; ``tail`` is empty when ``head`` has them all.
    minimum, maximum
        Over the elements that are not NaN; None if there are none, or too many to look at.
    nan_count
        How many are NaN; None if there are too many elements to look at.
    checksum
        CRC-32 of the elements: two descriptions of changed contents differ. None as above.
    """

    dtype: str
    shape: tuple[int, ...]
    device: str
    storage: int
    offset: int
    head: tuple[Number, ...]
    tail: tuple[Number, ...]
    minimum: Number | None
    maximum: Number | None
    nan_count: int | None
    checksum: int | None
    kind: ClassVar[Literal["tensor"]] = "tensor"

    @property
    def text(self) -> str:
        """One line: type, storage and offset, edge elements.

        A narrow float is told by the shortest digits that name it as a float32: the one nearest to
        0.1 is 0.10000000149011612, which nobody can read.
        """
        narrow = "float" in self.dtype and not self.dtype.startswith("float64")
        words: Callable[[Number], str] = _narrow_text if narrow else str
        dims = ", ".join(map(str, self.shape))
        place = f"s{self.storage}" + (f"+{self.offset}" if self.offset else "")
        shown = ", ".join(map(words, self.head))
        if self.tail:
            shown += ", …, " + ", ".join(map(words, self.tail))
        nans = f" {self.nan_count} NaN" if self.nan_count else ""
        return f"{self.dtype}[{dims}] {place} [{shown}]{nans}"


@dataclass(frozen=True, slots=True)
class TupleValue:
    """A Relax tuple; ``items`` holds at most 64 elements, ``length`` is the true count."""

    items: "tuple[Value, ...]"
    length: int
    kind: ClassVar[Literal["tuple"]] = "tuple"

    @property
    def text(self) -> str:
        """The elements in brackets."""
        shown = ", ".join(item.text for item in self.items)
        if len(self.items) < self.length:
            shown += f", … {self.length} elements" if self.items else f"{self.length} elements"
        return _short(f"({shown})")


@dataclass(frozen=True, slots=True)
class StorageValue:
    """A storage, numbered as in :class:`TensorValue`.

    One ``block`` of memory may serve several storages, one after the other.
    """

    storage: int
    block: int
    nbytes: int
    device: str
    kind: ClassVar[Literal["storage"]] = "storage"

    @property
    def text(self) -> str:
        """One line: number, block and size."""
        return f"storage s{self.storage} (block {self.block}, {self.nbytes} bytes, {self.device})"


@dataclass(frozen=True, slots=True)
class FunctionValue:
    """A host function, or a closure of a Relax function with the values it has bound."""

    kind: Literal["function", "closure"]
    name: str
    bound: "tuple[Value, ...]" = ()

    @property
    def text(self) -> str:
        """One line: kind, name and bound values."""
        bound = f" with ({', '.join(value.text for value in self.bound)})" if self.bound else ""
        return _short(f"{self.kind} {self.name}{bound}")


@dataclass(frozen=True, slots=True)
class ObjectValue:
    """Anything else; ``kind`` is ``"vm"`` for the machine itself."""

    kind: Literal["vm", "map", "object"]
    text: str


Value = ScalarValue | TensorValue | TupleValue | StorageValue | FunctionValue | ObjectValue


class HoldsValues(Protocol):
    """An object that gives whoever holds it access to other values: closures, caches."""

    def held_values(self) -> Iterable[object]:
        """Yield the values."""


class Describable(Protocol):
    """An object that knows what to say about itself (storages, closures, the machine)."""

    def describe(self, describer: "Describer") -> Value:
        """Return the description."""


class Describer:
    """Describes values, and numbers storages in order of first sight.

    Parameters
    ----------
    stats_limit
        Tensors with more elements than this get no statistics and no checksum.
    """

    def __init__(self, stats_limit: int = 1 << 20) -> None:
        self.stats_limit = stats_limit
        self._numbers: dict[int, tuple[int, object]] = {}
        self._count = {"storage": 0, "block": 0}

    def describe(self, value: object) -> Value:
        """Return the description of any value a register can hold."""
        return self._describe(value, 0)

    def number(self, owner: object, series: Literal["storage", "block"] = "storage") -> int:
        """Return the number of an object that owns memory, the same as long as it lives."""
        key = id(owner)
        found = self._numbers.get(key)
        if found is not None:
            return found[0]
        given = self._count[series]
        self._count[series] = given + 1
        numbers = self._numbers

        def forget(_: object) -> None:
            numbers.pop(key, None)

        try:
            alive: object = weakref.ref(owner, forget)
        except TypeError:
            alive = owner  # cannot be watched: keep it, so that its address is not reused
        numbers[key] = (given, alive)
        return given

    def owners(self, value: object) -> frozenset[int]:
        """Return keys of everything mutable that ``value`` gives access to.

        Two values with a key in common may show the same change. A key is valid while one of
        the values lives.
        """
        found: set[int] = set()
        self._collect(value, found, 0)
        return frozenset(found)

    def _collect(self, value: object, found: set[int], depth: int) -> None:
        if isinstance(value, Tensor):
            found.add(id(owner_of(value.array)))
        elif isinstance(value, list | dict):
            found.add(id(value))
            if depth < _MAX_DEPTH:
                for item in value.values() if isinstance(value, dict) else value:
                    self._collect(item, found, depth + 1)
        elif hasattr(type(value), "held_values"):
            # a HoldsValues; asking the Protocol would be most of the cost of an event
            holder: Any = value
            found.add(id(holder))
            if depth < _MAX_DEPTH:
                for item in holder.held_values():
                    self._collect(item, found, depth + 1)

    def _describe(self, value: object, depth: int) -> Value:
        match value:
            case None:
                return ScalarValue("none", "None")
            case bool() | int() | float():
                # bool first: it is an int
                kind: ScalarKind = (
                    "bool"
                    if isinstance(value, bool)
                    else "int"
                    if isinstance(value, int)
                    else "float"
                )
                return ScalarValue(kind, repr(value))
            case Tensor():
                return self._describe_tensor(value)
            case ShapeTuple():
                return ScalarValue("shape", tuple.__repr__(value))
            case str():
                return ScalarValue("str", _short(repr(value)))
            case bytes():
                return ScalarValue("bytes", _short(repr(value)))
            case DataType():
                return ScalarValue("dtype", str(value) or "void")
            case Device():
                return ScalarValue("device", str(value))
            case list() | tuple():
                shown = value[:_MAX_ITEMS] if depth < _MAX_DEPTH else ()
                return TupleValue(
                    tuple(self._describe(item, depth + 1) for item in shown), len(value)
                )
            case dict():
                return ObjectValue("map", f"map of {len(value)} entries")
            case _ if hasattr(type(value), "describe"):
                describable: Any = value
                described: Value = describable.describe(self)
                return described
            case _ if callable(value):
                return FunctionValue("function", function_name(value))
            case _:
                return ObjectValue("object", type(value).__name__)

    def _describe_tensor(self, tensor: Tensor) -> TensorValue:
        array = tensor.array
        owner = owner_of(array)
        offset = address_of(array) - address_of(owner)
        flat = array.reshape(-1)
        if flat.dtype.kind == "V" or (flat.dtype.itemsize == 1 and flat.dtype.kind not in "biu"):
            flat = flat.astype(np.float32)  # narrow floats: exact in float32
        edge = flat.size <= 2 * _EDGE
        head, tail = (flat, flat[:0]) if edge else (flat[:_EDGE], flat[-_EDGE:])
        minimum: Number | None = None
        maximum: Number | None = None
        nan_count: int | None = None
        checksum: int | None = None
        if flat.size <= self.stats_limit:
            content: Any = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
            checksum = zlib.crc32(content)
            nan_count = int(np.isnan(flat).sum()) if flat.dtype.kind == "f" else 0
            if flat.size > nan_count and flat.dtype.kind != "c":
                minimum = _number(np.fmin.reduce(flat).item())
                maximum = _number(np.fmax.reduce(flat).item())
        return TensorValue(
            dtype=str(tensor.dtype),
            shape=tuple(tensor.shape),
            device=str(tensor.device),
            storage=self.number(owner),
            offset=offset,
            head=tuple(map(_number, head.tolist())),
            tail=tuple(map(_number, tail.tolist())),
            minimum=minimum,
            maximum=maximum,
            nan_count=nan_count,
            checksum=checksum,
        )


def owner_of(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array that owns the memory of a view: two views share memory if it is one."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def address_of(array: NDArray[Any]) -> int:
    """Return the address of the first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def function_name(function: object) -> str:
    """Return the name of a callable, or of its type: never an address."""
    return getattr(function, "__name__", None) or type(function).__name__


def _narrow_text(value: Number) -> str:
    if not isinstance(value, float):
        return str(value)
    for digits in range(1, 9):
        short = float(f"{value:.{digits}g}")
        if abs(short) < _ROUNDS_TO_INFINITY and float(np.float32(short)) == value:
            return str(short)
    return str(float(f"{value:.9g}"))


def _number(value: Any) -> Number:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value if isinstance(value, bool | int | float) else str(value)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
