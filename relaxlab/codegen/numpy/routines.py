"""What generated kernels call besides NumPy.

Reductions that treat NaN as the interpreter does, checks of indices that come from data, and
integer arithmetic that NumPy does differently. Counterpart: the small runtime library that a
compiled kernel links.

Examples
--------
>>> import numpy as np
>>> trunc_divide(np.array([-7]), np.array([2])).tolist()
[-3]
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from relaxlab.ir.prim_literals import trunc_div, wrap_int
from relaxlab.ir.prim_literals import trunc_mod as trunc_mod_int
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx import scalar

__all__ = [
    "arg_reduce",
    "cast",
    "check_index",
    "check_range",
    "check_write",
    "extremum_reduce",
    "floor_divide",
    "floor_mod",
    "guard_index",
    "ordered_reduce",
    "scalar_call",
    "scalar_div",
    "scalar_max",
    "scalar_min",
    "scalar_mod",
    "shift_left",
    "shift_right",
    "strided_view",
    "trunc_divide",
    "trunc_mod",
    "wrap",
]

Array = NDArray[Any]


# ---------------------------------------------------------------- indices


def _refuse(kernel: str, verb: str, buffer: str, axis: int, index: int, extent: int) -> None:
    raise IndexError(
        f"kernel {kernel!r} {verb} {buffer}: index {index} of dimension {axis} is outside "
        f"[0, {extent})"
    )


def check_index(index: Any, extent: int, kernel: str, buffer: str, axis: int) -> Any:
    """Return ``index`` (an array or a number) if every element is in ``[0, extent)``.

    Raises
    ------
    IndexError
        If one is not; the message names kernel, buffer, index and range.
    """
    if isinstance(index, np.ndarray):
        if index.size:
            low, high = index.min(), index.max()
            if low < 0 or high >= extent:
                bad = int(low) if low < 0 else int(high)
                _refuse(kernel, "reads", buffer, axis, bad, extent)
    elif not 0 <= index < extent:
        _refuse(kernel, "reads", buffer, axis, int(index), extent)
    return index


def check_write(index: int, extent: int, kernel: str, buffer: str, axis: int) -> int:
    """Return an index to write at if it is in ``[0, extent)``, else raise IndexError."""
    if not 0 <= index < extent:
        _refuse(kernel, "writes", buffer, axis, index, extent)
    return index


def check_range(
    first: int, last: int, extent: int, kernel: str, verb: str, buffer: str, axis: int
) -> None:
    """Refuse a range of indices, both ends included, that leaves ``[0, extent)``."""
    if last >= first and (first < 0 or last >= extent):
        _refuse(kernel, verb, buffer, axis, first if first < 0 else last, extent)


def guard_index(index: Any, used: Any, extent: int, kernel: str, buffer: str, axis: int) -> Array:
    """Return ``index`` with 0 where the element is not ``used``; the used ones are checked."""
    safe = np.where(used, index, 0)
    check_index(safe, extent, kernel, buffer, axis)
    # nothing to read at all: an index that is never used still has to be one
    return safe


def strided_view(array: Array, offset: Sequence[int], shape: Sequence[int], steps: Any) -> Array:
    """Return a view of which axis ``k`` moves by ``steps[k][d]`` along dimension ``d``.

    The caller has checked that every element lies inside ``array``.
    """
    if 0 in shape:
        return np.empty(shape, array.dtype)
    strides = [
        sum(step * stride for step, stride in zip(row, array.strides, strict=True)) for row in steps
    ]
    start = array[tuple(slice(at, None) for at in offset)]
    return as_strided(start, shape, strides, writeable=False)


# ---------------------------------------------------------------- integers


def _no_zero(b: Any) -> None:
    if not np.all(b):
        raise ZeroDivisionError("an integer is divided by zero")


def floor_divide(a: Any, b: Any, out: Array | None = None) -> Any:
    """Divide integers, rounding down; ZeroDivisionError where the divisor is zero."""
    _no_zero(b)
    return np.floor_divide(a, b, out=out)


def floor_mod(a: Any, b: Any, out: Array | None = None) -> Any:
    """Return the remainder of :func:`floor_divide`."""
    _no_zero(b)
    return np.remainder(a, b, out=out)


def trunc_divide(a: Any, b: Any, out: Array | None = None) -> Any:
    """Divide integers, rounding towards zero; ZeroDivisionError where the divisor is zero."""
    _no_zero(b)
    quotient = np.floor_divide(a, b, out=out)
    # rounded down too far where the exact quotient is negative and no integer
    inexact = np.not_equal(np.remainder(a, b), 0)
    too_low = np.logical_and(inexact, np.not_equal(np.less(a, 0), np.less(b, 0)))
    return np.add(quotient, too_low.astype(np.asarray(quotient).dtype), out=out)


def trunc_mod(a: Any, b: Any, out: Array | None = None) -> Any:
    """Return the remainder with the sign of ``a``."""
    _no_zero(b)
    return np.fmod(a, b, out=out)


def _checked_shift(b: Any, like: Any) -> None:
    bits = np.asarray(like).dtype.itemsize * 8
    amounts = np.asarray(b)
    if amounts.size and (amounts.min() < 0 or amounts.max() >= bits):
        bad = amounts.min() if amounts.min() < 0 else amounts.max()
        raise ValueError(f"shift by {int(bad)} bits: expected 0 to {bits - 1}")


def shift_left(a: Any, b: Any, out: Array | None = None) -> Any:
    """Shift integers left; ValueError where the amount is out of range."""
    _checked_shift(b, a)
    return np.left_shift(a, b, out=out)


def shift_right(a: Any, b: Any, out: Array | None = None) -> Any:
    """Shift integers right, arithmetically; ValueError where the amount is out of range."""
    _checked_shift(b, a)
    return np.right_shift(a, b, out=out)


def scalar_div(a: int, b: int) -> int:
    """Divide two Python ints, rounding towards zero."""
    return trunc_div(a, b)


# ---------------------------------------------------------------- reductions


def extremum_reduce(
    values: Array, axes: int, initial: Any, larger: bool, out: Array | None = None
) -> Array:
    """Fold ``max`` (or ``min``) over the last ``axes`` axes, from ``initial``, in order.

    The fold is ``acc if acc > x else x``, so a NaN is the result only until the next element
    comes. NumPy's own reduction keeps NaN for ever; it is used where there is none.
    """
    function = np.maximum if larger else np.minimum
    where = tuple(range(values.ndim - axes, values.ndim))
    folded: Any = function.reduce(values, axis=where, out=out, initial=initial)
    result: Array = np.asarray(folded)
    if values.dtype.kind in "fV" and np.isnan(result).any():
        kept = values.shape[: values.ndim - axes]
        rows = np.moveaxis(values.reshape(*kept, -1), -1, 0)
        result = np.full(kept, initial, values.dtype)
        for row in rows:
            chosen = np.greater(result, row) if larger else np.less(result, row)
            result = np.where(chosen, result, row)
        if out is not None:
            out[...] = result
    return result


def arg_reduce(
    values: Array, initial: Any, larger: bool, last: bool, dtype: Any
) -> tuple[Array, Array]:
    """Return position and value of the largest (or smallest) element along the last axis.

    It is the fold that starts from position -1 and value ``initial``: an element that is no
    better than ``initial`` is never chosen. Of equal elements the first is chosen, or the last.
    """
    length = values.shape[-1]
    function = np.argmax if larger else np.argmin
    if not length:
        shape = values.shape[:-1]
        return np.full(shape, -1, dtype), np.full(shape, initial, values.dtype)
    if last:
        index = length - 1 - function(values[..., ::-1], axis=-1)
    else:
        index = function(values, axis=-1)
    value = np.take_along_axis(values, index[..., None], -1)[..., 0]
    if values.dtype.kind in "fV" and np.isnan(value).any():
        return _arg_reduce_in_order(values, initial, larger, last, dtype)
    beaten = np.greater_equal(initial, value) if larger else np.less_equal(initial, value)
    if beaten.any():
        keep = beaten if not last else np.greater(initial, value)
        if last and not larger:
            keep = np.less(initial, value)
        index = np.where(keep, -1, index)
        value = np.where(keep, initial, value)
    return index.astype(dtype), value


def _arg_reduce_in_order(
    values: Array, initial: Any, larger: bool, last: bool, dtype: Any
) -> tuple[Array, Array]:
    shape = values.shape[:-1]
    index, value = np.full(shape, -1, dtype), np.full(shape, initial, values.dtype)
    for k in range(values.shape[-1]):
        row = values[..., k]
        better = np.greater(value, row) if larger else np.less(value, row)
        tie = np.greater(index, k) if last else np.less(index, k)
        keep = np.logical_or(better, np.logical_and(np.equal(value, row), tie))
        index, value = np.where(keep, index, k), np.where(better, value, row)
    return index.astype(dtype), value


def ordered_reduce(
    function: np.ufunc, values: Array, axes: int, initial: Any, out: Array | None = None
) -> Array:
    """Fold a sum or product over the last ``axes`` axes, in order and in the dtype itself.

    16-bit floats lose so much in each step that the order decides the result; NumPy would add
    them in float32.
    """
    kept = values.shape[: values.ndim - axes]
    rows = np.moveaxis(values.reshape(*kept, -1), -1, 0)
    result = np.full(kept, initial, values.dtype)
    for row in rows:
        result = function(result, row, dtype=values.dtype)
    if out is not None:
        out[...] = result
    return result


# ---------------------------------------------------------------- one element


def scalar_mod(a: int, b: int) -> int:
    """Return the remainder with the sign of ``a`` of two Python ints."""
    return trunc_mod_int(a, b)


def scalar_max(a: Any, b: Any) -> Any:
    """Return ``a if a > b else b``."""
    return a if a > b else b  # noqa: FURB136  # decides about NaN


def scalar_min(a: Any, b: Any) -> Any:
    """Return ``a if a < b else b``."""
    return a if a < b else b  # noqa: FURB136  # decides about NaN


def wrap(value: int, dtype: str) -> int:
    """Reduce an integer to its width."""
    return wrap_int(value, DataType(dtype))


def cast(value: Any, dtype: str) -> Any:
    """Convert one element."""
    return scalar.cast(value, DataType(dtype))


def scalar_call(name: str, dtype: str, source: str, *args: Any) -> Any:
    """Compute an operator on elements, as the interpreter does."""
    return scalar.call(name, list(args), DataType(dtype), DataType(source))
