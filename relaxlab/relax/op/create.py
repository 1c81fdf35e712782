"""Making tensors. Counterpart: ``tvm.relax.op.create``.

Examples
--------
>>> [int(dim) for dim in zeros((2, 3), "float32").args[0].values]
[2, 3]
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import Cast, FloatImm, IntImm
from relaxlab.ir.prim_ops import ceil
from relaxlab.ir.type import PrimType, Type
from relaxlab.relax.literals import convert_to_expr, to_shape
from relaxlab.relax.op.datatype import to_dtype
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import (
    attributes,
    op_name,
    shape_argument,
    tensor_argument,
    type_of,
    with_dtype,
)
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import ShapeType, TensorType
from relaxlab.runtime.dtype import DataType

__all__ = [
    "arange",
    "eye",
    "eye_like",
    "full",
    "full_like",
    "hamming_window",
    "ones",
    "ones_like",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]

_INT64 = DataType("int64")
_FLOAT32 = DataType("float32")
_Shape = Expr | Sequence[Expr | int]
_Dtype = DataType | PrimType | str


# --- full ---------------------------------------------------------------------------------------


def _infer_full(call: Call, ctx: InferenceContext) -> Type:
    shape, fill = type_of(call.args[0]), type_of(call.args[1])
    if not isinstance(shape, ShapeType):
        raise TypeError(
            f"Full requires the input shape to be a Shape. However, the given one is {shape}"
        )
    if not isinstance(fill, TensorType) or fill.ndim != 0:
        raise ValueError(
            "Full requires the input fill value to be zero rank Tensor. However, the given one is "
            f"{fill!r}"
        )
    return TensorType(call.args[0], attributes(call).dtype or fill.dtype, fill.vdevice)


# the shape may be a value that only the running program knows
_FULL = declare(
    "full",
    ("shape", "fill_value"),
    _infer_full,
    attributes=("dtype",),
    FDataDependent=True,
    RequiresArgumentShapes=False,
)


def full(shape: _Shape, fill_value: Expr, dtype: _Dtype | None = None) -> Call:
    """A tensor full of one value.

    Parameters
    ----------
    shape
        Its shape.
    fill_value
        A tensor of rank 0, such as ``relax.const(1.0)``.
    dtype
        Element type; that of ``fill_value`` when None.
    """
    return call_op(_FULL, to_shape(shape), convert_to_expr(fill_value), dtype=to_dtype(dtype))


def _infer_full_like(call: Call, ctx: InferenceContext) -> Type:
    ty, fill = tensor_argument(call, 0), tensor_argument(call, 1)
    if fill.ndim != 0:
        raise ValueError(
            "FullLike requires the input fill value to be zero rank Tensor. However, the given one "
            f"has ndim {fill.ndim}"
        )
    return with_dtype(ty, attributes(call).dtype or ty.dtype)


_FULL_LIKE = declare("full_like", ("x", "fill_value"), _infer_full_like, attributes=("dtype",))


def full_like(x: Expr, fill_value: Expr, dtype: _Dtype | None = None) -> Call:
    """:func:`full` with the shape (and, unless given, the dtype) of ``x``."""
    return call_op(_FULL_LIKE, x, fill_value, dtype=to_dtype(dtype))


# --- zeros, ones --------------------------------------------------------------------------------


def _infer_ones_zeros(call: Call, ctx: InferenceContext) -> Type:
    shape_argument(call, 0, "Ones/Zeros requires the input shape to be a Shape")
    return TensorType(call.args[0], attributes(call).dtype)


def _infer_like(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    return with_dtype(ty, attributes(call).dtype or ty.dtype)


def _constant(name: str, summary: str) -> tuple[Callable[..., Call], Callable[..., Call]]:
    op = declare(name, ("shape",), _infer_ones_zeros, attributes=("dtype",))
    like_op = declare(f"{name}_like", ("x",), _infer_like, attributes=("dtype",))

    def build(shape: _Shape, dtype: _Dtype) -> Call:
        element = to_dtype(dtype)
        if element is None:
            raise TypeError(f"{name} needs a dtype")
        return call_op(op, to_shape(shape), dtype=element)

    def build_like(x: Expr, dtype: _Dtype | None = None) -> Call:
        return call_op(like_op, x, dtype=to_dtype(dtype))

    build.__name__ = build.__qualname__ = name
    build.__doc__ = (
        f"A tensor of {summary}, of a shape and a dtype.\n\n"
        "Raises\n------\nTypeError\n    If ``dtype`` is missing.\n"
    )
    build_like.__name__ = build_like.__qualname__ = f"{name}_like"
    build_like.__doc__ = f"A tensor of {summary} with the shape (and dtype) of ``x``."
    return build, build_like


ones, ones_like = _constant("ones", "ones")
zeros, zeros_like = _constant("zeros", "zeros")


# --- arange -------------------------------------------------------------------------------------


def _number(value: Expr) -> int | float | None:
    return value.value if isinstance(value, IntImm | FloatImm) else None


def _infer_arange(call: Call, ctx: InferenceContext) -> Type:
    for name, arg in zip(("start", "end", "step"), call.args, strict=True):
        if not isinstance(arg.ty, PrimType):
            raise InternalError(
                f"The argument `{name}` of relax.arange is expected to be a PrimExpr, but got "
                f"{arg} of type {arg.ty!r}"
            )
    length = _arange_length(ctx, *call.args)
    return TensorType(ShapeExpr((length,)), attributes(call).dtype)


def _arange_length(ctx: InferenceContext, start: Expr, end: Expr, step: Expr) -> Expr:
    first, last, by = map(_number, (start, end, step))
    if by == 0:
        raise ValueError("relax.arange: the step is 0; it must not be")
    if first is not None and last is not None and by is not None:
        return IntImm(_INT64, max(math.ceil((last - first) / by), 0))
    if all(isinstance(v.ty, PrimType) and v.dtype.is_int for v in (start, end, step)):
        start, end, step = (v if v.dtype is _INT64 else Cast(_INT64, v) for v in (start, end, step))
        rounding = 1 if isinstance(step, IntImm) and step.value < 0 else -1
        return ctx.analyzer.simplify((end - start + step + rounding) // step)
    start, end, step = (v if v.dtype is _FLOAT32 else _as_float32(v) for v in (start, end, step))
    return ctx.analyzer.simplify(Cast(_INT64, ceil((end - start) / step)))


def _as_float32(value: Expr) -> Expr:
    number = _number(value)
    return Cast(_FLOAT32, value) if number is None else FloatImm(_FLOAT32, float(number))


_ARANGE = declare("arange", ("start", "end", "step"), _infer_arange, attributes=("dtype",))


def arange(start: Any, end: Any = None, step: Any = 1, dtype: _Dtype | None = None) -> Call:
    """Numbers from ``start`` up to, not including, ``end``.

    Parameters
    ----------
    start, end, step
        Numbers or scalar expressions; one bound alone is the end.
    dtype
        Element type; None means int64 if all three are integers, else float32.
    """
    if end is None:
        start, end = 0, start
    args = [convert_to_expr(value) for value in (start, end, step)]
    element = to_dtype(dtype)
    if element is None:
        integers = all(isinstance(a.ty, PrimType) and a.ty.dtype.is_int for a in args)
        element = _INT64 if integers else _FLOAT32
    return call_op(_ARANGE, *args, dtype=element)


# --- identity matrices, windows -----------------------------------------------------------------


def _infer_eye(call: Call, ctx: InferenceContext) -> Type:
    for name, arg in zip(("n", "m"), call.args, strict=False):
        if not isinstance(arg.ty, PrimType):
            raise InternalError(
                f"The argument `{name}` of relax.eye is expected to be a PrimExpr, but got {arg} "
                f"of type {arg.ty!r}"
            )
    return TensorType(ShapeExpr(call.args[:2]), attributes(call).dtype)


_EYE = declare("eye", ("n", "m", "k"), _infer_eye, attributes=("dtype",))


def eye(n: Any, m: Any = None, k: Any = 0, dtype: _Dtype = "float32") -> Call:
    """A matrix with ones on one diagonal.

    Parameters
    ----------
    n, m
        Numbers of rows and columns; as many columns as rows when ``m`` is None.
    k
        Which diagonal: 0 the main one, positive ones above it.
    dtype
        Element type.

    Raises
    ------
    TypeError
        If a size or the diagonal is a text, which is what a dtype in the wrong place is.
    """
    for name, value in (("n", n), ("m", m), ("k", k)):
        if isinstance(value, str):
            raise TypeError(f"eye: {name} must be a number or a scalar expression, got {value!r}")
    rows = convert_to_expr(n)
    columns = rows if m is None else convert_to_expr(m)
    return call_op(_EYE, rows, columns, convert_to_expr(k), dtype=to_dtype(dtype))


def _infer_eye_like(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    if ty.ndim not in (-1, 2):
        raise ValueError(
            f"Eye_like expects the input tensor to be 2-dimensional, but got {ty.ndim} dimensions"
        )
    return with_dtype(ty, attributes(call).dtype or ty.dtype)


_EYE_LIKE = declare("eye_like", ("x", "k"), _infer_eye_like, attributes=("dtype",))


def eye_like(x: Expr, k: Any = 0, dtype: _Dtype | None = None) -> Call:
    """:func:`eye` with the shape (and, unless given, the dtype) of ``x``."""
    return call_op(_EYE_LIKE, x, convert_to_expr(k), dtype=to_dtype(dtype))


def _infer_hamming_window(call: Call, ctx: InferenceContext) -> Type:
    dtype, size = attributes(call).dtype, call.args[0]
    if not dtype.is_float:
        raise TypeError(f"Hamming Window expects the datatype to be float but got {dtype}")
    if isinstance(size, IntImm) and size.value <= 0:
        raise ValueError(
            f"Hamming_window expects the window_size must be greater than zero but got {size}"
        )
    return TensorType(ShapeExpr((size,)), dtype)


_HAMMING_WINDOW = declare(
    "hamming_window",
    ("window_size", "periodic", "alpha", "beta"),
    _infer_hamming_window,
    attributes=("dtype",),
)


def hamming_window(window_size: Any, periodic: Any, alpha: Any, beta: Any, dtype: _Dtype) -> Call:
    """``alpha - beta * cos(2 pi i / n)`` for every ``i``.

    Parameters
    ----------
    window_size
        How many elements.
    periodic
        Whether the window is to be repeated.
    alpha, beta
        Coefficients.
    dtype
        Element type, a float.
    """
    args = [
        convert_to_expr(int(value) if isinstance(value, bool) else value)
        for value in (window_size, periodic, alpha, beta)
    ]
    return call_op(_HAMMING_WINDOW, *args, dtype=to_dtype(dtype))


# --- triangles ----------------------------------------------------------------------------------


def _infer_triangle(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    if ty.ndim != -1 and ty.ndim < 2:
        raise ValueError(
            f"{op_name(call)} requires the input tensor to have at least two dimensions. However, "
            f"the given input has {ty.ndim} dimension(s)."
        )
    return ty


def _triangle(name: str, summary: str) -> Callable[..., Call]:
    op = declare(name, ("x", "k"), _infer_triangle)

    def build(x: Expr, k: Any = 0) -> Call:
        return call_op(op, x, convert_to_expr(k))

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{summary} the ``k``-th diagonal of the last two axes; the rest is 0."
    return build


tril = _triangle("tril", "The elements on and below")
triu = _triangle("triu", "The elements on and above")
