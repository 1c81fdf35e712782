"""Legalization of operators that choose elements.

Counterpart: ``tvm.relax.transform.legalize_ops.index``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.take").has_attr("FLegalize")
True
"""

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr, Tuple, Var
from relaxlab.ir.prim import IntImm
from relaxlab.relax import op
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import attrs_of, register_legalize
from relaxlab.relax.type import ShapeType, TensorType

__all__: list[str] = []


@register_legalize("take")
def _take(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)
    return bb.call_te(topi.take, *call.args, attrs.axis, attrs.mode, primfunc_name_hint="take")


def _written_out(argument: Expr) -> tuple[Expr, ...] | None:
    return argument.fields if isinstance(argument, Tuple) else None


@register_legalize("strided_slice")
def _strided_slice(bb: BlockBuilder, call: Call) -> Expr:
    data, *rest = call.args
    given = [_written_out(argument) for argument in rest]
    axes = given[0]
    if None in given or axes is None or not all(isinstance(a, IntImm) for a in axes):
        return call  # positions that only the running program knows
    strides = given[3] if len(given) > 3 else None
    if strides is not None and not all(isinstance(s, IntImm) for s in strides):
        return call
    return bb.call_te(
        topi.strided_slice,
        data,
        given[1],
        given[2],
        strides,
        [int(a) for a in axes],  # type: ignore[call-overload]  # literals
        attrs_of(call).assume_inbound,
        primfunc_name_hint="strided_slice",
    )


@register_legalize("dynamic_strided_slice")
def _dynamic_strided_slice(bb: BlockBuilder, call: Call) -> Expr:
    ty = call.args[0].ty
    assert isinstance(ty, TensorType)
    extents = bb.emit(
        bb.call_te(topi.dynamic_slice_shape, *call.args, primfunc_name_hint="shape_func")
    )
    shape = bb.emit(op.tensor_to_shape(extents))
    dims = [Var("s", "int64") for _ in range(ty.ndim)]
    bb.match_cast(shape, ShapeType(dims))
    return bb.call_te(
        topi.dynamic_strided_slice,
        *call.args,
        dims,
        primfunc_name_hint="dynamic_strided_slice",
    )
