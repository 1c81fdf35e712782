"""Element-wise operators of two operands that broadcast against each other.

Operands are tensors or scalars; two scalars give a scalar. Arithmetic keeps the left operand's
dtype and wants both equal (bool mixes with anything); comparisons give bool.
Counterpart: ``tvm.relax.op.binary``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> x = Var("x", TensorType([2]))
>>> less(x, x).op.name
'relax.less'
"""

from collections.abc import Callable

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.type import PrimType, Type
from relaxlab.relax.op.declare import InferenceContext, InferType, declare
from relaxlab.relax.op.inference import (
    binary_dtype,
    broadcast_shapes,
    broadcast_vdevice,
    operand_shape,
    type_of,
)
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

__all__ = [
    "add",
    "atan2",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "divide",
    "equal",
    "floor_divide",
    "floor_mod",
    "greater",
    "greater_equal",
    "left_shift",
    "less",
    "less_equal",
    "log_add_exp",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "not_equal",
    "power",
    "right_shift",
    "subtract",
]

Binary = Callable[[Expr, Expr], Call]

_BOOL = DataType("bool")


def _infer_arithmetic(call: Call, ctx: InferenceContext) -> Type:
    _check_operands(call)
    return _broadcast(call, ctx, binary_dtype(call, *call.args))


def _infer_comparison(call: Call, ctx: InferenceContext) -> Type:
    _check_operands(call)
    return _broadcast(call, ctx, _BOOL)


def _check_operands(call: Call) -> None:
    for side, operand in zip(("LHS", "RHS"), call.args, strict=True):
        ty = type_of(operand)
        if not isinstance(ty, TensorType | PrimType):
            raise TypeError(
                "Arguments to binary operators must be either R.Tensor or R.Prim types, but "
                f"expression {call} has {side} {operand}, which has Type {ty!r}"
            )


def _broadcast(call: Call, ctx: InferenceContext, dtype: DataType | None) -> Type:
    lhs, rhs = call.args
    if isinstance(lhs.ty, PrimType) and isinstance(rhs.ty, PrimType):
        # scalars always have a dtype
        return PrimType(dtype) if dtype is not None else lhs.ty
    vdevice = broadcast_vdevice(call, type_of(lhs), type_of(rhs))
    a, b = (ty.shape if isinstance(ty, TensorType) else None for ty in (lhs.ty, rhs.ty))
    (first, ndim_a), (second, ndim_b) = operand_shape(lhs), operand_shape(rhs)
    if first is not None and second is not None:
        dims = broadcast_shapes(call, ctx, first, second)
        if dims is not None:
            return TensorType(ShapeExpr(dims), dtype, vdevice)
    elif a is not None and a is b:
        return TensorType(a, dtype, vdevice)
    ndim = -1 if -1 in (ndim_a, ndim_b) else max(ndim_a, ndim_b)
    return TensorType(None, dtype, vdevice, ndim)


def _binary(name: str, summary: str, infer_type: InferType = _infer_arithmetic) -> Binary:
    op = declare(name, ("x1", "x2"), infer_type)

    def build(x1: Expr, x2: Expr) -> Call:
        return Call(op, (x1, x2))

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"Element-wise {summary}, with broadcasting."
    return build


add = _binary("add", "x1 + x2")
atan2 = _binary("atan2", "angle of the point (x2, x1)")
bitwise_and = _binary("bitwise_and", "and of all bits")
bitwise_or = _binary("bitwise_or", "or of all bits")
bitwise_xor = _binary("bitwise_xor", "exclusive or of all bits")
divide = _binary("divide", "x1 / x2 (integers truncate)")
floor_divide = _binary("floor_divide", "x1 / x2 rounded down")
floor_mod = _binary("floor_mod", "remainder that goes with floor_divide")
left_shift = _binary("left_shift", "x1 shifted left by x2 bits")
log_add_exp = _binary("log_add_exp", "log(exp(x1) + exp(x2))")
logical_and = _binary("logical_and", "logical and")
logical_or = _binary("logical_or", "logical or")
logical_xor = _binary("logical_xor", "logical exclusive or")
maximum = _binary("maximum", "larger of x1 and x2")
minimum = _binary("minimum", "smaller of x1 and x2")
mod = _binary("mod", "remainder that goes with a truncating division")
multiply = _binary("multiply", "x1 * x2")
power = _binary("power", "x1 to the power x2")
right_shift = _binary("right_shift", "x1 shifted right by x2 bits")
subtract = _binary("subtract", "x1 - x2")

equal = _binary("equal", "x1 == x2", _infer_comparison)
greater = _binary("greater", "x1 > x2", _infer_comparison)
greater_equal = _binary("greater_equal", "x1 >= x2", _infer_comparison)
less = _binary("less", "x1 < x2", _infer_comparison)
less_equal = _binary("less_equal", "x1 <= x2", _infer_comparison)
not_equal = _binary("not_equal", "x1 != x2", _infer_comparison)
