"""Elements in another order: sequences reversed, layouts changed by a map of indices.

Counterpart: part of ``tvm.relax.op.manipulate``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> x = Var("x", TensorType([2, 3]))
>>> len(layout_transform(x, lambda i, j: (j, i)).attrs.index_map.final_indices)
2
"""

from collections.abc import Callable
from typing import Any

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import FloatImm, IntImm
from relaxlab.ir.type import Type
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import attributes, dims_of, dtype_name, tensor_argument
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx.index_map import IndexMap

__all__ = ["layout_transform", "reverse_sequence"]


# --- reverse_sequence ---------------------------------------------------------------------------


def _infer_reverse_sequence(call: Call, ctx: InferenceContext) -> Type:
    data, lengths = tensor_argument(call, 0), tensor_argument(call, 1)
    attrs = attributes(call)
    if lengths.ndim not in (-1, 1):
        raise ValueError(
            "ReverseSequence requires seq_lengths to be 1-D. However, seq_lengths has ndim "
            f"{lengths.ndim}"
        )
    if lengths.dtype is not None and str(lengths.dtype) not in ("int32", "int64"):
        raise ValueError(
            "ReverseSequence requires seq_lengths to have dtype int32 or int64. However, "
            f"seq_lengths has dtype {dtype_name(lengths.dtype)}"
        )
    if data.ndim != -1:
        for name in ("seq_axis", "batch_axis"):
            if not -data.ndim <= attrs[name] < data.ndim:
                raise ValueError(
                    f"ReverseSequence requires {name} to belong to range [-ndim, ndim). However, "
                    f"the axis is {attrs[name]}, while ndim is {data.ndim}"
                )
    dims, counts = dims_of(data), dims_of(lengths)
    if dims is not None and counts is not None:
        batch = attrs.batch_axis % data.ndim
        extent, count = dims[batch], counts[0]
        if isinstance(extent, IntImm) and isinstance(count, IntImm) and extent.value != count.value:
            raise ValueError(
                "ReverseSequence requires seq_lengths.shape[0] to equal the batch axis extent. "
                f"However, seq_lengths.shape[0] is {count}, while data.shape[{batch}] is {extent}"
            )
    return data


_REVERSE_SEQUENCE = declare(
    "reverse_sequence",
    ("data", "seq_lengths"),
    _infer_reverse_sequence,
    attributes=("seq_axis", "batch_axis"),
)


def reverse_sequence(data: Expr, seq_lengths: Expr, seq_axis: int = 1, batch_axis: int = 0) -> Call:
    """Reverse the first elements of each sequence.

    Parameters
    ----------
    data
        The sequences.
    seq_lengths
        How many elements of each are reversed: a vector of int32 or int64.
    seq_axis
        Along which axis sequences run.
    batch_axis
        Which axis counts them.
    """
    return call_op(
        _REVERSE_SEQUENCE,
        data,
        seq_lengths,
        seq_axis=int(seq_axis),
        batch_axis=int(batch_axis),
    )


# --- layout_transform ---------------------------------------------------------------------------


def _infer_layout_transform(call: Call, ctx: InferenceContext) -> Type:
    data = tensor_argument(call, 0)
    attrs = attributes(call)
    index_map, pad = attrs.index_map, attrs.pad_value
    given = len(index_map.initial_indices)
    if data.ndim not in (-1, given):
        raise ValueError(
            "number of dimensions in input must match the number of source dimensions in index "
            f"map, but got {data.ndim} != {given}"
        )
    if pad is not None and data.dtype is not None and pad.dtype is not data.dtype:
        raise TypeError(
            f"layout_transform pad_value dtype ({dtype_name(pad.dtype)}) and input dtype "
            f"({dtype_name(data.dtype)}) must be the same"
        )
    dims = dims_of(data)
    if dims is None:
        return TensorType(None, data.dtype, data.vdevice, len(index_map.final_indices))
    return TensorType(ShapeExpr(index_map.map_shape(dims)), data.dtype, data.vdevice)


_LAYOUT_TRANSFORM = declare(
    "layout_transform",
    ("data",),
    _infer_layout_transform,
    attributes=("index_map", "pad_value"),
)


def _padding(data: Expr, value: Any) -> Expr | None:
    """Return a number as a literal of the data's dtype."""
    if value is None or isinstance(value, Expr):
        return value
    dtype = data.ty.dtype if isinstance(data.ty, TensorType) else None
    if isinstance(value, float) and (dtype is None or not dtype.is_float):
        return FloatImm(DataType("float64"), value)
    if dtype is not None and dtype.is_float:
        return FloatImm(dtype, float(value))
    return IntImm(dtype or DataType("int32"), int(value))


def layout_transform(
    data: Expr,
    index_map: IndexMap | Callable[..., Any],
    pad_value: float | Expr | None = None,
) -> Call:
    """Move each element to where a map of indices says.

    Parameters
    ----------
    data
        What is moved.
    index_map
        An :class:`IndexMap`, or a function of the index that returns one.
    pad_value
        What places get that no element moves to; 0 when None.
    """
    if not isinstance(index_map, IndexMap):
        ndim = data.ty.ndim if isinstance(data.ty, TensorType) and data.ty.ndim != -1 else None
        index_map = IndexMap.from_func(index_map, ndim)
    return call_op(
        _LAYOUT_TRANSFORM, data, index_map=index_map, pad_value=_padding(data, pad_value)
    )
