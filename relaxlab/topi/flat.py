"""Buffers read and written by row-major position, for computations that are statements.

Counterpart: the flat ``BufferPtr`` of the IR builder that TVM's scatter, scan and sort use.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.tirx import decl_buffer
>>> load = flat_load(decl_buffer((4, 3), name="b"), Var("i", "int64"))
>>> len(load.indices)
2
"""

from collections.abc import Sequence

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr, StringImm, Var
from relaxlab.ir.prim import IntImm, TensorLoad
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx import AttrStmt, BufferStore, For, ForKind, Stmt, buffer_type

__all__ = ["flat_index", "flat_load", "flat_store", "loop", "sequential"]

_INT64 = DataType("int64")


def flat_index(position: Expr, shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return the index of a row-major position; the first dimension needs no remainder."""
    indices: list[Expr] = []
    for extent in reversed(shape[1:]):
        indices.append(prim_ops.floormod(position, extent))
        position = prim_ops.floordiv(position, extent)
    return (position, *reversed(indices)) if shape else ()


def flat_load(buffer: Var, position: Expr) -> TensorLoad:
    """Read the element at a row-major position."""
    return TensorLoad(buffer, flat_index(position, buffer_type(buffer).shape))


def flat_store(buffer: Var, position: Expr, value: Expr) -> BufferStore:
    """Write the element at a row-major position."""
    return BufferStore(buffer, value, flat_index(position, buffer_type(buffer).shape))


def loop(var: Var, extent: Expr, body: Stmt, kind: ForKind = ForKind.SERIAL) -> For:
    """Run ``body`` for ``var`` from 0 up to, not including, ``extent``."""
    return For(var, prim_ops.const(0, var.dtype), extent, kind, body)


def sequential(body: Stmt) -> Stmt:
    """Mark statements of which the order matters."""
    return AttrStmt(IntImm(DataType("int32"), 0), "pragma_scope", StringImm("seq"), body)
