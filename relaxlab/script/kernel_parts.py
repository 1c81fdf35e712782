"""Descriptions of a kernel's statements, as the functions of ``T`` give them.

``for i in T.parallel(4)`` calls ``T.parallel``, which gives a :class:`Loops`; the parser makes the
loop from it. So every statement form has one class here, one function in ``tirx.py`` and one
case in the parser.

Examples
--------
>>> Loops(ForKind.SERIAL, ((0, 4),)).ranges
((0, 4),)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relaxlab.ir.expr import Expr, Var
from relaxlab.runtime.dtype import DataType
from relaxlab.script.annotation import Annotation, BufferAnnotation
from relaxlab.tirx.stmt import ForKind, IterVar, IterVarType

__all__ = [
    "Alloc",
    "Attr",
    "Axes",
    "BlockAlloc",
    "BlockAttr",
    "Decl",
    "Eval",
    "FuncAttr",
    "Init",
    "LaunchThread",
    "Let",
    "Loops",
    "MatchBuffer",
    "Part",
    "Reads",
    "Sblock",
    "Store",
    "Where",
    "Writes",
]


class Part:
    """Base of all descriptions."""

    def __enter__(self) -> Any:
        # a with statement in plain Python; kernels are parsed, never run
        return self

    def __exit__(self, *exc: object) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Loops(Part):
    """Nested loops: a (start, stop) for each, outermost first."""

    kind: ForKind
    ranges: tuple[tuple[Any, Any], ...]
    thread: str = ""
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sblock(Part):
    """A block."""

    name: str


@dataclass(frozen=True, slots=True)
class Init(Part):
    """The first-time part of a block."""


@dataclass(frozen=True, slots=True)
class Axes(Part):
    """Iteration variables: kind, domain (extent, or start and stop) and value of each.

    ``remap`` says that the domain is that of the loop which the value names.
    """

    axes: tuple[tuple[IterVarType, Any, Any], ...]
    remap: bool = False


@dataclass(frozen=True, slots=True)
class Where(Part):
    """The predicate of a block."""

    predicate: Expr


@dataclass(frozen=True, slots=True)
class Reads(Part):
    """What a block reads."""

    regions: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Writes(Part):
    """What a block writes."""

    regions: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class BlockAttr(Part):
    """Annotations of a block."""

    attrs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FuncAttr(Part):
    """Attributes of a function."""

    attrs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BlockAlloc(Part):
    """A buffer owned by the enclosing block."""

    buffer: BufferAnnotation


@dataclass(frozen=True, slots=True)
class Alloc(Part):
    """A local buffer."""

    buffer: BufferAnnotation
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scalar(Part):
    """A variable, which has no value yet."""

    dtype: DataType
    scope: str


@dataclass(frozen=True, slots=True)
class Decl(Part):
    """A buffer over existing memory."""

    buffer: BufferAnnotation
    data: Expr | None = None


@dataclass(frozen=True, slots=True)
class MatchBuffer(Part):
    """A parameter that is a buffer, or a buffer that stands for a region of another one."""

    source: Any
    buffer: BufferAnnotation


@dataclass(frozen=True, slots=True)
class Attr(Part):
    """Notes about the statements that follow, or about those of a ``with``."""

    pairs: tuple[tuple[Any, str, Any], ...]


@dataclass(frozen=True, slots=True)
class LaunchThread(Part):
    """A thread index, for the statements that follow or for those of a ``with``."""

    thread: str | IterVar
    extent: Any


@dataclass(frozen=True, slots=True)
class Store(Part):
    """A value written to an element."""

    buffer: Var
    value: Any
    indices: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Eval(Part):
    """An expression for its effect."""

    value: Any


class Let:
    """``T.let`` and ``T.let[T.float32]``: marks a value with a name."""

    def __init__(self, annotation: Annotation | None = None) -> None:
        self.annotation = annotation

    def __getitem__(self, annotation: Any) -> "Let":
        return Let(annotation)
