"""One kernel for ``x @ permute_dims(w)``: no transposed copy of the weights is made.

Counterpart: ``tvm.relax.transform.FuseTransposeMatmul``.

Examples
--------
>>> FuseTransposeMatmul().info.name
'FuseTransposeMatmul'
"""

from dataclasses import dataclass
from typing import Any

from relaxlab import te
from relaxlab.ir import Call, Expr, GlobalVar, IRModule, ModulePass, PassContext, prim_ops
from relaxlab.ir.prim import IntImm
from relaxlab.relax.dpl import is_op, wildcard
from relaxlab.relax.expr import Function
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.transform.fuse_ops_by_pattern import (
    FuseOpsByPattern,
    FusionPattern,
    PatternCheckContext,
)
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor

__all__ = ["FuseTransposeMatmul"]

_NAME = "transpose_matmul_fuse"


def _pattern() -> FusionPattern:
    weight = wildcard()
    turned = is_op("relax.permute_dims")(weight)
    product = is_op("relax.matmul")(wildcard(), turned)
    parts = {"o": product, "w": weight, "wT": turned}
    return FusionPattern(_NAME, product, parts, _turns_last_two)


def _turns_last_two(context: PatternCheckContext) -> bool:
    turned = context.annotated_expr["wT"]
    assert isinstance(turned, Call)
    ty = turned.args[0].ty
    if not isinstance(ty, TensorType) or ty.ndim < 2 or ty.get_shape() is None:
        return False
    axes = turned.attrs.axes if turned.attrs is not None else None
    order = list(reversed(range(ty.ndim))) if axes is None else [int(a) % ty.ndim for a in axes]
    last = ty.ndim - 1
    return order == [*range(ty.ndim - 2), last, last - 1]


class _Rewriter(ExprMutator):
    """Calls one kernel where a matched function was called."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod = mod

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call, Call) or not isinstance(call.op, GlobalVar):
            return call
        func = self.mod.functions.get(call.op)
        if not isinstance(func, Function) or func.attrs.get("Composite") != _NAME:
            return call
        weight, data, *_ = call.args
        assert isinstance(call.ty, TensorType)
        made: Expr = self.builder.call_te(
            _nt_matmul(call.ty.dtype), data, weight, primfunc_name_hint="NT_matmul"
        )
        return self.builder.normalize(made)


def _nt_matmul(out_dtype: DataType | None) -> Any:
    """Return the computation of ``data @ weight^T``, with the batches of either broadcast."""

    def compute(data: Tensor, weight: Tensor) -> Tensor:
        dtype = data.dtype if out_dtype is None else out_dtype
        is_vector = data.ndim == 1
        left, right = list(data.shape[:-2]), list(weight.shape[:-2])
        k = te.reduce_axis((0, data.shape[-1]), "k")
        count = max(len(left), len(right))
        batches = [_larger(left, right, back) for back in range(count, 0, -1)]
        rows = [] if is_vector else [data.shape[-2]]
        dims = [*batches, *rows, weight.shape[-2]]

        def body(*index: Expr) -> Expr:
            lead = index[:count]
            row = index[count:-1]
            a = data(*_own(lead, left), *row, k.var)
            b = weight(*_own(lead, right), index[-1], k.var)
            product = prim_ops.cast(dtype, a) * prim_ops.cast(dtype, b)
            total: Expr = te.sum(product, axis=k)
            return total

        names = [f"i{i}" for i in range(len(dims))]
        result: Tensor = te.compute(dims, body, name="NT_matmul", varargs_names=names)
        return result

    return compute


def _larger(left: list[Expr], right: list[Expr], back: int) -> Expr:
    a = left[-back] if back <= len(left) else None
    b = right[-back] if back <= len(right) else None
    if a is None or (isinstance(a, IntImm) and a.value == 1 and b is not None):
        assert b is not None
        return b
    return a


def _own(lead: tuple[Expr, ...], dims: list[Expr]) -> list[Expr]:
    """Return the part of the batch index that belongs to an operand; 0 where it is broadcast."""
    used = lead[len(lead) - len(dims) :]
    return [
        prim_ops.const(0, i.dtype) if isinstance(d, IntImm) and d.value == 1 else i
        for i, d in zip(used, dims, strict=True)
    ]


@dataclass(frozen=True)
class FuseTransposeMatmul(ModulePass):
    """Give products with a transposed right operand a kernel that reads it as it lies."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with such kernels, ``mod`` itself if it has no such product."""
        matched = FuseOpsByPattern([_pattern()], bind_constants=False)(mod)
        if matched is mod:
            return mod
        rewriter = _Rewriter(matched)
        for gvar, func in matched.functions_items():
            if isinstance(func, Function) and "Composite" not in func.attrs:
                new: Any = rewriter.visit_expr(func)
                if new is not func:
                    rewriter.builder.update_func(gvar, new)
        return rewriter.builder.get()
