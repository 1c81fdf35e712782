"""Sorting, by functions of the runtime that the kernel calls by name.

Counterpart: ``tvm.topi.sort`` and ``topk``.

Examples
--------
>>> from relaxlab import te
>>> [t.op.name for t in topk(te.placeholder((2, 4), name="x"), 2)]
['topk_cpu', 'topk_cpu']
"""

from collections.abc import Sequence
from typing import Any

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.prim_intrinsics import call_intrin
from relaxlab.ir.type import PointerType, PrimType
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.tirx import Evaluate, Stmt, buffer_type, decl_buffer
from relaxlab.topi.indices import normalize_axis, static_extent

__all__ = ["argsort", "sort", "topk"]

_HANDLE = DataType("handle")


def _as_array(buffer: Var, shape: Sequence[Expr]) -> Call:
    """Describe a buffer to a packed function: data, shape, dense strides, rank, dtype, offset."""
    ty = buffer_type(buffer)
    data = call_intrin(PointerType(PrimType(ty.dtype)), "tirx.buffer_data", buffer)
    extents = call_intrin(_HANDLE, "tirx.tvm_stack_make_shape", *shape)
    index = shape[0].dtype if shape else DataType("int32")
    return call_intrin(
        _HANDLE,
        "tirx.tvm_stack_make_array",
        data,
        extents,
        prim_ops.const(0),
        prim_ops.const(len(ty.shape)),
        prim_ops.const(0, ty.dtype),
        prim_ops.const(0, index),
    )


def _sorted(
    data: Tensor, dtype: DataType, axis: int, is_ascend: bool, function: str, name: str
) -> Tensor:
    normalize_axis(axis, data.ndim)
    data_buf = decl_buffer(data.shape, data.dtype, "data_buf", data_alignment=8)
    out_buf = decl_buffer(data.shape, dtype, "out_buf", data_alignment=8)

    def body(inputs: Sequence[Var], outputs: Sequence[Var]) -> Stmt:
        call = prim_ops.call_packed(
            function,
            _as_array(inputs[0], data.shape),
            _as_array(outputs[0], data.shape),
            axis,
            is_ascend,
        )
        return Evaluate(call)

    result: Tensor = te.extern(
        [data.shape],
        [data],
        body,
        name=name,
        dtype=[dtype],
        in_buffers=[data_buf],
        out_buffers=[out_buf],
    )[0]
    return result


def sort(data: Tensor, axis: int = -1, is_ascend: bool = True) -> Tensor:
    """Sort along an axis."""
    return _sorted(data, data.dtype, axis, is_ascend, "tvm.contrib.sort.sort", "sort_cpu")


def argsort(
    data: Tensor, axis: int = -1, is_ascend: bool = True, dtype: DataType | str = "int32"
) -> Tensor:
    """Return the positions that would sort along an axis; equal elements keep their order."""
    target = DataType(dtype)
    return _sorted(data, target, axis, is_ascend, "tvm.contrib.sort.argsort", "argsort_cpu")


def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: DataType | str = "int32",
) -> Any:
    """Return the ``k`` largest elements along an axis, their positions, or both.

    Parameters
    ----------
    data
        A tensor.
    axis
        Along which.
    k
        How many; all when there are not more, or when it is less than 1.
    ret_type
        ``"values"``, ``"indices"`` or ``"both"``.
    is_ascend
        Whether the smallest are wanted.
    dtype
        Dtype of the positions.

    Raises
    ------
    ValueError
        If ``ret_type`` is none of the three.
    """
    if ret_type not in ("both", "values", "indices"):
        raise ValueError(f"topk: ret_type must be both, values or indices, got {ret_type!r}")
    place = normalize_axis(axis, data.ndim)
    # the shapes told to the packed function are int32 where they are literals, as in TVM
    told = [prim_ops.const(d) if (d := static_extent(e)) is not None else e for e in data.shape]
    length = static_extent(data.shape[place])
    if length is not None and k > length:
        k = length  # as the operator's type says
    if k >= 1:
        told[place] = prim_ops.const(k)
    shape = [prim_ops.cast("int64", extent) for extent in told]
    data_buf = decl_buffer(data.shape, data.dtype, "data_buf", data_alignment=8)
    wanted: list[Var] = []
    if ret_type != "indices":
        wanted.append(decl_buffer(shape, data.dtype, "value_buf", data_alignment=8))
    if ret_type != "values":
        wanted.append(decl_buffer(shape, dtype, "indices_buf", data_alignment=8))

    def body(inputs: Sequence[Var], outputs: Sequence[Var]) -> Stmt:
        call = prim_ops.call_packed(
            "tvm.contrib.sort.topk",
            _as_array(inputs[0], data.shape),
            *(_as_array(out, told) for out in outputs),
            k,
            axis,
            ret_type,
            is_ascend,
        )
        return Evaluate(call)

    results = te.extern(
        [shape] * len(wanted),
        [data],
        body,
        name="topk_cpu",
        dtype=[buffer_type(buffer).dtype for buffer in wanted],
        in_buffers=[data_buf],
        out_buffers=wanted,
    )
    return list(results) if ret_type == "both" else results[0]
