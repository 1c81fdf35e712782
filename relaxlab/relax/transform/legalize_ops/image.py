"""Legalization of operators on images.

Counterpart: ``tvm.relax.transform.legalize_ops.image``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.image.resize2d").has_attr("FLegalize")
True
"""

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import IntImm
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import attrs_of, register_legalize
from relaxlab.relax.type import ShapeType
from relaxlab.te import Tensor

__all__: list[str] = []


def _size(call: Call) -> tuple[Expr, ...] | None:
    ty = call.args[1].ty
    return ty.values if isinstance(ty, ShapeType) else None


def _register_resize(rank: int) -> None:
    @register_legalize(f"image.resize{rank}d")
    def legalize(bb: BlockBuilder, call: Call) -> Expr:
        attrs, size = attrs_of(call), _size(call)
        assert size is not None, "legalized calls have known shapes"

        def resize(data: Tensor) -> Tensor:
            return topi.image.resize(
                data,
                size,
                attrs.layout,
                attrs.method,
                attrs.coordinate_transformation_mode,
                attrs.rounding_method,
                attrs.cubic_alpha,
                bool(attrs.cubic_exclude),
                attrs.extrapolation_value,
                [part.value for part in attrs.roi],
                attrs.out_dtype,
            )

        return bb.call_te(resize, call.args[0], primfunc_name_hint=f"resize{rank}d")


_register_resize(2)
_register_resize(3)


@register_legalize("image.grid_sample")
def _grid_sample(bb: BlockBuilder, call: Call) -> Expr:
    attrs = attrs_of(call)

    def grid_sample(data: Tensor, grid: Tensor) -> Tensor:
        return topi.image.grid_sample(
            data, grid, attrs.method, attrs.padding_mode, attrs.align_corners
        )

    return bb.call_te(grid_sample, *call.args)


@register_legalize("image.affine_grid")
def _affine_grid(bb: BlockBuilder, call: Call) -> Expr:
    size = _size(call)
    if size is None or not all(isinstance(extent, IntImm) for extent in size):
        return call  # the steps between places are literals of the kernel
    extents = [extent.value for extent in size if isinstance(extent, IntImm)]

    def affine_grid(data: Tensor) -> Tensor:
        return topi.image.affine_grid(data, extents, attrs_of(call).align_corners)

    return bb.call_te(affine_grid, call.args[0])
