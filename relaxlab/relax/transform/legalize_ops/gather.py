"""Legalization of choosing and writing elements by tensors of indices.

Counterpart: part of ``tvm.relax.transform.legalize_ops.manipulate``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.scatter_nd").has_attr("FLegalize")
True
"""

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr, Tuple, TupleGetItem
from relaxlab.ir.type import TupleType
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import attrs_of, register_legalize
from relaxlab.relax.type import TensorType
from relaxlab.te import Tensor

__all__: list[str] = []


@register_legalize("one_hot")
def _one_hot(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)
    ty = call.ty
    assert isinstance(ty, TensorType)
    return bb.call_te(
        topi.one_hot,
        *call.args,
        attrs.depth,
        attrs.axis,
        str(ty.dtype),
        primfunc_name_hint="one_hot",
    )


@register_legalize("gather_elements")
def _gather_elements(bb: BlockBuilder, call: Call) -> Expr:
    data, indices = call.args
    return bb.call_te(topi.gather, data, attrs_of(call).axis, indices, primfunc_name_hint="gather")


def _last_first(indices: Tensor) -> Tensor:
    """Return the indices with the axis that names one element first."""
    last = indices.ndim - 1
    return topi.transpose(indices, [last, *range(last)])


@register_legalize("gather_nd")
def _gather_nd(bb: BlockBuilder, call: Call) -> Expr:
    batch_dims = attrs_of(call).batch_dims

    def te_gather_nd(data: Tensor, indices: Tensor) -> Tensor:
        return topi.gather_nd(data, _last_first(indices), batch_dims)

    return bb.call_te(te_gather_nd, *call.args)


@register_legalize("index_tensor")
def _index_tensor(bb: BlockBuilder, call: Call) -> Expr:
    data, indices = call.args
    assert isinstance(indices.ty, TupleType)
    fields = [bb.emit(TupleGetItem(indices, i)) for i in range(len(indices.ty.fields))]
    return bb.call_te(topi.index_tensor, data, fields, primfunc_name_hint="index_tensor")


def _tensors(indices: Expr) -> list[Expr]:
    if isinstance(indices, Tuple):
        return list(indices.fields)
    if isinstance(indices.ty, TupleType):
        return [TupleGetItem(indices, i) for i in range(len(indices.ty.fields))]
    return [indices]


@register_legalize("index_put")
def _index_put(bb: BlockBuilder, call: Call) -> Expr:
    data, indices, values = call.args
    return bb.call_te(
        topi.index_put,
        data,
        _tensors(indices),
        values,
        attrs_of(call).accumulate,
        primfunc_name_hint="index_put",
    )


@register_legalize("scatter_elements")
def _scatter_elements(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)
    return bb.call_te(
        topi.scatter_elements,
        *call.args,
        attrs.axis,
        attrs.reduction,
        primfunc_name_hint="scatter_elements",
    )


@register_legalize("scatter_nd")
def _scatter_nd(bb: BlockBuilder, call: Call) -> Expr:
    reduction = attrs_of(call).reduction

    def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        return topi.scatter_nd(data, _last_first(indices), updates, reduction)

    return bb.call_te(scatter_nd, *call.args, primfunc_name_hint="scatter_nd")


@register_legalize("slice_scatter")
def _slice_scatter(bb: BlockBuilder, call: Call) -> Expr:
    return bb.call_te(
        topi.slice_scatter, *call.args, attrs_of(call).axis, primfunc_name_hint="slice_scatter"
    )
