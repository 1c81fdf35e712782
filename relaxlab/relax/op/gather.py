"""Choosing elements by tensors of indices. Counterpart: part of ``tvm.relax.op.manipulate``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> x, i = Var("x", TensorType([2, 3])), Var("i", TensorType([5, 2], "int64"))
>>> gather_nd(x, i).attrs
Attrs({'batch_dims': 0})
"""

from collections.abc import Sequence

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr, Tuple
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import PrimType, Type
from relaxlab.relax.literals import convert_to_expr
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import (
    Shape,
    attributes,
    dims_of,
    dtype_name,
    tensor_argument,
    tensor_tuple,
    type_of,
)
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.relax.type_relations import dims_equal
from relaxlab.runtime.dtype import DataType

__all__ = ["gather_elements", "gather_nd", "index_tensor", "one_hot"]

_INT64 = DataType("int64")


def _shown(ty: TensorType) -> str:
    return str(ty.shape) if ty.shape is not None else f"ndim={ty.ndim}"


# --- one_hot ------------------------------------------------------------------------------------


def _infer_one_hot(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    on, off = type_of(call.args[1]), type_of(call.args[2])
    if not isinstance(on, PrimType) or not isinstance(off, PrimType):
        raise TypeError(f"one_hot: on_value and off_value must be scalars, got {on!r} and {off!r}")
    if ty.dtype is not None and not (ty.dtype.is_int or ty.dtype.is_uint):
        raise TypeError(
            "one_hot op requires the input indices to have integer dtype. However, the given "
            f"indices dtype is {dtype_name(ty.dtype)}"
        )
    if on.dtype is not off.dtype:
        raise InternalError(
            "one_hot: on_value and off_value must have the same dtype, but got "
            f"{dtype_name(on.dtype)} and {dtype_name(off.dtype)}"
        )
    axis, depth = attributes(call).axis, attributes(call).depth
    if ty.ndim == -1:
        return TensorType(None, on.dtype, ty.vdevice)
    ndim = ty.ndim + 1
    place = axis + ndim if axis < 0 else axis
    if not 0 <= place < ndim:
        raise InternalError(f"one_hot: axis must be in the range of [0, {ty.ndim}], but got {axis}")
    dims = dims_of(ty)
    if dims is None:
        return TensorType(None, on.dtype, ty.vdevice, ndim)
    shape = (*dims[:place], IntImm(_INT64, depth), *dims[place:])
    return TensorType(ShapeExpr(shape), on.dtype, ty.vdevice)


_ONE_HOT = declare(
    "one_hot",
    ("indices", "on_value", "off_value"),
    _infer_one_hot,
    attributes=("depth", "axis"),
)


def one_hot(indices: Expr, on_value: Expr, off_value: Expr, depth: int, axis: int = -1) -> Call:
    """Each index as a vector along a new axis: ``on_value`` there, ``off_value`` elsewhere.

    Parameters
    ----------
    indices
        Integers below ``depth``; others give a vector of ``off_value``.
    on_value, off_value
        Scalars of one dtype, such as ``relax.prim_value(1.0)``.
    depth
        Length of the vectors.
    axis
        Where the new axis lies in the result.

    Raises
    ------
    InternalError
        If ``depth`` is not positive.
    """
    if depth <= 0:
        raise InternalError(f"one_hot: depth must be positive, but got {depth}")
    return call_op(
        _ONE_HOT,
        indices,
        convert_to_expr(on_value),
        convert_to_expr(off_value),
        depth=int(depth),
        axis=int(axis),
    )


# --- gather_elements ----------------------------------------------------------------------------


def _infer_gather_elements(call: Call, ctx: InferenceContext) -> Type:
    data, indices = tensor_argument(call, 0), tensor_argument(call, 1)
    axis = attributes(call).axis
    if data.ndim != -1 and not -data.ndim <= axis < data.ndim:
        raise ValueError(
            "GatherElements requires axis to be within the input dimension range "
            f"[{-data.ndim}, {data.ndim - 1}]. However, the given axis is {axis}"
        )
    if indices.dtype is not None and not (indices.dtype.is_int or indices.dtype.is_uint):
        raise TypeError(
            "GatherElements requires the input indices to have int64 dtype. However, the given "
            f"indices dtype is {dtype_name(indices.dtype)}"
        )
    if -1 not in (data.ndim, indices.ndim) and data.ndim != indices.ndim:
        raise ValueError(
            "GatherElements requires data and indices to have the same rank. However, data rank is "
            f"{data.ndim} while indices rank is {indices.ndim}"
        )
    if indices.shape is not None:
        return TensorType(indices.shape, data.dtype, data.vdevice)
    return TensorType(None, data.dtype, data.vdevice, indices.ndim)


_GATHER_ELEMENTS = declare(
    "gather_elements", ("data", "indices"), _infer_gather_elements, attributes=("axis",)
)


def gather_elements(data: Expr, indices: Expr, axis: int = 0) -> Call:
    """Pick, at every place of ``indices``, the element that it names on one axis."""
    return call_op(_GATHER_ELEMENTS, data, indices, axis=int(axis))


# --- gather_nd ----------------------------------------------------------------------------------


def _infer_gather_nd(call: Call, ctx: InferenceContext) -> Type:
    data, indices = tensor_argument(call, 0), tensor_argument(call, 1)
    batch = attributes(call).batch_dims
    if data.ndim != -1 and batch > data.ndim:
        raise ValueError(
            f"GatherND batch_dims must be in range [0, data.ndim]. However, got batch_dims={batch}"
            f", data.ndim={data.ndim}"
        )
    if indices.ndim != -1 and batch > indices.ndim - 1:
        raise ValueError(
            "GatherND batch_dims cannot exceed indices.ndim-1. However, got "
            f"batch_dims={batch}, indices.ndim={indices.ndim}"
        )
    if indices.dtype is not None and indices.dtype is not _INT64:
        raise TypeError(
            "GatherND requires the input indices to have int64 dtype. However, the given indices "
            f"dtype is {dtype_name(indices.dtype)}"
        )
    dims = dims_of(indices)
    if -1 in (data.ndim, indices.ndim) or dims is None:
        return TensorType(None, data.dtype, data.vdevice)
    depth = dims[-1]
    if not isinstance(depth, IntImm):
        return TensorType(None, data.dtype, data.vdevice)
    if depth.value > data.ndim - batch:
        raise ValueError(
            "GatherND requires the last dimension of indices to be less than or equal to the rank "
            f"of data minus batch_dims. However, the given shapes are indices: {_shown(indices)}, "
            f"data: {_shown(data)}, with batch_dims={batch}"
        )
    own = dims_of(data)
    if own is None:
        ndim = indices.ndim - 1 + data.ndim - depth.value - batch
        return TensorType(None, data.dtype, data.vdevice, ndim)
    shape = (*dims[:-1], *own[batch + depth.value :])
    return TensorType(ShapeExpr(shape), data.dtype, data.vdevice)


_GATHER_ND = declare("gather_nd", ("data", "indices"), _infer_gather_nd, attributes=("batch_dims",))


def gather_nd(data: Expr, indices: Expr, batch_dims: int = 0) -> Call:
    """Pick what several indices name together.

    Parameters
    ----------
    data
        What is picked from.
    indices
        int64; along the last axis lie the indices that name one element or sub-tensor.
    batch_dims
        How many leading dimensions ``data`` and ``indices`` share.

    Raises
    ------
    InternalError
        If ``batch_dims`` is negative.
    """
    if batch_dims < 0:
        raise InternalError(f"GatherND batch_dims must not be negative, got {batch_dims}")
    return call_op(_GATHER_ND, data, indices, batch_dims=int(batch_dims))


# --- index_tensor -------------------------------------------------------------------------------


def _broadcast_indices(ctx: InferenceContext, shapes: Sequence[tuple[Expr, ...]]) -> Shape:
    """Return the common shape of index tensors, None when it cannot be decided yet."""
    result: list[Expr] = []
    longest = max(len(shape) for shape in shapes)
    for axis in range(longest):
        extent: Expr | None = None
        for shape in shapes:
            at = axis - (longest - len(shape))
            if at < 0:
                continue
            own = shape[at]
            if extent is None or (isinstance(extent, IntImm) and extent.value == 1):
                extent = own
            elif (isinstance(own, IntImm) and own.value == 1) or dims_equal(
                extent, own, ctx.analyzer
            ):
                continue
            elif isinstance(extent, IntImm) and isinstance(own, IntImm):
                raise ValueError(
                    f"index_tensor: cannot broadcast index shapes. Mismatch at axis {axis}: "
                    f"{extent} vs {own}"
                )
            else:
                return None
        assert extent is not None, "every axis belongs to the longest shape"
        result.append(extent)
    return tuple(result)


def _infer_index_tensor(call: Call, ctx: InferenceContext) -> Type:
    data, indices = tensor_argument(call, 0), tensor_tuple(call, 1)
    if not indices:
        raise ValueError("index_tensor expects a non-empty tuple of index tensors")
    for i, index in enumerate(indices):
        if index.dtype is not None and not (index.dtype.is_int or index.dtype.is_uint):
            raise TypeError(
                "index_tensor requires every index tensor to have an integer dtype; index "
                f"{i} has dtype {dtype_name(index.dtype)}"
            )
    if data.ndim != -1 and len(indices) > data.ndim:
        raise ValueError(
            f"index_tensor received {len(indices)} index tensors, but data has only {data.ndim} "
            "dimensions"
        )
    known = [dims for dims in map(dims_of, indices) if dims is not None]
    shape = _broadcast_indices(ctx, known) if len(known) == len(indices) else None
    if shape is None or data.ndim == -1:
        return TensorType(None, data.dtype, data.vdevice)
    own = dims_of(data)
    if own is None:
        ndim = len(shape) + data.ndim - len(indices)
        return TensorType(None, data.dtype, data.vdevice, ndim)
    return TensorType(ShapeExpr((*shape, *own[len(indices) :])), data.dtype, data.vdevice)


_INDEX_TENSOR = declare("index_tensor", ("data", "indices"), _infer_index_tensor)


def index_tensor(data: Expr, indices: Expr | Sequence[Expr]) -> Call:
    """Pick as NumPy's ``data[i, j, ...]`` with integer arrays, which are broadcast to one shape.

    Parameters
    ----------
    data
        What is picked from.
    indices
        A tuple (or one tuple expression) of integer tensors for the first dimensions.
    """
    chosen = indices if isinstance(indices, Expr) else Tuple(tuple(indices))
    return call_op(_INDEX_TENSOR, data, chosen)
