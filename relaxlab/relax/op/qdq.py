"""Between numbers and the small integers that stand for them. Counterpart: ``tvm.relax.op.qdq``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax import const
>>> from relaxlab.relax.type import TensorType
>>> x = Var("x", TensorType([2, 3]))
>>> quantize(x, const(0.5, "float32"), const(0, "int8")).attrs
Attrs({'out_dtype': DataType("int8"), 'axis': -1})
"""

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.op import Op
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import PrimType, Type
from relaxlab.relax.op.datatype import to_dtype
from relaxlab.relax.op.declare import InferenceContext, InferType, call_op, declare
from relaxlab.relax.op.inference import (
    attributes,
    dims_of,
    dtype_name,
    op_name,
    tensor_argument,
    with_dtype,
)
from relaxlab.relax.type import TensorType
from relaxlab.relax.type_relations import dims_equal
from relaxlab.runtime.dtype import DataType

__all__ = ["dequantize", "quantize"]

_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
_NARROW = ("int8", "uint8", "int16", "uint16")
_FLOATS = ("float16", "float32")
_ZERO_POINTS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "float16")
_RANKS = ("scale", "zero_point")


def _check_parameter(
    call: Call, ctx: InferenceContext, data: TensorType, ty: TensorType, name: str
) -> None:
    """Check that a scale or zero point fits the axis that it belongs to."""
    axis = attributes(call).axis
    if ty.ndim > 1:
        raise ValueError(
            f"{op_name(call)}: the {name} param must be a scalar or a vector, got {ty.ndim} "
            "dimensions"
        )
    dims, extents = dims_of(ty), dims_of(data)
    if not dims or not extents:
        return
    one = isinstance(dims[0], IntImm) and dims[0].value == 1
    if not one and not dims_equal(extents[axis], dims[0], ctx.analyzer):
        raise ValueError(
            f"Size mismatch: {op_name(call)}: the input shape at dim {axis} is '{extents[axis]}', "
            f"but size of {name} param is '{dims[0]}'"
        )


def _infer(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> InferType:
    def infer(call: Call, ctx: InferenceContext) -> Type:
        data, scale, zero_point = (tensor_argument(call, i) for i in range(3))
        attrs = attributes(call)
        if str(attrs.out_dtype) not in outputs:
            raise TypeError(
                f"Unsupported output datatype attribute for operation: {attrs.out_dtype}"
            )
        if data.dtype is not None and str(data.dtype) not in inputs:
            raise TypeError(f"Unsupported input datatype for operation: {dtype_name(data.dtype)}")
        if scale.dtype is not None and str(scale.dtype) not in _FLOATS:
            raise TypeError(
                "scale param datatype should be one of [float16, float32], but got "
                f"{dtype_name(scale.dtype)}"
            )
        if zero_point.dtype is not None and str(zero_point.dtype) not in _ZERO_POINTS:
            raise TypeError(
                f"zero_point param datatype should be one of {list(_ZERO_POINTS)}, but got "
                f"{dtype_name(zero_point.dtype)}"
            )
        rank = data.ndim
        if rank > 0 and not -rank <= attrs.axis < rank:
            raise ValueError(f"{op_name(call)}: axis param is out of range ({attrs.axis})")
        for name, ty in zip(_RANKS, (scale, zero_point), strict=True):
            _check_parameter(call, ctx, data, ty, name)
        return with_dtype(data, attrs.out_dtype)

    return infer


def _declare(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Op:
    return declare(
        name,
        ("data", "scale", "zero_point"),
        _infer(inputs, outputs),
        attributes=("out_dtype", "axis"),
    )


_QUANTIZE = _declare("quantize", _FLOATS, (*_NARROW, *_FLOAT8))
_DEQUANTIZE = _declare("dequantize", (*_NARROW, "int32", *_FLOAT8, *_FLOATS), _FLOATS)


def quantize(
    data: Expr,
    scale: Expr,
    zero_point: Expr,
    axis: int = -1,
    out_dtype: DataType | PrimType | str = "int8",
) -> Call:
    """Divide by ``scale``, round, add ``zero_point`` and limit to the range of ``out_dtype``.

    Parameters
    ----------
    data
        float16 or float32.
    scale, zero_point
        One for all, or a vector along ``axis``.
    axis
        Which axis has a scale of its own for every index.
    out_dtype
        int8, uint8, int16, uint16, float8_e4m3fn or float8_e5m2.
    """
    return call_op(
        _QUANTIZE, data, scale, zero_point, out_dtype=to_dtype(out_dtype), axis=int(axis)
    )


def dequantize(
    data: Expr,
    scale: Expr,
    zero_point: Expr,
    axis: int = -1,
    out_dtype: DataType | PrimType | str = "float32",
) -> Call:
    """Undo :func:`quantize`: ``(data - zero_point) * scale``.

    Parameters
    ----------
    data
        What :func:`quantize` gave.
    scale, zero_point, axis
        As there.
    out_dtype
        float16 or float32.
    """
    return call_op(
        _DEQUANTIZE, data, scale, zero_point, out_dtype=to_dtype(out_dtype), axis=int(axis)
    )
