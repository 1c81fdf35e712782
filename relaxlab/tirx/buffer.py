"""Buffers: a variable whose type says how elements lie in memory.

A buffer *is* a ``Var`` of :class:`BufferType`, so parameters, locals and captured buffers need
no second name space. Counterpart: ``tvm.tirx.Buffer``.

Examples
--------
>>> a = decl_buffer((4, 8), "float32", "a")
>>> a.ty.dtype, len(a.ty.shape)
(DataType("float32"), 2)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.node import Node
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import Type
from relaxlab.runtime.dtype import DataType

__all__ = ["BufferType", "buffer_type", "decl_buffer", "is_buffer_var"]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class BufferType(Type):
    """Elements of one dtype in a dense or strided box.

    Attributes
    ----------
    shape
        Extents, one scalar expression per dimension.
    strides
        Elements to the next index per dimension; empty when dense (row major).
    elem_offset
        Where the first element lies, in elements; None when 0.
    storage_scope
        ``"global"``, ``"shared"``, ``"local"``, ...
    data_alignment, offset_factor
        Alignment in bytes, and the number that divides ``elem_offset``.
    has_layout
        Whether a tile layout could be asked of it; functions of the block dialect have none. Only
        printed, as ``layout=None``.
    is_scalar
        Whether it is a variable of a kernel, as ``x: T.int32 = 1`` makes it: one element that is
        read and written under the plain name. Only printed.
    """

    shape: tuple[Expr, ...]
    dtype: DataType
    strides: tuple[Expr, ...] = ()
    elem_offset: Expr | None = None
    storage_scope: str = "global"
    data_alignment: int = 64
    offset_factor: int = 1
    has_layout: bool = True
    is_scalar: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", DataType(self.dtype))
        object.__setattr__(self, "strides", tuple(self.strides))


def decl_buffer(
    shape: Sequence[Expr | int],
    dtype: DataType | str = "float32",
    name: str = "buffer",
    *,
    strides: Sequence[Expr] = (),
    elem_offset: Expr | None = None,
    scope: str = "global",
    data_alignment: int = 64,
    offset_factor: int = 1,
    has_layout: bool = True,
) -> Var:
    """Make a buffer variable; plain ints in ``shape`` become int32 literals, as in TVM."""
    dims = tuple(IntImm(DataType("int32"), d) if isinstance(d, int) else d for d in shape)
    ty = BufferType(
        dims,
        DataType(dtype),
        tuple(strides),
        elem_offset,
        scope,
        data_alignment,
        offset_factor,
        has_layout,
    )
    return Var(name, ty)


def is_buffer_var(node: Node | Any) -> TypeGuard[Var]:
    """Say whether ``node`` is a variable of buffer type."""
    return isinstance(node, Var) and isinstance(node.ty, BufferType)


def buffer_type(buffer: Var) -> BufferType:
    """Return the type of a buffer variable; TypeError for any other variable."""
    if not isinstance(buffer.ty, BufferType):
        raise TypeError(f"variable {buffer.name!r} is no buffer: its type is {buffer.ty!r}")
    return buffer.ty
