"""Between numbers and the small integers (or 8-bit floats) that stand for them.

Counterpart: the kernels that ``tvm.relax.transform.legalize_ops.qdq`` builds.

Examples
--------
>>> from relaxlab import te
>>> x, scale = te.placeholder((2, 3), name="x"), te.placeholder((3,), name="s")
>>> zero_point = te.placeholder((3,), "int8", "z")
>>> quantize(x, scale, zero_point, 1, "int8").name
'quantized'
"""

from collections.abc import Callable, Sequence

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.prim import FloatImm, IntImm
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.topi.indices import is_one, zero_of

__all__ = ["dequantize", "quantize"]

_INT32, _FLOAT32, _FLOAT16 = DataType("int32"), DataType("float32"), DataType("float16")


def _parameter(value: Tensor | Expr, index: Expr | None) -> Expr:
    """Return a scale or zero point: a scalar, or the element that belongs to an index."""
    if not isinstance(value, Tensor):
        return value
    if not value.ndim:
        return value()
    assert index is not None
    return value(zero_of(value.shape[0]) if is_one(value.shape[0]) else index)


def _clip(value: Expr, low: float, high: float) -> Expr:
    dtype = value.dtype
    return prim_ops.max(
        prim_ops.min(value, prim_ops.const(high, dtype)), prim_ops.const(low, dtype)
    )


def _limits(dtype: DataType) -> tuple[float, float]:
    low, high = prim_ops.min_value(dtype), prim_ops.max_value(dtype)
    assert isinstance(low, IntImm | FloatImm)
    assert isinstance(high, IntImm | FloatImm)
    return float(low.value), float(high.value)


def _elementwise(
    data: Tensor, body: Callable[[Sequence[Expr], Expr | None], Expr], axis: int, name: str
) -> Tensor:
    result: Tensor = te.compute(
        data.shape, lambda *index: body(index, index[axis] if index else None), name=name
    )
    return result


def quantize(
    data: Tensor,
    scale: Tensor | Expr,
    zero_point: Tensor | Expr,
    axis: int,
    out_dtype: DataType | str,
) -> Tensor:
    """Return ``data / scale + zero_point``, rounded and limited to what ``out_dtype`` holds.

    Parameters
    ----------
    data
        Floats.
    scale, zero_point
        Scalars, or vectors along ``axis``.
    axis
        Which axis has a scale of its own for every index.
    out_dtype
        An integer type or an 8-bit float.
    """
    target = DataType(out_dtype)
    low, high = _limits(target)

    def body(index: Sequence[Expr], along: Expr | None) -> Expr:
        scaled = prim_ops.divide(data(*index), _parameter(scale, along))
        if not target.is_float:
            scaled = prim_ops.round(scaled)
        return prim_ops.cast(target, _clip(scaled + _parameter(zero_point, along), low, high))

    return _elementwise(data, body, axis, "quantized")


def dequantize(
    data: Tensor,
    scale: Tensor | Expr,
    zero_point: Tensor | Expr,
    axis: int,
    out_dtype: DataType | str,
) -> Tensor:
    """Return ``(data - zero_point) * scale``, computed in float32.

    Parameters
    ----------
    data
        What :func:`quantize` gave.
    scale, zero_point, axis
        As there.
    out_dtype
        ``"float32"``, or ``"float16"``, in which too large numbers become the largest.
    """
    target = DataType(out_dtype)

    def difference(value: Expr, zero: Expr) -> Expr:
        if value.dtype.is_float:
            return prim_ops.subtract(prim_ops.cast(_FLOAT32, value), zero)
        if not zero.dtype.is_float:
            zero = prim_ops.cast(_INT32, zero)
        return prim_ops.subtract(prim_ops.cast(_INT32, value), zero)

    def body(index: Sequence[Expr], along: Expr | None) -> Expr:
        shifted = difference(data(*index), _parameter(zero_point, along))
        value = prim_ops.multiply(prim_ops.cast(_FLOAT32, shifted), _parameter(scale, along))
        if target is _FLOAT16:
            low, high = _limits(target)
            return prim_ops.cast(target, _clip(value, low, high))
        return value

    return _elementwise(data, body, axis, "dequantized")
