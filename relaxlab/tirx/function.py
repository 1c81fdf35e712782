"""A kernel: a function of buffers and scalars that writes into its output buffers.

Counterpart: ``tvm.tirx.PrimFunc``. A parameter is a variable of BufferType (a buffer), of a
scalar type, or of pointer type. Symbolic variables in buffer shapes are defined by the
parameters that mention them. The attribute ``s_tir`` marks the block dialect.

Examples
--------
>>> from relaxlab.tirx import Evaluate, decl_buffer
>>> from relaxlab.ir import IntImm
>>> f = PrimFunc((decl_buffer((4,), name="a"),), Evaluate(IntImm("int32", 0)))
>>> f.params[0].name
'a'
"""

from dataclasses import dataclass, field

from relaxlab.ir.attrs import DictAttrs
from relaxlab.ir.expr import Var
from relaxlab.ir.module import BaseFunc
from relaxlab.ir.node import DEFINES
from relaxlab.ir.type import TupleType, Type
from relaxlab.tirx.stmt import Stmt

__all__ = ["PrimFunc"]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class PrimFunc(BaseFunc):
    """A kernel.

    Attributes
    ----------
    params
        Buffers, scalars, pointers.
    body
        For the block dialect: the realization of the root block, or a plain statement.
    ret_type
        Type of the returned scalar; the empty tuple for none.
    attrs
        ``global_symbol``, ``tirx.noalias``, ``op_pattern``, ``s_tir``, ...
    """

    params: tuple[Var, ...] = field(metadata=DEFINES)
    body: Stmt
    ret_type: Type = field(default_factory=TupleType)
    attrs: DictAttrs = field(default_factory=DictAttrs)

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", tuple(self.params))
