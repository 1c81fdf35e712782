"""Sorting and scanning operators become kernels that call the runtime, or scan by themselves.

Runs before LegalizeOps, since the choice depends on the target.
Counterpart: ``tvm.relax.backend.DispatchSortScan``.

Examples
--------
>>> DispatchSortScan().info.name
'DispatchSortScan'
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relaxlab import topi
from relaxlab.ir import IRModule, ModulePass, PassContext
from relaxlab.ir.attrs import Attrs
from relaxlab.ir.expr import Call, Expr
from relaxlab.relax.backend.dispatch import DispatchFunc, dispatch_calls, target_of
from relaxlab.relax.block_builder import BlockBuilder

__all__ = ["DispatchSortScan"]


def _attrs(call: Call) -> Attrs:
    target_of(call)  # says so when there is no kernel for the target
    return call.attrs if call.attrs is not None else Attrs()


def _name(dtype: Any) -> str | None:
    return None if dtype is None else str(dtype)


def _bucketize(bb: BlockBuilder, call: Call) -> Expr:
    attrs = _attrs(call)
    values, boundaries = call.args
    dtype = "int32" if attrs.out_int32 else "int64"
    return bb.call_te(
        topi.searchsorted,
        boundaries,
        values,
        attrs.right,
        dtype,
        primfunc_name_hint="searchsorted",
    )


def _sort(bb: BlockBuilder, call: Call) -> Expr:
    attrs = _attrs(call)
    return bb.call_te(topi.sort, call.args[0], attrs.axis, not attrs.descending)


def _argsort(bb: BlockBuilder, call: Call) -> Expr:
    attrs = _attrs(call)
    return bb.call_te(
        topi.argsort,
        call.args[0],
        attrs.axis,
        not attrs.descending,
        _name(attrs.dtype) or "int32",
    )


def _topk(bb: BlockBuilder, call: Call) -> Expr:
    attrs = _attrs(call)
    return bb.call_te(
        topi.topk,
        call.args[0],
        attrs.k,
        attrs.axis,
        attrs.ret_type,
        not attrs.largest,
        _name(attrs.dtype) or "int32",
    )


def _scan(te_func: Callable[..., Any], name: str) -> DispatchFunc:
    def dispatch(bb: BlockBuilder, call: Call) -> Expr:
        attrs = _attrs(call)
        return bb.call_te(
            te_func,
            call.args[0],
            attrs.axis,
            _name(attrs.dtype),
            attrs.exclusive,
            primfunc_name_hint=name,
        )

    return dispatch


_TABLE: dict[str, DispatchFunc] = {
    "relax.argsort": _argsort,
    "relax.bucketize": _bucketize,
    "relax.cumprod": _scan(topi.cumprod, "cumprod"),
    "relax.cumsum": _scan(topi.cumsum, "cumsum"),
    "relax.sort": _sort,
    "relax.topk": _topk,
}


@dataclass(frozen=True)
class DispatchSortScan(ModulePass):
    """Give bucketize, sort, argsort, topk, cumsum and cumprod their kernels.

    Needs a target (of the tensors' device, or an active one) when the module has such a call.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Replace the calls in every Relax function."""
        return dispatch_calls(mod, _TABLE)
