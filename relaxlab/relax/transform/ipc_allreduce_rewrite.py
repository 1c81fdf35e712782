"""Sum over GPUs through memory that they share.

Counterpart: ``tvm.relax.transform.IPCAllReduceRewrite``.

Examples
--------
>>> IPCAllReduceRewrite(1).info.name
'IPCAllReduceRewrite'
"""

from dataclasses import dataclass
from typing import Any

from relaxlab.ir import Call, Expr, IntImm, IRModule, ModulePass, Op, PassContext, StringImm, Var
from relaxlab.ir.node import replace
from relaxlab.relax.analysis import get_var2val
from relaxlab.relax.expr import ExternFunc, Function, ShapeExpr
from relaxlab.relax.expr_functor import ExprMutator, ExprVisitor
from relaxlab.runtime import get_global_func
from relaxlab.runtime.dtype import DataType

__all__ = ["IPCAllReduceRewrite"]

_ALLREDUCE = "runtime.disco.allreduce"
_CUSTOM = "runtime.disco.cuda_ipc.custom_allreduce"
_ALIASES = ("relax.reshape", "relax.memory.view", "relax.memory.ensure_zero_offset")


def _is_sum(call: Call) -> bool:
    """Whether a call sums over the workers: the first argument behind the tensor is ``(0,)``."""
    if not isinstance(call.op, ExternFunc) or call.op.global_symbol != _ALLREDUCE:
        return False
    kind = call.args[1] if len(call.args) == 4 else None
    if not isinstance(kind, ShapeExpr) or len(kind.values) != 1:
        return False
    (value,) = kind.values
    return isinstance(value, IntImm) and value.value == 0


class _Finder(ExprVisitor):
    """Finds the sums whose input was allocated in the function, and those allocations."""

    def __init__(self, func: Function) -> None:
        super().__init__()
        self.values = get_var2val(func)
        self.sums: set[Expr] = set()
        self.allocations: set[Expr] = set()
        self.visit_expr(func)

    def visit_call_(self, op: Call) -> None:
        super().visit_call_(op)
        if not _is_sum(op):
            return
        allocation = self.allocation_of(op.args[0])
        if allocation is not None:
            self.sums.add(op)
            self.allocations.add(allocation)

    def allocation_of(self, expr: Expr) -> Expr | None:
        while True:
            value = self.values.get(expr) if isinstance(expr, Var) else expr
            match value:
                case Var():
                    expr = value
                case Call(op=Op(name="relax.builtin.alloc_tensor")):
                    return value
                case Call(op=Op(name=name), args=(first, *_)) if name in _ALIASES:
                    expr = first
                case _:
                    return None


class _Rewriter(ExprMutator):
    def __init__(self, mod: IRModule, found: _Finder, strategy: int) -> None:
        super().__init__(mod)
        self.found = found
        self.strategy = IntImm(DataType("int64"), strategy)

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call, Call):
            return call
        if op in self.found.sums:
            args = (call.args[0], self.strategy, call.args[3])
            return self.builder.normalize(
                Call(ExternFunc(_CUSTOM), args, ty_args=op.ty_args, span=op.span)
            )
        if op in self.found.allocations:
            return replace(call, args=(*call.args[:3], StringImm("ipc_memory")))
        return call


@dataclass(frozen=True)
class IPCAllReduceRewrite(ModulePass):
    """Let ``runtime.disco.allreduce`` sums work on memory that GPUs share.

    Nothing is changed where the runtime has no ``runtime.disco.cuda_ipc.custom_allreduce``.

    Parameters
    ----------
    allreduce_strategy
        Which algorithm that function is to take.
    """

    allreduce_strategy: int

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with other sums, ``mod`` itself if it has none."""
        if get_global_func(_CUSTOM, allow_missing=True) is None:
            return mod
        changed: dict[Any, Function] = {}
        for gvar, func in mod.functions.items():
            if isinstance(func, Function):
                found = _Finder(func)
                if found.sums:
                    new: Any = _Rewriter(mod, found, self.allreduce_strategy).visit_expr(func)
                    changed[gvar] = new
        return mod.with_functions(changed)
