"""Sorting, as kernels call it by name.

A sort is no loop nest, so the kernels of ``sort``, ``argsort``, ``topk`` and ``median`` call
these functions with descriptions of their buffers. All are stable, in both directions; a NaN
counts as larger than every number. Counterpart: ``tvm.contrib.sort.*`` of TVM's runtime.

Examples
--------
>>> from relaxlab.runtime.tensor import empty, tensor
>>> out = empty((3,), "int32")
>>> argsort(tensor([5.0, 9.0, 5.0]), out, 0, False)
>>> out.array.tolist()
[1, 0, 2]
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxlab.runtime.packed_func import register_global_func
from relaxlab.runtime.tensor import Tensor

__all__ = ["argsort", "sort", "topk"]


def _order(array: NDArray[Any], axis: int, is_ascend: bool, name: str) -> NDArray[Any]:
    """Return the positions along ``axis`` in sorted order."""
    if not -array.ndim <= axis < array.ndim:
        raise ValueError(f"{name}: axis {axis} is out of range for {array.ndim} dimension(s)")
    if is_ascend:
        return np.argsort(array, axis=axis, kind="stable")
    # a stable ascending order of the reversed row, read backwards, is a stable descending one
    backwards = np.argsort(np.flip(array, axis), axis=axis, kind="stable")
    order: NDArray[Any] = array.shape[axis] - 1 - np.flip(backwards, axis)
    return order


def _require_shape(out: Tensor, shape: tuple[int, ...], name: str) -> None:
    if tuple(out.shape) != shape:
        raise ValueError(f"{name}: expected an output of shape {shape}, got {tuple(out.shape)}")


@register_global_func("tvm.contrib.sort.sort")
def sort(data: Tensor, out: Tensor, axis: int, is_ascend: bool) -> None:
    """Write the elements of ``data`` into ``out``, sorted along ``axis``."""
    name = "tvm.contrib.sort.sort"
    _require_shape(out, data.array.shape, name)
    order = _order(data.array, axis, is_ascend, name)
    out.array[...] = np.take_along_axis(data.array, order, axis)


@register_global_func("tvm.contrib.sort.argsort")
def argsort(data: Tensor, out: Tensor, axis: int, is_ascend: bool) -> None:
    """Write into ``out`` the positions that would sort ``data`` along ``axis``."""
    name = "tvm.contrib.sort.argsort"
    _require_shape(out, data.array.shape, name)
    out.array[...] = _order(data.array, axis, is_ascend, name)


@register_global_func("tvm.contrib.sort.topk")
def topk(data: Tensor, *rest: Any) -> None:
    """Write the ``k`` first elements of each sorted row, their positions, or both.

    Parameters
    ----------
    data
        What is sorted.
    rest
        The outputs (values before positions), ``k`` (less than 1 for all), the axis,
        ``"both"``, ``"values"`` or ``"indices"``, and whether the smallest come first.

    Raises
    ------
    ValueError
        If a row has fewer than ``k`` elements, or an output another shape.
    """
    name = "tvm.contrib.sort.topk"
    *outs, k, axis, ret_type, is_ascend = rest
    if ret_type not in ("both", "values", "indices"):
        raise ValueError(f"{name}: ret_type must be both, values or indices, got {ret_type!r}")
    expected = 2 if ret_type == "both" else 1
    if len(outs) != expected:
        raise ValueError(f"{name}: {ret_type!r} needs {expected} output(s), got {len(outs)}")
    order = _order(data.array, axis, is_ascend, name)
    if k >= 1:
        if k > order.shape[axis]:
            raise ValueError(
                f"{name}: cannot pick {k} of {order.shape[axis]} element(s) along axis {axis}"
            )
        order = np.take(order, range(k), axis=axis)
    for out in outs:
        _require_shape(out, order.shape, name)
    if ret_type != "indices":
        outs[0].array[...] = np.take_along_axis(data.array, order, axis)
    if ret_type != "values":
        outs[-1].array[...] = order
