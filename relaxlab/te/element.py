"""The value of an element, rewritten for a kernel.

``create_prim_func`` gives every computation its own block; this module turns the expression that
a user wrote over tensors and axes into one over buffers and block variables.
Counterpart: the index rewriting inside ``tvm.te.create_prim_func``.

Examples
--------
>>> from relaxlab import te
>>> from relaxlab.tirx import decl_buffer
>>> a, i = te.placeholder((4,), name="a"), te.var("i")
>>> load = ElementConverter({a: decl_buffer((4,), name="a")}, {}, None)(a[i])
>>> load.buffer.name
'a'
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.node import Node, children, map_children
from relaxlab.ir.op import Op
from relaxlab.ir.prim import (
    And,
    BinaryExpr,
    Cast,
    CompareExpr,
    IntImm,
    Or,
    Select,
    TensorLoad,
)
from relaxlab.runtime.dtype import DataType
from relaxlab.te.tensor import Tensor, TensorRead
from relaxlab.tirx import buffer_type

__all__ = ["ElementConverter", "Role"]


class Role(Enum):
    """What a subexpression is for; it decides which integers take the index dtype."""

    VALUE = 0  # keeps its dtype
    CONDITION = 1  # comparisons of integers inside count as indices
    INDEX = 2  # integer literals and casts take the index dtype


_Job = tuple[Node, Role]


class ElementConverter:
    """Rewrites an element's value: reads become loads, axes block variables.

    With an index dtype, literals and casts in indices and in conditions take it, and arithmetic
    whose operands no longer agree is rebuilt. This is what TVM's ``index_dtype_override`` does.
    """

    def __init__(
        self,
        buffers: Mapping[Tensor, Var],
        known: Mapping[Node, Expr],
        index_dtype: DataType | None,
    ) -> None:
        self.buffers = buffers
        self.index_dtype = index_dtype
        self.done: dict[_Job, Any] = {
            (var, role): value for var, value in known.items() for role in Role
        }

    def __call__(self, value: Expr, role: Role = Role.VALUE) -> Expr:
        """Convert an expression that is used as ``role`` says."""
        # its own stack: a concat of hundreds of tensors is an expression that deep
        done = self.done
        stack: list[_Job] = [(value, role)]
        while stack:
            job = stack[-1]
            missing = [] if job in done else [j for j in self._inside(*job) if j not in done]
            if missing:
                stack.extend(reversed(missing))
            else:
                if job not in done:
                    done[job] = self._rebuild(*job)
                stack.pop()
        result: Expr = done[value, role]
        return result

    def stored(self, value: Expr, buffer: Var) -> Expr:
        """Convert a value that is stored into ``buffer``."""
        return prim_ops.cast(buffer_type(buffer).dtype, self(value))

    def _inside(self, node: Node, role: Role) -> list[_Job]:
        """List the subexpressions of ``node``, each with what it is for."""
        match node:
            case TensorRead(indices=indices):
                return [(index, Role.INDEX) for index in indices]
            case Select(condition=condition, true_value=a, false_value=b):
                return [(condition, Role.CONDITION), (a, role), (b, role)]
            case Call(op=Op(name="tirx.if_then_else"), args=(condition, a, b)):
                return [(condition, Role.CONDITION), (a, role), (b, role)]
            case And(a=a, b=b) | Or(a=a, b=b):
                return [(a, role), (b, role)]
            case CompareExpr(a=a, b=b):
                integers = not (a.dtype.is_float or b.dtype.is_float)
                counted = role is not Role.VALUE and integers
                inner = Role.INDEX if counted else Role.VALUE
                return [(a, inner), (b, inner)]
            case _:
                return [(child, role) for child in children(node)]

    def _rebuild(self, node: Any, role: Role) -> Any:
        parts = [self.done[job] for job in self._inside(node, role)]
        match node:
            case TensorRead(tensor=tensor):
                buffer = self.buffers[tensor]
                dims = buffer_type(buffer).shape
                return TensorLoad(
                    buffer, tuple(_index_of(i, d) for i, d in zip(parts, dims, strict=True))
                )
            case IntImm() if role is Role.INDEX:
                return self._widen(node)
            case Cast() if role is Role.INDEX and node.dtype.is_int and self.index_dtype:
                return prim_ops.cast(self.index_dtype, parts[0])
            case BinaryExpr() | CompareExpr():
                if parts[0] is node.a and parts[1] is node.b:
                    return node
                return type(node)(*prim_ops.match_dtypes(*parts))
            case Select():
                return Select(parts[0], *prim_ops.match_dtypes(*parts[1:]))
            case Call(op=Op(name="tirx.if_then_else")):
                return prim_ops.if_then_else(*parts)
            case _:
                replaced = iter(parts)
                return map_children(node, lambda _: next(replaced))

    def _widen(self, literal: IntImm) -> IntImm:
        if self.index_dtype is None or not literal.dtype.is_int:
            return literal
        return IntImm(self.index_dtype, literal.value)


def _index_of(index: Expr, dim: Expr) -> Expr:
    """Give a literal index the dtype of its dimension."""
    if isinstance(index, IntImm) and index.dtype is not dim.dtype:
        return IntImm(dim.dtype, index.value)
    return index
