"""What generated source is made of: names, lines with their instructions, calls.

Nothing of a program is ever part of generated text except integers: names are made here, and
strings are values that names stand for. Counterpart: none.

Examples
--------
>>> names = Names()
>>> names.constant(3), names.constant("import os"), names.name("k", print, "a.b#")
('3', 'c0', 'k0_a_b_')
>>> names.values["c0"]
'import os'
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from relaxlab.runtime.vm.frame import LinkedFunction
from relaxlab.runtime.vm.memory_plan import MemoryPlan

if TYPE_CHECKING:
    from relaxlab.runtime.vm.source_writer import Writer

__all__ = [
    "CallSite",
    "Callees",
    "Guard",
    "Inliner",
    "Memory",
    "Names",
    "Source",
    "UNKNOWN",
]

UNKNOWN: Final = object()
"""What stands for the value of a register when values of arguments are asked for."""

_LARGEST: Final = 2**63


class Names:
    """The module that generated source runs in: a name for every constant and callee.

    Attributes
    ----------
    values
        What the names mean.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._known: dict[tuple[str, int], str] = {}
        self._counts: dict[str, int] = {}

    def constant(self, value: Any) -> str:
        """Return an expression for a constant."""
        if value is None or value is True or value is False:
            return repr(value)
        if type(value) is int and -_LARGEST <= value < _LARGEST:
            return repr(value) if value >= 0 else f"({value!r})"
        return self.name("c", value)

    def name(self, kind: str, value: Any, hint: str = "") -> str:
        """Return the name of an object; ``hint`` makes it readable."""
        key = (kind, id(value))  # the object stays alive: it is in ``values``
        name = self._known.get(key)
        if name is None:
            legible = "".join(c if c.isascii() and c.isalnum() else "_" for c in hint)[:60]
            number = self._counts[kind] = self._counts.get(kind, -1) + 1
            name = f"{kind}{number}" + (f"_{legible}" if legible else "")
            self._known[key] = name
            self.values[name] = value
        return name


@dataclass(frozen=True, slots=True)
class Source:
    """A function as text.

    Attributes
    ----------
    name
        What the text defines.
    text
        The source, without a final newline.
    places
        For each line the index of its instruction in the linked code, or -1.
    """

    name: str
    text: str
    places: tuple[int, ...]

    def without(self, line: str) -> "Source":
        """Return the source without a line."""
        lines = self.text.split("\n")
        at = lines.index(line)
        places = self.places[:at] + self.places[at + 1 :]
        return Source(self.name, "\n".join(lines[:at] + lines[at + 1 :]), places)


@dataclass(frozen=True, slots=True)
class CallSite:
    """A call of a host function with what is known about it.

    Attributes
    ----------
    pc
        Index of the instruction.
    target
        What is called.
    texts
        Expressions of the arguments.
    slots
        Their slots.
    values
        Their values, ``UNKNOWN`` for registers.
    slot
        Where the result goes; None drops it.
    """

    pc: int
    target: Callable[..., Any]
    texts: Sequence[str]
    slots: Sequence[int]
    values: Sequence[Any]
    slot: int | None

    @property
    def result(self) -> str:
        """The local variable of the result."""
        return f"r{self.slot}"


Inliner = Callable[["Writer", CallSite], bool]
"""Writes a builtin out; False for a call that it does not know."""

Guard = Callable[["Writer", CallSite], list[str] | None]
"""The conditions on which a check may fail: first that the value is no tensor, then others about
the tensor; None if they are not known."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a function keeps from call to call, and what the source calls it.

    Attributes
    ----------
    plan
        What is kept.
    plan_name, plans_name, idle_name
        Names of the plan, of what it made, and of the list of that which is not in use.
    otherwise
        Name of the function that does the same without keeping anything.
    """

    plan: MemoryPlan
    plan_name: str
    plans_name: str
    idle_name: str
    otherwise: str


@dataclass(frozen=True, slots=True)
class Callees:
    """What is known of the functions that a program calls.

    Attributes
    ----------
    names
        Names of its own functions, which may be called directly.
    kernels
        Host functions that forget their arguments when they return.
    inliners, guards
        What is known of builtins, by name.
    """

    names: dict[LinkedFunction, str] = field(default_factory=dict)
    kernels: frozenset[int] = frozenset()
    inliners: Mapping[str, Inliner] = field(default_factory=dict)
    guards: Mapping[str, Guard] = field(default_factory=dict)
