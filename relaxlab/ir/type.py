"""The types both languages share.

::

    Type = PrimType(dtype)                  a scalar
         | PointerType(element_type, storage_scope)
         | TupleType(fields)                the empty one is "void"
         | FuncType(params, ret, purity, derive_func)
         | AnyType()                        anything at all
         | StringType()

Types have value equality, shapes included: two types are equal when their dimensions are
structurally equal. Relax adds TensorType and ShapeType, kernels add BufferType.
Counterpart: ``tvm.ir`` types.

Examples
--------
>>> PrimType("int64") == PrimType("int64")
True
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from relaxlab.ir.node import DEFINES, IGNORED, Node, structural_equal, structural_hash
from relaxlab.ir.source import Span
from relaxlab.registry import Registry
from relaxlab.runtime.dtype import DataType

__all__ = [
    "AnyType",
    "FuncType",
    "PointerType",
    "PrimType",
    "StringType",
    "TupleType",
    "Type",
    "is_void",
]


class _Printers(Registry[Callable[..., str]]):
    """Printers by name; the script layer fills it in, and is loaded when one is first needed.

    That layer stands above this one, so it is named here and not imported. A node shown while
    the layers are still being imported (in an error message) falls back to its class name.
    """

    def find(self, name: str) -> Callable[..., str] | None:
        if name not in self:
            with suppress(ImportError):
                import_module("relaxlab.script.printer")
        return super().find(name)

    def get(self, name: str) -> Callable[..., str]:
        self.find(name)
        return super().get(name)


#: How nodes print: ``str(node)`` asks for ``"repr"``, ``IRModule.script`` for ``"script"``.
PRINTERS = _Printers("printer")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Type(Node):
    """Base of all types."""

    span: Span | None = field(metadata=IGNORED, default=None, kw_only=True)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Type) and structural_equal(self, other))

    def __hash__(self) -> int:
        return structural_hash(self)

    def __repr__(self) -> str:
        printer = PRINTERS.find("repr")
        return printer(self) if printer else f"<{type(self).__name__}>"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class PrimType(Type):
    """A scalar of one data type."""

    dtype: DataType

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", DataType(self.dtype))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrimType) and self.dtype is other.dtype

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __str__(self) -> str:
        return str(self.dtype)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class PointerType(Type):
    """A pointer to elements in one memory scope."""

    element_type: Type
    storage_scope: str = ""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TupleType(Type):
    """A fixed sequence of values; with no field it is the type of "no value"."""

    fields: tuple[Type, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class FuncType(Type):
    """A function.

    Attributes
    ----------
    params
        Parameter types; None for an opaque function. Symbolic variables in them are the
        function's own.
    ret
        Result type.
    purity
        Whether calling it has no visible effect.
    derive_func
        For an opaque function: the result type computed from the call.
    """

    params: tuple[Type, ...] | None = field(metadata=DEFINES)
    ret: Type
    purity: bool = True
    derive_func: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if self.params is not None:
            object.__setattr__(self, "params", tuple(self.params))

    @staticmethod
    def opaque_func(
        *,
        ret: Type | None = None,
        derive_func: Callable[..., Any] | None = None,
        purity: bool = False,
    ) -> "FuncType":
        """Return the type of a function whose parameters are not known."""
        return FuncType(None, AnyType() if ret is None else ret, purity, derive_func)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class AnyType(Type):
    """The type of any value."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class StringType(Type):
    """The type of a string."""


def is_void(ty: Type | None) -> bool:
    """Say whether ``ty`` is the type of "no value", the empty tuple."""
    return isinstance(ty, TupleType) and not ty.fields
