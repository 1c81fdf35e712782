"""Reductions over axes, and scans along one. Counterpart: ``tvm.relax.op.statistical``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> sum(Var("x", TensorType([2, 3])), axis=1).attrs
Attrs({'axis': (1,), 'keepdims': False})
"""

from collections.abc import Callable, Sequence

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import PrimType, TupleType, Type
from relaxlab.relax.op.datatype import to_dtype
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import (
    attributes,
    dims_of,
    normalize_axes,
    normalize_axis,
    op_name,
    tensor_argument,
    with_dtype,
)
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

__all__ = [
    "cumprod",
    "cumsum",
    "max",
    "mean",
    "median",
    "min",
    "prod",
    "std",
    "sum",
    "variance",
]

Axes = int | Sequence[int] | None
Reduction = Callable[..., Call]

_ONE = IntImm(DataType("int64"), 1)


def to_axes(axis: Axes) -> tuple[int, ...] | None:
    """Return an axes attribute; one axis becomes a list of one, None (all) stays."""
    if axis is None:
        return None
    return (int(axis),) if isinstance(axis, int) else tuple(int(a) for a in axis)


def reduced_type(
    call: Call, ty: TensorType, axes: Sequence[int] | None, keepdims: bool, dtype: DataType | None
) -> TensorType:
    """Return the type of a reduction of ``ty`` over ``axes`` (None: all)."""
    if ty.ndim == -1:
        if axes is None and not keepdims:
            return TensorType(ShapeExpr(()), dtype, ty.vdevice)
        return TensorType(None, dtype, ty.vdevice)
    if axes is None:
        gone = list(range(ty.ndim))
    else:
        gone = normalize_axes(op_name(call), axes, ty.ndim)
    dims = dims_of(ty)
    if dims is None and axes is not None:
        return TensorType(None, dtype, ty.vdevice, ty.ndim if keepdims else ty.ndim - len(gone))
    left: list[Expr] = []
    for i in range(ty.ndim):
        if i in gone:
            left.extend([_ONE] if keepdims else [])
        elif dims is not None:
            left.append(dims[i])
    return TensorType(ShapeExpr(tuple(left)), dtype, ty.vdevice)


def _infer_reduction(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    return reduced_type(call, ty, attributes(call).axis, attributes(call).keepdims, ty.dtype)


def _reduction(name: str, summary: str) -> Reduction:
    op = declare(name, ("x",), _infer_reduction, attributes=("axis", "keepdims"))

    def build(x: Expr, axis: Axes = None, keepdims: bool = False) -> Call:
        return call_op(op, x, axis=to_axes(axis), keepdims=bool(keepdims))

    build.__name__ = build.__qualname__ = name
    build.__doc__ = (
        f"{summary} over axes.\n\n"
        "Parameters\n----------\n"
        "x\n    A tensor.\n"
        "axis\n    One axis or several, negative ones count from the back; None means all.\n"
        "keepdims\n    Whether a reduced axis stays, with length 1.\n"
    )
    return build


max = _reduction("max", "Largest element")
mean = _reduction("mean", "Mean")
min = _reduction("min", "Smallest element")
prod = _reduction("prod", "Product")
std = _reduction("std", "Standard deviation (of the population)")
sum = _reduction("sum", "Sum")
variance = _reduction("variance", "Variance (of the population)")


def _infer_median(call: Call, ctx: InferenceContext) -> Type:
    values = _infer_reduction(call, ctx)
    assert isinstance(values, TensorType)
    if attributes(call).axis is None or len(attributes(call).axis) > 1:
        return values
    return TupleType((values, with_dtype(values, DataType("int64"))))


_MEDIAN = declare("median", ("data",), _infer_median, attributes=("axis", "keepdims"))


def median(x: Expr, axis: Axes = None, keepdims: bool = False) -> Call:
    """Lower median over axes; over exactly one axis a tuple (values, indices)."""
    return call_op(_MEDIAN, x, axis=to_axes(axis), keepdims=bool(keepdims))


def _infer_scan(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    out = with_dtype(ty, attributes(call).dtype or ty.dtype)
    if attributes(call).axis is not None:
        if ty.ndim != -1:
            normalize_axis(op_name(call), attributes(call).axis, ty.ndim)
        return out
    dims = dims_of(ty)
    if dims is None:
        return TensorType(None, out.dtype, ty.vdevice, 1)
    return TensorType(ShapeExpr((element_count(dims),)), out.dtype, ty.vdevice)


def element_count(dims: Sequence[Expr]) -> Expr:
    """Return the product of dimensions, multiplied in order."""
    count: Expr = _ONE
    for dim in dims:
        count = count * dim
    return count


def _scan(name: str, summary: str) -> Reduction:
    attributes = ("axis", "dtype", "exclusive")
    op = declare(name, ("data",), _infer_scan, attributes=attributes)

    def build(
        data: Expr,
        axis: int | None = None,
        dtype: DataType | PrimType | str | None = None,
        exclusive: bool = False,
    ) -> Call:
        return call_op(op, data, axis=axis, dtype=to_dtype(dtype), exclusive=bool(exclusive))

    build.__name__ = build.__qualname__ = name
    build.__doc__ = (
        f"{summary} along an axis, or of all elements in order when ``axis`` is None.\n\n"
        "``exclusive`` leaves an element out of its own result."
    )
    return build


cumprod = _scan("cumprod", "Product of the elements so far")
cumsum = _scan("cumsum", "Sum of the elements so far")
