"""Legalization of operators that make tensors.

Counterpart: ``tvm.relax.transform.legalize_ops.create``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.full").has_attr("FLegalize")
True
"""

import numpy as np

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import FloatImm, IntImm
from relaxlab.ir.prim_ops import const as scalar
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.literals import const
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.transform.legalize_ops.registration import (
    LegalizeFunc,
    attrs_of,
    register_legalize,
    scalar_or_tensor,
)
from relaxlab.relax.type import TensorType

__all__: list[str] = []


def _shape_of_like(call: Call) -> Expr:
    """Return the shape of the tensor that a ``*_like`` operator imitates."""
    ty = call.args[0].ty
    assert isinstance(ty, TensorType)
    assert ty.shape is not None, "the shape is known: the pass checked it"
    return ty.shape


def _result_dtype(call: Call) -> str:
    ty = call.ty
    assert isinstance(ty, TensorType)
    assert ty.dtype is not None, "a kernel needs the dtype of its result"
    return str(ty.dtype)


def _full(is_like: bool) -> LegalizeFunc:
    def legalize(bb: BlockBuilder, call: Call) -> Expr:
        shape = _shape_of_like(call) if is_like else call.args[0]
        if not isinstance(shape, ShapeExpr):
            return call  # the shape is known at run time only
        fill = scalar_or_tensor(call.args[1])
        return bb.call_te(topi.full, shape, _result_dtype(call), fill, primfunc_name_hint="full")

    return legalize


def _constant(is_like: bool, value: float, name: str) -> LegalizeFunc:
    def legalize(bb: BlockBuilder, call: Call) -> Expr:
        shape = _shape_of_like(call) if is_like else call.args[0]
        if not isinstance(shape, ShapeExpr):
            return call  # the shape is known at run time only
        dtype = _result_dtype(call)
        return bb.call_te(topi.full, shape, dtype, scalar(value, dtype), primfunc_name_hint=name)

    return legalize


register_legalize("full")(_full(is_like=False))
register_legalize("full_like")(_full(is_like=True))
register_legalize("ones")(_constant(is_like=False, value=1, name="ones"))
register_legalize("ones_like")(_constant(is_like=True, value=1, name="ones"))
register_legalize("zeros")(_constant(is_like=False, value=0, name="zeros"))
register_legalize("zeros_like")(_constant(is_like=True, value=0, name="zeros"))


@register_legalize("arange")
def _arange(bb: BlockBuilder, call: Call) -> Expr:
    dtype = attrs_of(call).dtype
    if all(isinstance(arg, IntImm | FloatImm) for arg in call.args):
        start, end, step = (arg.value for arg in call.args)  # type: ignore[attr-defined]  # literals
        return const(np.arange(start, end, step, dtype=dtype.numpy()), dtype)
    return bb.call_te(topi.arange, *call.args, str(dtype), primfunc_name_hint="arange")


def _triangle(upper: bool, name: str) -> LegalizeFunc:
    def legalize(bb: BlockBuilder, call: Call) -> Expr:
        data, k = call.args
        return bb.call_te(topi.trilu, data, k, upper, primfunc_name_hint=name)

    return legalize


register_legalize("tril")(_triangle(upper=False, name="tril"))
register_legalize("triu")(_triangle(upper=True, name="triu"))


@register_legalize("eye")
def _eye(bb: BlockBuilder, call: Call) -> Expr:
    return bb.call_te(topi.eye, *call.args, _result_dtype(call), primfunc_name_hint="eye")


@register_legalize("eye_like")
def _eye_like(bb: BlockBuilder, call: Call) -> Expr:
    shape = _shape_of_like(call)
    assert isinstance(shape, ShapeExpr), "the shape is known: the pass checked it"
    return bb.call_te(
        topi.eye,
        *shape.values,
        call.args[1],
        _result_dtype(call),
        primfunc_name_hint="eye_like",
    )


@register_legalize("hamming_window")
def _hamming_window(bb: BlockBuilder, call: Call) -> Expr:
    size, periodic, alpha, beta = call.args
    if not isinstance(size, IntImm) or not isinstance(periodic, IntImm):
        return call  # known to the running program only
    return bb.call_te(
        topi.hamming_window,
        size.value,
        bool(periodic.value),
        alpha,
        beta,
        _result_dtype(call),
        primfunc_name_hint="hamming_window",
    )
