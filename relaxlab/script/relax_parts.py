"""Descriptions of a Relax function's statements, as the functions of ``R`` give them.

``R.match_cast(x, ty)`` gives a :class:`Cast`; the parser binds it when it meets the assignment.
Counterparts in kernels: ``kernel_parts``.

Examples
--------
>>> Output(()).values
()
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Cast", "Dataflow", "FuncAttr", "Output", "Part"]


class Part:
    """Base of all descriptions."""

    def __enter__(self) -> Any:
        # a with statement in plain Python; programs are parsed, never run
        return self

    def __exit__(self, *exc: object) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Dataflow(Part):
    """The beginning of a dataflow block."""


@dataclass(frozen=True, slots=True)
class Output(Part):
    """The outputs of a dataflow block."""

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Cast(Part):
    """A value under a type that is checked when the program runs."""

    value: Any
    ty: Any


@dataclass(frozen=True, slots=True)
class FuncAttr(Part):
    """Attributes of a function."""

    attrs: Mapping[str, Any]
