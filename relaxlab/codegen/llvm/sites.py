"""What can go wrong in a compiled kernel, and the error that says so.

A kernel ends with the number of a site; the site knows which error to raise and how to word it
with the details that the kernel left. The words are the interpreter's. Counterpart: the error
messages that TVM compiles into functions.

Examples
--------
>>> sites = Sites("take")
>>> code = sites.index("reads", "x", 2, 0)
>>> str(error_of(sites.records[code - 1], "take", [3, 7, 1]))
"kernel 'take' reads x[7, 1]: index 7 of dimension 0 is outside [0, 3)"
"""

import builtins
from collections.abc import Sequence
from typing import Any

from relaxlab import errors
from relaxlab.errors import InternalError

__all__ = ["Sites", "error_of"]


class Sites:
    """The sites of one kernel, numbered from 1.

    Attributes
    ----------
    records
        What is known of each: plain lists, which can be saved.
    """

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.records: list[list[Any]] = []

    def _add(self, record: list[Any]) -> int:
        if record in self.records:
            return self.records.index(record) + 1
        self.records.append(record)
        return len(self.records)

    def index(self, verb: str, buffer: str, rank: int, axis: int) -> int:
        """Return the code of a subscript out of range; details: extent, then all subscripts."""
        return self._add(["index", verb, buffer, rank, axis])

    def division(self) -> int:
        """Return the code of an integer division by zero."""
        return self._add(["division"])

    def shift(self, name: str, dtype: str, bits: int) -> int:
        """Return the code of a shift by too many bits; details: the count."""
        return self._add(["shift", name, dtype, bits])

    def failed_assert(self, kind: str, message: str) -> int:
        """Return the code of an assertion that does not hold."""
        return self._add(["assert", kind, message])

    def memory(self, what: str) -> int:
        """Return the code of memory that is not to be had; details: how many bytes."""
        return self._add(["memory", what])

    def too_small(self, buffer: str) -> int:
        """Return the code of a buffer declared over too little memory."""
        return self._add(["null", buffer])

    def callback(self) -> int:
        """Return the code of a Python function that raised; the error is kept elsewhere."""
        return self._add(["callback"])


def error_of(record: Sequence[Any], kernel: str, details: Sequence[int]) -> Exception:
    """Return the error for a site, to be raised."""
    match record:
        case ["index", verb, buffer, rank, axis]:
            extent, *position = details[: rank + 1]
            where = ", ".join(map(str, position))
            return IndexError(
                f"kernel {kernel!r} {verb} {buffer}[{where}]: index {position[axis]} of "
                f"dimension {axis} is outside [0, {extent})"
            )
        case ["division"]:
            return ZeroDivisionError("an integer is divided by zero")
        case ["shift", name, dtype, bits]:
            return ValueError(f"{name} by {details[0]} bits: expected 0 to {bits - 1} for {dtype}")
        case ["assert", kind, message]:
            return _error_class(kind)(message)
        case ["memory", what]:
            return MemoryError(
                f"kernel {kernel!r}: no memory for buffer {what!r} of {details[0]} bytes"
            )
        case ["null", buffer]:
            return InternalError(
                f"kernel {kernel!r}: buffer {buffer!r} is declared over a null pointer"
            )
        case _:
            return InternalError(f"kernel {kernel!r} ended with an unknown status")


def _error_class(kind: str) -> type[Exception]:
    found = getattr(errors, kind, None) or getattr(builtins, kind, None)
    if isinstance(found, type) and issubclass(found, Exception):
        return found
    return InternalError
