"""Legalization of shapes that become tensors.

Counterpart: part of ``tvm.relax.transform.legalize_ops.manipulate`` and ``inspect_op``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.shape_to_tensor").has_attr("FLegalize")
True
"""

from relaxlab import te, topi
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr
from relaxlab.relax import op
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import register_legalize
from relaxlab.relax.type import ShapeType
from relaxlab.te import Tensor

__all__: list[str] = []


def shape_to_tensor(*values: Expr) -> Tensor:
    """Return a vector of the given int64 scalars."""

    def body(i: Expr) -> Expr:
        result = prim_ops.const(0, "int64")
        for at, value in reversed(list(enumerate(values))):
            here = prim_ops.equal(i, prim_ops.const(at, "int64"))
            result = prim_ops.if_then_else(here, value, result)
        return result

    count = prim_ops.const(len(values), "int64")
    made: Tensor = te.compute((count,), body, name="shape_to_tensor")
    return made


@register_legalize("shape_to_tensor")
def _shape_to_tensor(bb: BlockBuilder, call: Call) -> Expr:
    ty = call.args[0].ty
    assert isinstance(ty, ShapeType)
    assert ty.values is not None, "the shape is known: the pass checked it"
    return bb.call_te(shape_to_tensor, *ty.values, primfunc_name_hint="shape_to_tensor")


@register_legalize("size")
def _size(bb: BlockBuilder, call: Call) -> Expr:
    shape = bb.emit(op.shape_of(call.args[0]))
    extents = bb.emit(op.shape_to_tensor(shape))
    return bb.call_te(topi.prod, extents, primfunc_name_hint="prod")
