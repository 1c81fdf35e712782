"""Give each allocation that memory planning left alone a storage of its own.

Counterpart: ``tvm.relax.transform.LowerAllocTensor``.

Examples
--------
>>> LowerAllocTensor().info.name
'LowerAllocTensor'
"""

from dataclasses import dataclass
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir import Call, Expr, GenericConst, IntImm, IRModule, Op, PassContext, prim_ops
from relaxlab.relax.expr import Function, ShapeExpr
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.literals import dtype_const
from relaxlab.relax.transform.pass_base import FunctionPass
from relaxlab.runtime.dtype import DataType

__all__ = ["LowerAllocTensor"]


class _Lowerer(ExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return call
        if call.op.name != "relax.builtin.alloc_tensor":
            return call
        shape, dtype, device, scope = call.args
        size = _bytes(shape, dtype)
        storage = self.builder.emit(
            Call(
                Op.get("relax.memory.alloc_storage"),
                (ShapeExpr((size,)), device, scope, dtype_const("uint8")),
            ),
            "storage",
        )
        offset = IntImm(DataType("int64"), 0)
        return Call(Op.get("relax.memory.alloc_tensor"), (storage, offset, shape, dtype, device))


def _bytes(shape: Expr, dtype: Expr) -> Expr:
    if not isinstance(shape, ShapeExpr) or not isinstance(dtype, GenericConst):
        raise InternalError(
            f"alloc_tensor needs a written-out shape and a constant dtype, got {shape!r}, {dtype!r}"
        )
    element = DataType(dtype.value)
    size: Expr = IntImm(DataType("int64"), (element.bits * element.lanes + 7) // 8)
    for dim in shape.values:
        size = prim_ops.multiply(size, dim)
    return size


@dataclass(frozen=True)
class LowerAllocTensor(FunctionPass):
    """Turn ``R.builtin.alloc_tensor`` into a storage and a tensor in it."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function without ``R.builtin.alloc_tensor``."""
        result: Any = _Lowerer(mod).visit_expr(func)
        return result  # type: ignore[no-any-return]  # a function stays one
