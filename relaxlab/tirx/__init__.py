"""Kernels: functions of buffers, loops, blocks and scalar expressions.

Counterpart: ``tvm.tirx`` (with the blocks of ``tvm.s_tir``).
"""

from relaxlab.tirx.buffer import BufferType, buffer_type, decl_buffer, is_buffer_var
from relaxlab.tirx.function import PrimFunc
from relaxlab.tirx.stmt import (
    AllocBuffer,
    AssertStmt,
    AttrStmt,
    Bind,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    IterVar,
    IterVarType,
    MatchBufferRegion,
    Return,
    SBlock,
    SBlockRealize,
    SeqStmt,
    Stmt,
    While,
    seq,
)

__all__ = [
    "AllocBuffer",
    "AssertStmt",
    "AttrStmt",
    "Bind",
    "BufferStore",
    "BufferType",
    "DeclBuffer",
    "Evaluate",
    "For",
    "ForKind",
    "IfThenElse",
    "IterVar",
    "IterVarType",
    "MatchBufferRegion",
    "PrimFunc",
    "Return",
    "SBlock",
    "SBlockRealize",
    "SeqStmt",
    "Stmt",
    "While",
    "buffer_type",
    "decl_buffer",
    "is_buffer_var",
    "seq",
]
