"""Sorting along an axis. Counterpart: ``tvm.relax.op.sorting``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> topk(Var("x", TensorType([2, 3])), 2).attrs.ret_type
'both'
"""

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import PrimType, TupleType, Type
from relaxlab.relax.op.datatype import to_dtype
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import (
    attributes,
    dims_of,
    normalize_axis,
    tensor_argument,
    with_dtype,
)
from relaxlab.relax.op.unary import same_type
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

__all__ = ["argsort", "sort", "topk"]

_SORT = declare("sort", ("data",), same_type, attributes=("axis", "descending"))


def sort(x: Expr, axis: int = -1, descending: bool = False) -> Call:
    """Sort along an axis; equal elements keep their order."""
    return call_op(_SORT, x, axis=axis, descending=bool(descending))


def _infer_argsort(call: Call, ctx: InferenceContext) -> Type:
    return with_dtype(tensor_argument(call, 0), attributes(call).dtype or DataType("int32"))


_ARGSORT = declare("argsort", ("data",), _infer_argsort, attributes=("axis", "descending", "dtype"))


def argsort(
    data: Expr,
    axis: int = -1,
    descending: bool = False,
    dtype: DataType | PrimType | str = "int32",
) -> Call:
    """Indices that would sort along an axis."""
    return call_op(_ARGSORT, data, axis=axis, descending=bool(descending), dtype=to_dtype(dtype))


def _infer_topk(call: Call, ctx: InferenceContext) -> Type:
    ty, k = tensor_argument(call, 0), attributes(call).k
    dims = dims_of(ty)
    values = TensorType(None, ty.dtype, ty.vdevice, ty.ndim)
    if dims is not None:
        axis = normalize_axis("relax.topk", attributes(call).axis, len(dims))
        length = dims[axis]
        if k > 0 and not (isinstance(length, IntImm) and length.value <= k):
            length = IntImm(DataType("int64"), k)
        out = (*dims[:axis], length, *dims[axis + 1 :])
        values = TensorType(ShapeExpr(out), ty.dtype, ty.vdevice)
    indices = with_dtype(values, attributes(call).dtype or DataType("int32"))
    match attributes(call).ret_type:
        case "values":
            return values
        case "indices":
            return indices
        case _:
            return TupleType((values, indices))


_TOPK = declare(
    "topk", ("data",), _infer_topk, attributes=("k", "axis", "ret_type", "largest", "dtype")
)


def topk(
    data: Expr,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: DataType | PrimType | str = "int32",
) -> Call:
    """The ``k`` largest (or smallest) elements along an axis.

    Parameters
    ----------
    data
        A tensor.
    k
        How many; all when it is less than 1.
    axis
        Along which.
    largest
        Whether the largest are wanted, the smallest otherwise.
    dtype
        Dtype of the positions.
    ret_type
        ``"values"``, ``"indices"``, or ``"both"`` for a tuple of the two.

    Raises
    ------
    ValueError
        If ``ret_type`` is none of the three.
    """
    if ret_type not in ("both", "values", "indices"):
        raise ValueError(f"topk: ret_type must be both, values or indices, got {ret_type!r}")
    return call_op(
        _TOPK,
        data,
        k=k,
        axis=axis,
        ret_type=ret_type,
        largest=bool(largest),
        dtype=to_dtype(dtype),
    )
