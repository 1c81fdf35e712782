"""Products of matrices. Counterpart: ``tvm.relax.op.linear_algebra``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> a, b = Var("a", TensorType([2, 3])), Var("b", TensorType([3, 4]))
>>> matmul(a, b).attrs
Attrs({'out_dtype': None})
"""

from collections.abc import Sequence

from relaxlab.ir.expr import Call, Expr, Tuple
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import PrimType, Type
from relaxlab.relax.op.binary import add
from relaxlab.relax.op.datatype import to_dtype
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import (
    attributes,
    binary_dtype,
    broadcast_shapes,
    broadcast_vdevice,
    dims_of,
    dtype_name,
    tensor_argument,
    tensor_tuple,
)
from relaxlab.relax.op.manipulate import permute_dims
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.topi.einsum import einsum_ndim, einsum_shape

__all__ = ["einsum", "linear", "matmul", "outer"]

#: Value of ``TMixedPrecisionPolicy``: always computed in the narrow type.
_ALWAYS = 0


def _infer_matmul(call: Call, ctx: InferenceContext) -> Type:
    lhs, rhs = tensor_argument(call, 0), tensor_argument(call, 1)
    vdevice = broadcast_vdevice(call, lhs, rhs)
    dtype = attributes(call).out_dtype
    if dtype is None:
        dtype = binary_dtype(call, *call.args)
    for side, arg, ty in (("LHS", call.args[0], lhs), ("RHS", call.args[1], rhs)):
        if ty.ndim == 0:
            raise ValueError(
                f"Matmul operands must not be scalar.  However, the expression {call} has a "
                f"{side} of {arg} with type {ty!r}, which is scalar (zero-dimensional) tensor."
            )
    if -1 in (lhs.ndim, rhs.ndim):
        return TensorType(None, dtype, vdevice)
    # a vector is a matrix of one row (left) or one column (right); that axis is dropped again
    ndim = max(lhs.ndim, rhs.ndim, 2) - (lhs.ndim == 1) - (rhs.ndim == 1)
    a, b = dims_of(lhs), dims_of(rhs)
    if a is None or b is None:
        return TensorType(None, dtype, vdevice, ndim)
    inner_a, inner_b = a[-1], b[-2] if len(b) > 1 else b[0]
    if isinstance(inner_a, IntImm) and isinstance(inner_b, IntImm) and int(inner_a) != int(inner_b):
        raise ValueError(
            "Matmul requires the reduction length of the operands to be equal.  However, the LHS "
            f"{call.args[0]} has shape {ShapeExpr(a)}, while the RHS {call.args[1]} has shape "
            f"{ShapeExpr(b)}.  The reduction dimensions of {inner_a} and {inner_b} are not equal."
        )
    batch = broadcast_shapes(call, ctx, a[:-2], b[:-2])
    if batch is None:
        return TensorType(None, dtype, vdevice, ndim)
    rows, columns = (a[-2],) if len(a) > 1 else (), (b[-1],) if len(b) > 1 else ()
    return TensorType(ShapeExpr((*batch, *rows, *columns)), dtype, vdevice)


_MATMUL = declare(
    "matmul",
    ("x1", "x2"),
    _infer_matmul,
    attributes=("out_dtype",),
    TMixedPrecisionPolicy=_ALWAYS,
)


def matmul(x1: Expr, x2: Expr, out_dtype: str | PrimType | None = None) -> Call:
    """Matrix product, batched as ``numpy.matmul``.

    Parameters
    ----------
    x1, x2
        Tensors of rank 1 or more.
    out_dtype
        Type of the result and of the sums; that of the operands when None.
    """
    return call_op(_MATMUL, x1, x2, out_dtype=to_dtype(out_dtype))


def linear(
    data: Expr, weight: Expr, bias: Expr | None = None, out_dtype: str | PrimType | None = None
) -> Call:
    """``data`` times the transposed ``weight``, plus ``bias`` when there is one."""
    product = matmul(data, permute_dims(weight), out_dtype)
    return product if bias is None else add(product, bias)


def _infer_outer(call: Call, ctx: InferenceContext) -> Type:
    lhs, rhs = tensor_argument(call, 0), tensor_argument(call, 1)
    if lhs.ndim not in (-1, 1) or rhs.ndim not in (-1, 1):
        raise ValueError("torch.outer requires both inputs to be 1D tensors.")
    a, b = dims_of(lhs), dims_of(rhs)
    vdevice = broadcast_vdevice(call, lhs, rhs)
    if a is None or b is None:
        return TensorType(None, lhs.dtype, vdevice, 2)
    return TensorType(ShapeExpr((*a, *b)), lhs.dtype, vdevice)


_OUTER = declare("outer", ("x1", "x2"), _infer_outer, TMixedPrecisionPolicy=_ALWAYS)


def outer(x1: Expr, x2: Expr) -> Call:
    """All products of an element of ``x1`` and one of ``x2``, both 1-D."""
    return call_op(_OUTER, x1, x2)


def _infer_einsum(call: Call, ctx: InferenceContext) -> Type:
    operands = tensor_tuple(call)
    if not operands:
        raise ValueError(
            "Einsum op expects at least one tensor in the input Tuple. However, the given input "
            "Tuple is empty."
        )
    dtype = operands[0].dtype
    for operand in operands[1:]:
        if operand.dtype is not dtype:
            raise TypeError(
                "Einsum expects all input tensors to have the same dtype. However, the input "
                f"contains tensors with dtype {dtype_name(dtype)} and {dtype_name(operand.dtype)}"
            )
    vdevice = broadcast_vdevice(call, *operands)
    equation = attributes(call).subscripts
    shapes = [dims for dims in map(dims_of, operands) if dims is not None]
    if len(shapes) == len(operands):
        simplified = map(ctx.analyzer.simplify, einsum_shape(equation, shapes))
        return TensorType(ShapeExpr(tuple(simplified)), dtype, vdevice)
    ndims = [operand.ndim for operand in operands]
    ndim = -1 if -1 in ndims else einsum_ndim(equation, ndims)
    return TensorType(None, dtype, vdevice, ndim)


_EINSUM = declare(
    "einsum",
    ("operands",),
    _infer_einsum,
    attributes=("subscripts",),
    TMixedPrecisionPolicy=_ALWAYS,
)


def einsum(operands: Expr | Sequence[Expr], subscripts: str) -> Call:
    """Sum of products by Einstein's rule.

    Parameters
    ----------
    operands
        A tuple (or one tuple expression) of tensors of one dtype.
    subscripts
        Letters for the dimensions, such as ``"ij,jk->ik"``; ``...`` stands for further ones.
    """
    fields = operands if isinstance(operands, Expr) else Tuple(tuple(operands))
    return call_op(_EINSUM, fields, subscripts=subscripts)
