"""Rearranging tensors: shape, order, joining and splitting.

Counterpart: ``tvm.relax.op.manipulate``. The reshape family is in ``reshape.py``, joining and
splitting in ``join.py``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> permute_dims(Var("x", TensorType([2, 3]))).attrs
Attrs({'axes': None})
"""

from collections.abc import Sequence

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import Type
from relaxlab.relax.literals import to_shape
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import (
    attributes,
    dims_of,
    known_dims,
    normalize_axes,
    op_name,
    shape_argument,
    tensor_argument,
)
from relaxlab.relax.op.join import concat, meshgrid, split, stack
from relaxlab.relax.op.reshape import flatten, reshape
from relaxlab.relax.op.statistical import element_count, to_axes
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.relax.type_relations import dims_equal
from relaxlab.runtime.dtype import DataType

__all__ = [
    "broadcast_to",
    "collapse_sum_like",
    "collapse_sum_to",
    "concat",
    "expand_dims",
    "flatten",
    "flip",
    "meshgrid",
    "permute_dims",
    "repeat",
    "reshape",
    "split",
    "squeeze",
    "stack",
    "tile",
]

_ONE = IntImm(DataType("int64"), 1)
_Shape = Expr | Sequence[Expr | int]


def _is_one(dim: Expr) -> bool:
    return isinstance(dim, IntImm) and dim.value == 1


def _differ(a: Expr, b: Expr) -> bool:
    return isinstance(a, IntImm) and isinstance(b, IntImm) and a.value != b.value


def _shapeless(ty: TensorType, ndim: int) -> TensorType:
    return TensorType(None, ty.dtype, ty.vdevice, ndim)


def _shaped(ty: TensorType, dims: Sequence[Expr]) -> TensorType:
    return TensorType(ShapeExpr(tuple(dims)), ty.dtype, ty.vdevice)


# --- broadcast_to, collapse_sum_* ---------------------------------------------------------------


def _infer_broadcast_to(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    target = shape_argument(call, 1, "broadcast_to requires the input new shape to be Shape")
    if -1 not in (ty.ndim, target.ndim) and ty.ndim > target.ndim:
        raise ValueError(
            "broadcast_to expects the input shape to have the number of ndim at least as the "
            f"input tensor's. However, the given tensor has ndim {ty.ndim} while the target shape "
            f"has ndim {target.ndim}"
        )
    dims, wanted = known_dims(ty), target.values
    if dims is not None and wanted is not None:
        for back in range(1, len(dims) + 1):
            if not _is_one(dims[-back]) and _differ(dims[-back], wanted[-back]):
                raise ValueError(
                    "broadcast_to expects the input tensor shape is broadcastable to the target "
                    f"shape. The target shape at dim {len(wanted) - back} is {wanted[-back]} "
                    f"while the input tensor shape at dim {len(dims) - back} is {dims[-back]}, "
                    "which are not equal."
                )
    return TensorType(call.args[1], ty.dtype, ty.vdevice)


_BROADCAST_TO = declare("broadcast_to", ("x", "shape"), _infer_broadcast_to)


def broadcast_to(x: Expr, shape: _Shape) -> Call:
    """Repeat a tensor along axes of length 1 (and new ones in front) up to ``shape``."""
    return call_op(_BROADCAST_TO, x, to_shape(shape))


def _check_collapse(
    name: str, dims: Sequence[Expr], target: Sequence[Expr], ctx: InferenceContext
) -> None:
    for back in range(1, min(len(dims), len(target)) + 1):
        a, b = dims[-back], target[-back]
        if _is_one(b) or dims_equal(a, b, ctx.analyzer):
            continue
        if _differ(a, b):
            raise ValueError(
                f"In {name}, the data shape at dim {len(dims) - back} is {a} and the target shape "
                f"at dim {len(target) - back} is {b}, which do not match the rule of collapse sum."
            )
        raise ValueError(
            f"{name} fails to match the axes because of unknown dim or symbolic shape. In this "
            f"position the dim of data shape is {a} while the dim of target shape is {b}. If it "
            "is symbolic, consider use MatchCast first."
        )


def _infer_collapse_sum_to(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    target = shape_argument(call, 1, "collapse_sum_to requires the input new shape to be Shape")
    dims = known_dims(ty)
    if dims is not None and target.values is not None:
        _check_collapse(op_name(call), dims, target.values, ctx)
    return TensorType(call.args[1], ty.dtype, ty.vdevice)


def _infer_collapse_sum_like(call: Call, ctx: InferenceContext) -> Type:
    ty, target = tensor_argument(call, 0), tensor_argument(call, 1)
    dims, wanted = known_dims(ty), known_dims(target)
    if dims is not None and wanted is not None:
        _check_collapse(op_name(call), dims, wanted, ctx)
    if target.shape is None:
        return _shapeless(ty, target.ndim)
    return TensorType(target.shape, ty.dtype, ty.vdevice)


_COLLAPSE_SUM_TO = declare("collapse_sum_to", ("data", "shape"), _infer_collapse_sum_to)
_COLLAPSE_SUM_LIKE = declare(
    "collapse_sum_like", ("data", "collapse_target"), _infer_collapse_sum_like
)


def collapse_sum_to(data: Expr, shape: _Shape) -> Call:
    """Sum over the axes that broadcasting from ``shape`` would repeat."""
    return call_op(_COLLAPSE_SUM_TO, data, to_shape(shape))


def collapse_sum_like(data: Expr, collapse_target: Expr) -> Call:
    """:func:`collapse_sum_to` the shape of another tensor."""
    return call_op(_COLLAPSE_SUM_LIKE, data, collapse_target)


# --- axes: permute, insert, drop ----------------------------------------------------------------


def _infer_permute_dims(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    axes = attributes(call).axes
    if ty.ndim == -1:
        return ty if ty.shape is None else _shapeless(ty, -1)
    if axes is not None and len(axes) != ty.ndim:
        raise ValueError(
            "PermuteDims expects the number of input axes to equal the ndim of the input tensor. "
            f"However, the tensor ndim is {ty.ndim} while the given number of axes is {len(axes)}"
        )
    if axes is None:
        order = list(reversed(range(ty.ndim)))
    else:
        order = normalize_axes(op_name(call), axes, ty.ndim)
    if order == sorted(order):
        return ty
    dims = dims_of(ty)
    return _shapeless(ty, ty.ndim) if dims is None else _shaped(ty, [dims[i] for i in order])


_PERMUTE_DIMS = declare("permute_dims", ("x",), _infer_permute_dims, attributes=("axes",))


def permute_dims(x: Expr, axes: Sequence[int] | None = None) -> Call:
    """Reorder axes; None reverses them.

    Raises
    ------
    TypeError
        If ``axes`` is a single number.
    """
    if isinstance(axes, int):
        raise TypeError(f"permute_dims needs a list of axes, got {axes}")
    return call_op(_PERMUTE_DIMS, x, axes=to_axes(axes))


def _infer_expand_dims(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    axes = attributes(call).axis
    if not axes:
        return ty
    if ty.ndim == -1:
        return _shapeless(ty, -1)
    ndim = ty.ndim + len(axes)
    new = normalize_axes(op_name(call), axes, ndim)
    dims = dims_of(ty)
    if dims is None:
        return _shapeless(ty, ndim)
    old = iter(dims)
    return _shaped(ty, [_ONE if i in new else next(old) for i in range(ndim)])


_EXPAND_DIMS = declare("expand_dims", ("x",), _infer_expand_dims, attributes=("axis",))


def expand_dims(x: Expr, axis: int | Sequence[int]) -> Call:
    """Insert axes of length 1; positions count in the result."""
    return call_op(_EXPAND_DIMS, x, axis=to_axes(axis))


def _infer_squeeze(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    axes = attributes(call).axis
    if axes is not None and not axes:
        return ty
    if ty.ndim == -1:
        return _shapeless(ty, -1)
    dims = dims_of(ty)
    if axes is None:
        if dims is None or not all(isinstance(dim, IntImm) for dim in dims):
            return _shapeless(ty, -1)
        return _shaped(ty, [dim for dim in dims if not _is_one(dim)])
    gone = normalize_axes(op_name(call), axes, ty.ndim)
    dims = known_dims(ty)
    if dims is None:
        return _shapeless(ty, ty.ndim - len(gone))
    # a listed axis of a static length other than 1 stays; a symbolic one is taken to be 1
    left = [
        dim
        for i, dim in enumerate(dims)
        if i not in gone or (isinstance(dim, IntImm) and dim.value != 1)
    ]
    return ty if len(left) == len(dims) else _shaped(ty, left)


_SQUEEZE = declare("squeeze", ("x",), _infer_squeeze, attributes=("axis",))


def squeeze(x: Expr, axis: int | Sequence[int] | None = None) -> Call:
    """Drop axes of length 1: the given ones, or all when ``axis`` is None."""
    return call_op(_SQUEEZE, x, axis=to_axes(axis))


# --- repeating and reversing --------------------------------------------------------------------


def _infer_flip(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    axis = attributes(call).axis
    if ty.ndim != -1 and not -ty.ndim <= axis < ty.ndim:
        raise ValueError(
            "Flip requires the input axis belongs range [-ndim, ndim - 1]. However, the input "
            f"axis is {axis}, while ndim is {ty.ndim}"
        )
    return ty


_FLIP = declare("flip", ("data",), _infer_flip, attributes=("axis",))


def flip(data: Expr, axis: int) -> Call:
    """Reverse the order along an axis."""
    return call_op(_FLIP, data, axis=int(axis))


def _infer_repeat(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    repeats, axis = attributes(call).repeats, attributes(call).axis
    dims = dims_of(ty)
    if axis is None:
        if dims is None:
            return _shapeless(ty, 1)
        return _shaped(ty, [ctx.analyzer.simplify(element_count(dims) * repeats)])
    if ty.ndim != -1 and not -ty.ndim <= axis < ty.ndim:
        raise ValueError(
            "Repeat requires the input axis belongs range [-data.ty.ndim, data.ty.ndim - 1]. "
            f"However, the input axis is {axis}, while ndim is {ty.ndim}"
        )
    if dims is None:
        return _shapeless(ty, ty.ndim)
    longer = list(dims)
    longer[axis] = ctx.analyzer.simplify(dims[axis] * repeats)
    return _shaped(ty, longer)


_REPEAT = declare("repeat", ("data",), _infer_repeat, attributes=("repeats", "axis"))


def repeat(data: Expr, repeats: int, axis: int | None = None) -> Call:
    """Repeat each element along an axis, or of the flattened tensor when it is None."""
    return call_op(_REPEAT, data, repeats=int(repeats), axis=axis)


def _infer_tile(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    repeats = attributes(call).repeats
    if ty.ndim == -1:
        return _shapeless(ty, -1)
    ndim = max(ty.ndim, len(repeats))
    dims = dims_of(ty)
    if dims is None:
        return _shapeless(ty, ndim)
    wide = (_ONE,) * (ndim - len(dims)) + dims
    times = (1,) * (ndim - len(repeats)) + tuple(repeats)
    product = [ctx.analyzer.simplify(d * t) for d, t in zip(wide, times, strict=True)]
    return _shaped(ty, product)


_TILE = declare("tile", ("data",), _infer_tile, attributes=("repeats",))


def tile(data: Expr, repeats: int | Sequence[int]) -> Call:
    """Repeat the whole tensor along each axis, as ``numpy.tile``."""
    times = (repeats,) if isinstance(repeats, int) else tuple(int(r) for r in repeats)
    return call_op(_TILE, data, repeats=times)
