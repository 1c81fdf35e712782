"""Writing into a copy of a tensor. Counterpart: part of ``tvm.relax.op.manipulate``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> x, y = Var("x", TensorType([4])), Var("y", TensorType([2]))
>>> slice_scatter(x, y, 0, 4, 2).attrs
Attrs({'axis': 0})
"""

from collections.abc import Sequence
from typing import Any

from relaxlab.ir.expr import Call, Expr, Tuple
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import TupleType, Type
from relaxlab.relax.literals import convert_to_expr
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import (
    attributes,
    dims_of,
    dtype_name,
    normalize_axis,
    op_name,
    tensor_argument,
    tensor_tuple,
    type_of,
)
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

__all__ = ["index_put", "scatter_elements", "scatter_nd", "slice_scatter"]


def _differ(a: Expr, b: Expr) -> bool:
    return isinstance(a, IntImm) and isinstance(b, IntImm) and a.value != b.value


def _is_integer(dtype: DataType | None) -> bool:
    return dtype is None or dtype.is_int or dtype.is_uint


def _check_dtypes(what: str, data: TensorType, indices: TensorType, updates: TensorType) -> None:
    if not _is_integer(indices.dtype):
        raise TypeError(
            f"{what} op requires the input indices to have integer dtype. However, the given "
            f"indices dtype is {dtype_name(indices.dtype)}"
        )
    if None not in (data.dtype, updates.dtype) and data.dtype is not updates.dtype:
        raise TypeError(
            f"{what} op requires the input data to have same type with updates. However, the given "
            f"types are data: {dtype_name(data.dtype)}, updates: {dtype_name(updates.dtype)}"
        )


# --- scatter_elements ---------------------------------------------------------------------------


def _infer_scatter_elements(call: Call, ctx: InferenceContext) -> Type:
    data, indices, updates = (tensor_argument(call, i) for i in range(3))
    for first, a, second, b in (
        ("indices", indices, "data", data),
        ("updates", updates, "indices", indices),
    ):
        if -1 not in (a.ndim, b.ndim) and a.ndim != b.ndim:
            other = "the data tensor" if second == "data" else "the indices tensor"
            same = "indices tensor" if second == "data" else "updates tensor"
            raise ValueError(
                f"ScatterElements op requires {other} to have the same rank with {same}. However, "
                f"the given dimensions are {first}: {a.ndim}, {second}: {b.ndim}"
            )
    if data.ndim != -1:
        normalize_axis(op_name(call), attributes(call).axis, data.ndim)
    _check_dtypes("ScatterElements", data, indices, updates)
    for given, new in zip(dims_of(indices) or (), dims_of(updates) or (), strict=False):
        if _differ(given, new):
            raise ValueError(
                "ScatterElements op requires the indices tensor to have the same shape with "
                f"updates tensor. However, the given shapes are indices: {indices.shape}, updates: "
                f"{updates.shape}"
            )
    return data


_SCATTER_ELEMENTS = declare(
    "scatter_elements",
    ("data", "indices", "updates"),
    _infer_scatter_elements,
    attributes=("axis", "reduction"),
)


def scatter_elements(
    data: Expr, indices: Expr, updates: Expr, axis: int = 0, reduction: str = "update"
) -> Call:
    """Write each update where its index says on one axis, and its own place on the others.

    Parameters
    ----------
    data
        What is copied first.
    indices, updates
        Tensors of one shape and the rank of ``data``; a negative index counts from the end.
    axis
        The axis of the indices.
    reduction
        ``"update"``, ``"add"``, ``"mul"``, ``"mean"``, ``"min"`` or ``"max"`` of old and new.
    """
    return call_op(
        _SCATTER_ELEMENTS, data, indices, updates, axis=int(axis), reduction=str(reduction)
    )


# --- scatter_nd ---------------------------------------------------------------------------------


def _infer_scatter_nd(call: Call, ctx: InferenceContext) -> Type:
    data, indices, updates = (tensor_argument(call, i) for i in range(3))
    _check_dtypes("ScatterND", data, indices, updates)
    own, chosen, new = dims_of(data), dims_of(indices), dims_of(updates)
    if own is None or chosen is None or not chosen or not isinstance(chosen[-1], IntImm):
        return data
    depth = chosen[-1].value
    if depth > len(own) or (new is not None and len(new) != len(chosen) - 1 + len(own) - depth):
        raise ValueError(
            "ScatterND op requires the updates tensor to have the rank of `data tensor + indices "
            "tensor - last axis of indices tensor - 1`. However, the given shapes are data: "
            f"{data.shape}, indices: {indices.shape}, updates: {updates.shape}"
        )
    expected = (*chosen[:-1], *own[depth:])
    if new is not None and any(map(_differ, new, expected)):
        raise ValueError(
            "ScatterND op requires the updates tensor to have the shape with constraint: "
            "`updates.shape = indices.shape[:-1] + data.shape[K:]`, but got updates.shape: "
            f"{updates.shape}, indices.shape: {indices.shape}, data.shape: {data.shape}"
        )
    return data


_SCATTER_ND = declare(
    "scatter_nd", ("data", "indices", "updates"), _infer_scatter_nd, attributes=("reduction",)
)


def scatter_nd(data: Expr, indices: Expr, updates: Expr, reduction: str = "update") -> Call:
    """Write each update where several indices together say.

    Parameters
    ----------
    data
        What is copied first.
    indices
        Integers; along the last axis lie those that name one element or sub-tensor.
    updates
        Of shape ``indices.shape[:-1] + data.shape[k:]``.
    reduction
        ``"update"``, ``"add"``, ``"mul"``, ``"min"`` or ``"max"`` of old and new.
    """
    return call_op(_SCATTER_ND, data, indices, updates, reduction=str(reduction))


# --- index_put ----------------------------------------------------------------------------------


def _infer_index_put(call: Call, ctx: InferenceContext) -> Type:
    data, values = tensor_argument(call, 0), tensor_argument(call, 2)
    indices: Sequence[TensorType]
    if isinstance(type_of(call.args[1]), TupleType):
        indices = tensor_tuple(call, 1)
    else:
        indices = [tensor_argument(call, 1)]
    if data.ndim != -1 and len(indices) != data.ndim:
        raise ValueError(
            f"IndexPut requires the number of index tensors ({len(indices)}) to match the data "
            f"tensor dimensions ({data.ndim})"
        )
    for i, index in enumerate(indices):
        if not _is_integer(index.dtype):
            raise TypeError(
                f"IndexPut requires each index tensor to have integer dtype. However, index tensor "
                f"{i} has dtype={dtype_name(index.dtype)}"
            )
    if None not in (data.dtype, values.dtype) and data.dtype is not values.dtype:
        raise TypeError(
            "IndexPut requires the input data to have same type with values. However, the given "
            f"types are data: {dtype_name(data.dtype)}, values: {dtype_name(values.dtype)}"
        )
    _check_values(indices, values)
    return data


def _check_values(indices: Sequence[TensorType], values: TensorType) -> None:
    """Refuse values that do not broadcast to the indices, which TVM reads beyond their end."""
    given = dims_of(values)
    shapes = [dims for dims in map(dims_of, indices) if dims is not None]
    if given is None or len(shapes) != len(indices):
        return
    ndim = max(len(shape) for shape in shapes)
    fits = len(given) <= ndim
    for back in range(1, len(given) + 1):
        extents = [shape[-back] for shape in shapes if len(shape) >= back]
        largest = next((e for e in extents if not _is_one(e)), None)
        own = given[-back]
        fits = fits and (_is_one(own) or largest is None or not _differ(own, largest))
        fits = fits and not (largest is None and _differ(own, IntImm(own.dtype, 1)))
    if not fits:
        raise ValueError(
            f"IndexPut requires values that broadcast to the indices. However, the values have "
            f"shape {values.shape} and the indices {', '.join(str(i.shape) for i in indices)}"
        )


def _is_one(extent: Expr) -> bool:
    return isinstance(extent, IntImm) and extent.value == 1


_INDEX_PUT = declare(
    "index_put", ("data", "indices", "values"), _infer_index_put, attributes=("accumulate",)
)


def index_put(
    data: Expr, indices: Expr | Sequence[Expr], values: Expr, accumulate: bool = False
) -> Call:
    """Write values where index tensors, broadcast to one shape, together say.

    Parameters
    ----------
    data
        What is copied first.
    indices
        One integer tensor per dimension; a negative index counts from the end.
    values
        Of the shape of the broadcast indices, or broadcast to it.
    accumulate
        Whether to add instead.
    """
    chosen = indices if isinstance(indices, Expr) else Tuple(tuple(indices))
    return call_op(_INDEX_PUT, data, chosen, values, accumulate=bool(accumulate))


# --- slice_scatter ------------------------------------------------------------------------------


def _infer_slice_scatter(call: Call, ctx: InferenceContext) -> Type:
    data, src = tensor_argument(call, 0), tensor_argument(call, 1)
    start, end, step = call.args[2:]
    if data.ndim == -1:
        return data
    axis = attributes(call).axis
    if not -data.ndim <= axis < data.ndim:
        raise ValueError(
            f"SliceScatter requires the input axis to be in the range [{-data.ndim}, "
            f"{data.ndim - 1}]. However, the input axis is {axis}, while ndim is {data.ndim}"
        )
    place = axis + data.ndim if axis < 0 else axis
    if src.ndim not in (-1, data.ndim):
        raise ValueError(
            "SliceScatter op requires the data tensor to have the same rank as the src tensor. "
            f"However, the given dimensions are src: {src.ndim}, data: {data.ndim}"
        )
    if None not in (data.dtype, src.dtype) and data.dtype is not src.dtype:
        raise TypeError(
            "SliceScatter op requires the input data to have the same type as the src tensor. "
            f"However, the given types are data: {dtype_name(data.dtype)}, src: "
            f"{dtype_name(src.dtype)}"
        )
    if isinstance(step, IntImm) and step.value < 1:
        raise ValueError(f"SliceScatter op requires the step ({step}) to be >= 1.")
    own, given = dims_of(data), dims_of(src)
    if own is None or given is None:
        return data
    for i, (a, b) in enumerate(zip(own, given, strict=True)):
        if i != place and _differ(a, b):
            raise ValueError(
                "SliceScatter op requires the data tensor to have the same shape as the src tensor "
                f"except at the scatter axis ({place}). Mismatch at dimension {i}. data shape: "
                f"{_listed(own)}, src shape: {_listed(given)}"
            )
    count = ctx.analyzer.simplify((end - start + step - 1) // step)
    if _differ(given[place], count):
        raise ValueError(
            "SliceScatter op requires the src tensor's dimension at scatter axis "
            f"({place}) to match the number of elements in the slice. Actual src dimension at axis "
            f"{place}: {given[place]}, Expected elements in slice (num_elem): {count}"
        )
    return data


def _listed(dims: Sequence[Expr]) -> str:
    return "(" + ", ".join(map(str, dims)) + ("," if len(dims) == 1 else "") + ")"


_SLICE_SCATTER = declare(
    "slice_scatter",
    ("input_tensor", "src", "start", "end", "step"),
    _infer_slice_scatter,
    attributes=("axis",),
)


def slice_scatter(
    input_tensor: Expr, src: Expr, start: Any, end: Any, step: Any = 1, axis: int = 0
) -> Call:
    """Replace ``start:end:step`` of one axis.

    Parameters
    ----------
    input_tensor
        What is copied.
    src
        What the slice becomes.
    start, end, step
        Numbers or scalar expressions, counted from the front; the step is at least 1.
    axis
        Which axis.
    """
    bounds = [convert_to_expr(bound) for bound in (start, end, step)]
    return call_op(_SLICE_SCATTER, input_tensor, src, *bounds, axis=int(axis))
