"""The statements of a kernel.

::

    Stmt = For(loop_var, min, extent, kind, body, thread_binding, annotations)
         | SBlockRealize(iter_values, predicate, block)
         | SBlock(iter_vars, reads, writes, name_hint, body, init, alloc_buffers,
                  match_buffers, annotations)
         | BufferStore(buffer, value, indices)
         | SeqStmt(seq)
         | IfThenElse(condition, then_case, else_case)
         | Bind(var, value)                     ``v: T.let[...] = e``, to the end of its SeqStmt
         | AllocBuffer(buffer, annotations)     local buffer, in scope likewise
         | DeclBuffer(buffer, data)             a buffer over existing memory, in scope likewise
         | AssertStmt(condition, error_kind, message_parts)
         | AttrStmt(node, attr_key, value, body)
         | While(condition, body)
         | Evaluate(value) | Return(value)

A block (``SBlock``) is a statement of its own iteration variables, bound to loops by the
``SBlockRealize`` around it. Counterpart: ``tvm.tirx.stmt`` and ``tvm.s_tir``.

Examples
--------
>>> ForKind.SERIAL.name
'SERIAL'
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.node import DEFINES, IGNORED, Node
from relaxlab.ir.prim import Range, TensorRegion
from relaxlab.ir.source import Span
from relaxlab.ir.type import PRINTERS

__all__ = [
    "AllocBuffer",
    "AssertStmt",
    "AttrStmt",
    "Bind",
    "BufferStore",
    "DeclBuffer",
    "Evaluate",
    "For",
    "ForKind",
    "IfThenElse",
    "IterVar",
    "IterVarType",
    "MatchBufferRegion",
    "Return",
    "SBlock",
    "SBlockRealize",
    "SeqStmt",
    "Stmt",
    "While",
    "seq",
]


class ForKind(IntEnum):
    """How the iterations of a loop may run; all mean the same as serial."""

    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD_BINDING = 4


class IterVarType(IntEnum):
    """What an iteration variable is for; the numbers are TVM's."""

    DATA_PAR = 0  # spatial, printed "S"
    THREAD_INDEX = 1
    COMM_REDUCE = 2  # reduction, printed "R"
    ORDERED = 3
    OPAQUE = 4


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Stmt(Node):
    """Base of all statements."""

    span: Span | None = field(metadata=IGNORED, default=None, kw_only=True)

    def __repr__(self) -> str:
        printer = PRINTERS.find("repr")
        return printer(self) if printer else f"<{type(self).__name__}>"


class _ActsAsVariable:
    """Arithmetic on an iteration variable is arithmetic on its variable: ``x[i * 2 + k]``."""

    __slots__ = ()
    var: Var

    def __add__(self, other: Any) -> Any:
        return self.var + other

    def __radd__(self, other: Any) -> Any:
        return other + self.var

    def __sub__(self, other: Any) -> Any:
        return self.var - other

    def __rsub__(self, other: Any) -> Any:
        return other - self.var

    def __mul__(self, other: Any) -> Any:
        return self.var * other

    def __rmul__(self, other: Any) -> Any:
        return other * self.var

    def __floordiv__(self, other: Any) -> Any:
        return self.var // other

    def __mod__(self, other: Any) -> Any:
        return self.var % other

    def __neg__(self) -> Any:
        return -self.var

    def __lt__(self, other: Any) -> Any:
        return self.var < other

    def __le__(self, other: Any) -> Any:
        return self.var <= other

    def __gt__(self, other: Any) -> Any:
        return self.var > other

    def __ge__(self, other: Any) -> Any:
        return self.var >= other


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class IterVar(_ActsAsVariable, Node):
    """An iteration variable of a block, with its domain and kind."""

    dom: Range
    var: Var = field(metadata=DEFINES)
    iter_type: IterVarType = IterVarType.DATA_PAR
    thread_tag: str = ""

    def __repr__(self) -> str:
        printer = PRINTERS.find("repr")
        return printer(self) if printer else f"<{type(self).__name__}>"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class For(Stmt):
    """A loop over ``min <= loop_var < min + extent``."""

    loop_var: Var = field(metadata=DEFINES)
    min: Expr
    extent: Expr
    kind: ForKind
    body: Stmt
    thread_binding: IterVar | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class MatchBufferRegion(Node):
    """A buffer standing for a region of another one inside a block."""

    buffer: Var = field(metadata=DEFINES)
    source: TensorRegion

    def __repr__(self) -> str:
        printer = PRINTERS.find("repr")
        return printer(self) if printer else f"<{type(self).__name__}>"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class SBlock(Stmt):
    """A block: iteration variables, what it touches, an optional first-time part, a body.

    ``init`` runs before ``body`` when every reduction variable is at its minimum. ``reads`` and
    ``writes`` are annotations. ``alloc_buffers`` live as long as the block.
    """

    iter_vars: tuple[IterVar, ...]
    reads: tuple[TensorRegion, ...]
    writes: tuple[TensorRegion, ...]
    name_hint: str = field(metadata=IGNORED)
    body: Stmt
    init: Stmt | None = None
    alloc_buffers: tuple[Var, ...] = field(metadata=DEFINES, default=())
    match_buffers: tuple[MatchBufferRegion, ...] = ()
    annotations: Mapping[str, Any] = field(default_factory=dict)

    def structural_fields(self) -> tuple[object, ...]:
        """What equality looks at, definitions first.

        The regions mention the allocated buffers, which are declared after them; so the order of
        comparison differs from the order of declaration (which is TVM's).
        """
        return (
            _Defined(self.alloc_buffers),
            self.iter_vars,
            self.match_buffers,
            self.reads,
            self.writes,
            self.init,
            self.body,
            self.annotations,
        )


@dataclass(frozen=True, eq=False, slots=True)
class _Defined(Node):
    """Variables in defining position, for :meth:`SBlock.structural_fields`."""

    variables: tuple[Var, ...] = field(metadata=DEFINES)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class SBlockRealize(Stmt):
    """A block bound to values of its iteration variables; skipped where predicate is false."""

    iter_values: tuple[Expr, ...]
    predicate: Expr
    block: SBlock


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class BufferStore(Stmt):
    """``buffer[indices] = value``."""

    buffer: Var
    value: Expr
    indices: tuple[Expr, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "indices", tuple(self.indices))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class SeqStmt(Stmt):
    """Statements in order; see :func:`seq`."""

    seq: tuple[Stmt, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "seq", tuple(self.seq))


def seq(statements: "list[Stmt] | tuple[Stmt, ...]") -> Stmt:
    """Return the statements as one: itself if there is one, else a flat :class:`SeqStmt`."""
    flat: list[Stmt] = []
    for statement in statements:
        flat.extend(statement.seq if isinstance(statement, SeqStmt) else (statement,))
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class IfThenElse(Stmt):
    """A choice."""

    condition: Expr
    then_case: Stmt
    else_case: Stmt | None = None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Bind(Stmt):
    """A scalar value with a name, visible in the statements after it in the same sequence."""

    var: Var = field(metadata=DEFINES)
    value: Expr


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class AllocBuffer(Stmt):
    """A buffer that lives for the rest of the sequence."""

    buffer: Var = field(metadata=DEFINES)
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class DeclBuffer(Stmt):
    """A buffer over memory that exists already, for the rest of the sequence."""

    buffer: Var = field(metadata=DEFINES)
    data: Expr | None = None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class AssertStmt(Stmt):
    """Raise an error of ``error_kind`` when the condition is false."""

    condition: Expr
    error_kind: str
    message_parts: tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class AttrStmt(Stmt):
    """A note about a region; it has no effect on the result."""

    node: Any
    attr_key: str
    value: Expr
    body: Stmt


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class While(Stmt):
    """A loop that runs while a condition holds."""

    condition: Expr
    body: Stmt


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Evaluate(Stmt):
    """An expression for its effect."""

    value: Expr


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Return(Stmt):
    """The scalar result of a function."""

    value: Expr
