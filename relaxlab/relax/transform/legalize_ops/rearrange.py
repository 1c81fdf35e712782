"""Legalization of what brings elements into another order.

Counterpart: part of ``tvm.relax.transform.legalize_ops.manipulate``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.layout_transform").has_attr("FLegalize")
True
"""

from typing import Any

from relaxlab import te, topi
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr, Tuple
from relaxlab.ir.node import replace
from relaxlab.ir.op import Op
from relaxlab.ir.prim import IntImm, Range, TensorRegion
from relaxlab.ir.prim_functor import post_order_map, substitute
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.call_te import make_kernel
from relaxlab.relax.op.inference import dims_of
from relaxlab.relax.transform.legalize_ops.registration import attrs_of, register_legalize
from relaxlab.relax.type import TensorType
from relaxlab.te import Tensor
from relaxlab.tirx import BufferStore, PrimFunc, SBlock, buffer_type, decl_buffer
from relaxlab.tirx.index_map import IndexMap

__all__: list[str] = []


@register_legalize("reverse_sequence")
def _reverse_sequence(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)
    return bb.call_te(
        topi.reverse_sequence,
        *call.args,
        attrs.seq_axis,
        attrs.batch_axis,
        primfunc_name_hint="reverse_sequence",
    )


def _write_elsewhere(kernel: PrimFunc, index_map: IndexMap) -> PrimFunc:
    """Return a kernel that writes each element of its last parameter to another place."""
    old = kernel.params[-1]
    before = buffer_type(old)
    new = decl_buffer(index_map.map_shape(before.shape), before.dtype, old.name)

    def move(node: Any) -> Any:
        match node:
            case BufferStore() if node.buffer is old:
                return BufferStore(new, node.value, index_map.map_indices(node.indices))
            case SBlock() if any(region.buffer is old for region in node.writes):
                (region,) = node.writes
                where = index_map.map_indices([r.min for r in region.region])
                one = prim_ops.const(1, where[0].dtype)
                writes = (TensorRegion(new, tuple(Range(i, one) for i in where)),)
                return replace(node, writes=writes)
            case _:
                return node

    body = post_order_map(kernel.body, move)
    return PrimFunc((*kernel.params[:-1], new), body, kernel.ret_type, kernel.attrs)


@register_legalize("layout_transform")
def _layout_transform(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)
    index_map: IndexMap = attrs.index_map
    (data,) = call.args
    ty = data.ty
    assert isinstance(ty, TensorType)
    assert ty.dtype is not None
    dims = dims_of(ty)
    assert dims is not None, "legalized calls have known shapes"
    _, padding = index_map.non_surjective_inverse(dims)
    if isinstance(padding, IntImm) and not padding.value:

        def te_layout_transform(x: Tensor) -> Tensor:
            names = ("self", *(f"i{i}" for i in range(x.ndim - 1)))
            result: Tensor = te.compute(
                x.shape, lambda *i: x(*i), name="te_layout_transform", varargs_names=names
            )
            return result

        kernel, args, _ = make_kernel(te_layout_transform, [data], {})
        gvar = bb.add_func(_write_elsewhere(kernel, index_map), "te_layout_transform")
        given = Tuple(tuple(bb.normalize_argument(arg) for arg in args))
        assert call.ty is not None, "a normalized call has a type"
        return Call(Op.get("relax.call_tir"), (gvar, given), ty_args=(call.ty,))
    value = prim_ops.const(0, ty.dtype) if attrs.pad_value is None else attrs.pad_value

    def te_layout_transform_with_pad(x: Tensor) -> Tensor:
        exact, beyond = index_map.non_surjective_inverse(x.shape)

        def element(*index: Expr) -> Expr:
            where = dict(zip(exact.initial_indices, index, strict=True))
            condition, *source = (substitute(e, where) for e in (beyond, *exact.final_indices))
            return prim_ops.if_then_else(condition, value, x(*source))

        result: Tensor = te.compute(
            index_map.map_shape(x.shape),
            element,
            name="te_layout_transform_with_pad",
            varargs_names=[var.name for var in exact.initial_indices],
        )
        return result

    return bb.call_te(te_layout_transform_with_pad, data)
