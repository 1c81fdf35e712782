"""Allocate memory that other processes on a GPU share by the runtime's own function.

Counterpart: ``tvm.relax.transform.LowerGPUIPCAllocStorage``.

Examples
--------
>>> LowerGPUIPCAllocStorage().info.name
'LowerGPUIPCAllocStorage'
"""

from dataclasses import dataclass
from typing import Any

from relaxlab.ir import Call, Expr, IntImm, IRModule, Op, PassContext, StringImm
from relaxlab.ir.type import AnyType
from relaxlab.relax.expr import ExternFunc, Function
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.transform.pass_base import FunctionPass
from relaxlab.runtime.dtype import DataType

__all__ = ["LowerGPUIPCAllocStorage"]

_ALLOCATE = ExternFunc("runtime.disco.cuda_ipc.alloc_storage")


class _Lowerer(ExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        match super().visit_call_(op):
            case Call(
                op=Op(name="relax.builtin.alloc_tensor"),
                args=(shape, dtype, _, StringImm(value="ipc_memory")),
            ):
                storage = self.builder.emit(_storage(shape, dtype))
                zero = IntImm(DataType("int64"), 0)
                return Call(
                    Op.get("relax.memory.alloc_tensor"), (storage, zero, shape, dtype, zero)
                )
            case Call(
                op=Op(name="relax.memory.alloc_storage"),
                args=(shape, _, StringImm(value="ipc_memory"), dtype),
            ):
                return _storage(shape, dtype)
            case call:
                return call


def _storage(shape: Expr, dtype: Expr) -> Call:
    return Call(_ALLOCATE, (shape, dtype), ty_args=(AnyType(),))


@dataclass(frozen=True)
class LowerGPUIPCAllocStorage(FunctionPass):
    """Turn allocations of scope ``ipc_memory`` into ``runtime.disco.cuda_ipc.alloc_storage``."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function without such allocations, itself if it has none."""
        result: Any = _Lowerer(mod).visit_expr(func)
        return result  # type: ignore[no-any-return]  # a function stays one
