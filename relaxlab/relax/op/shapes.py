"""Shapes as values. Counterpart: part of ``tvm.relax.op.base``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> shape_of(Var("x", TensorType([2, 3]))).op.name
'relax.shape_of'
"""

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import Type
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import dims_of, tensor_argument, type_of
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import ShapeType, TensorType
from relaxlab.runtime.dtype import DataType

__all__ = ["get_shape_of", "shape_of", "shape_to_tensor", "size", "tensor_to_shape"]

_INT64 = DataType("int64")


def _infer_shape_of(call: Call, ctx: InferenceContext) -> Type:
    ty = type_of(call.args[0])
    if not isinstance(ty, TensorType):
        raise InternalError(
            f"shape_of expects a tensor input, but received {ty!r}; use MatchCast if necessary"
        )
    if isinstance(ty.shape, ShapeExpr):
        return ShapeType(ty.shape.values)
    return ShapeType(ndim=ty.ndim)


_SHAPE_OF = declare("shape_of", ("input",), _infer_shape_of)


def shape_of(expr: Expr) -> Call:
    """The shape of a tensor."""
    return call_op(_SHAPE_OF, expr)


def get_shape_of(expr: Expr) -> Expr:
    """The shape of a tensor: written out if its type does so, else a call of :func:`shape_of`."""
    ty = expr.ty
    if isinstance(ty, TensorType) and ty.shape is not None:
        return ty.shape
    return shape_of(expr)


def _infer_shape_to_tensor(call: Call, ctx: InferenceContext) -> Type:
    ty = type_of(call.args[0])
    if not isinstance(ty, ShapeType):
        raise InternalError(f"shape_to_tensor expects a shape, but received {ty!r}")
    if ty.ndim == -1:
        return TensorType(None, _INT64, ndim=1)
    return TensorType(ShapeExpr((ty.ndim,)), _INT64)


_SHAPE_TO_TENSOR = declare(
    "shape_to_tensor", ("input",), _infer_shape_to_tensor, FCallPacked="relax.run.shape_to_tensor"
)


def shape_to_tensor(expr: Expr) -> Call:
    """A shape as a 1-D int64 tensor."""
    return call_op(_SHAPE_TO_TENSOR, expr)


def _infer_tensor_to_shape(call: Call, ctx: InferenceContext) -> Type:
    ty = type_of(call.args[0])
    if not isinstance(ty, TensorType) or ty.ndim != 1:
        raise InternalError(
            f"relax.tensor_to_shape expected argument to be 1-d, but {call} has argument "
            f"{call.args[0]} with type {ty!r}"
        )
    dims = dims_of(ty)
    if dims is not None and isinstance(dims[0], IntImm):
        return ShapeType(ndim=dims[0].value)
    return ShapeType(ndim=-1)


_TENSOR_TO_SHAPE = declare("tensor_to_shape", ("input",), _infer_tensor_to_shape)


def tensor_to_shape(expr: Expr) -> Call:
    """A 1-D int64 tensor as a shape."""
    return call_op(_TENSOR_TO_SHAPE, expr)


def _infer_size(call: Call, ctx: InferenceContext) -> Type:
    return TensorType(ShapeExpr(()), _INT64, tensor_argument(call, 0).vdevice)


_SIZE = declare("size", ("input",), _infer_size)


def size(expr: Expr) -> Call:
    """The number of elements, as an int64 tensor of rank 0."""
    return call_op(_SIZE, expr)
