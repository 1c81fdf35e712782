"""Operations on two operands whose shapes meet.

Each takes tensors, scalar expressions or numbers in any combination; two scalars give a scalar
expression. Counterpart: ``tvm.topi.broadcast``.

Examples
--------
>>> from relaxlab import te
>>> a, b = te.placeholder((4, 1), name="a"), te.placeholder((3,), name="b")
>>> c = add(a, b)
>>> c.name, [d.value for d in c.shape]
('T_add', [4, 3])
"""

from collections.abc import Callable, Sequence
from typing import Any

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import EXPR_OPERATORS, Expr
from relaxlab.te import Tensor
from relaxlab.topi.indices import broadcast_indices, broadcast_shape, compute_ax

__all__ = [
    "add",
    "atan2",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "broadcast_to",
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


def broadcast_to(data: Tensor, shape: Sequence[Expr | int]) -> Tensor:
    """Repeat a tensor along dimensions of extent 1, and new leading ones, up to ``shape``.

    Raises
    ------
    ValueError
        If ``shape`` has fewer dimensions.
    """
    dims = tuple(
        prim_ops.const(d, data.shape[0].dtype if data.shape else "int64")
        if isinstance(d, int)
        else d
        for d in shape
    )
    result, _, moves = broadcast_shape(dims, data.shape)
    if len(result) != len(dims):
        raise ValueError(
            f"cannot broadcast a tensor of {data.ndim} dimensions to a shape of {len(dims)}"
        )
    return compute_ax(
        dims,
        lambda *i: data(*broadcast_indices(i, data.shape, moves)),
        "T_broadcast_to",
        "broadcast",
    )


def _binary(name: str, combine: Callable[[Any, Any], Expr]) -> Callable[[Any, Any], Any]:
    block = f"T_{name}"

    def operation(lhs: Any, rhs: Any) -> Any:
        if isinstance(lhs, Tensor) and isinstance(rhs, Tensor):
            return _of_tensors(block, combine, lhs, rhs)
        if isinstance(lhs, Tensor):
            return compute_ax(lhs.shape, lambda *i: combine(lhs(*i), rhs), block, "elemwise")
        if isinstance(rhs, Tensor):
            return compute_ax(rhs.shape, lambda *i: combine(lhs, rhs(*i)), block, "elemwise")
        return combine(lhs, rhs)

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"Return {name} of two operands, broadcast; the block is ``{block}``."
    return operation


def _of_tensors(
    block: str, combine: Callable[[Any, Any], Expr], lhs: Tensor, rhs: Tensor
) -> Tensor:
    shape, lhs_moves, rhs_moves = broadcast_shape(lhs.shape, rhs.shape)
    return compute_ax(
        shape,
        lambda *i: combine(
            lhs(*broadcast_indices(i, lhs.shape, lhs_moves)),
            rhs(*broadcast_indices(i, rhs.shape, rhs_moves)),
        ),
        block,
        "broadcast",
    )


def _floor_divide(a: Any, b: Any) -> Expr:
    a, b = prim_ops.match_dtypes(a, b)
    if a.dtype.is_float:
        return prim_ops.floor(prim_ops.div(a, b))
    return prim_ops.floordiv(a, b)


def _floor_mod(a: Any, b: Any) -> Expr:
    a, b = prim_ops.match_dtypes(a, b)
    if a.dtype.is_float:
        return prim_ops.subtract(a, prim_ops.multiply(_floor_divide(a, b), b))
    return prim_ops.floormod(a, b)


def _log_add_exp(a: Any, b: Any) -> Expr:
    a, b = prim_ops.match_dtypes(a, b)
    return prim_ops.log(prim_ops.exp(a) + prim_ops.exp(b))


add = _binary("add", prim_ops.add)
subtract = _binary("subtract", prim_ops.subtract)
multiply = _binary("multiply", prim_ops.multiply)
divide = _binary("divide", prim_ops.div)
floor_divide = _binary("floor_divide", _floor_divide)
mod = _binary("mod", prim_ops.truncmod)
floor_mod = _binary("floor_mod", _floor_mod)
power = _binary("power", prim_ops.power)
atan2 = _binary("atan2", prim_ops.atan2)
log_add_exp = _binary("log_add_exp", _log_add_exp)
maximum = _binary("maximum", prim_ops.max)
minimum = _binary("minimum", prim_ops.min)
left_shift = _binary("left_shift", prim_ops.shift_left)
right_shift = _binary("right_shift", prim_ops.shift_right)
bitwise_and = _binary("bitwise_and", prim_ops.bitwise_and)
bitwise_or = _binary("bitwise_or", prim_ops.bitwise_or)
bitwise_xor = _binary("bitwise_xor", prim_ops.bitwise_xor)
logical_and = _binary("logical_and", prim_ops.logical_and)
logical_or = _binary("logical_or", prim_ops.logical_or)
logical_xor = _binary("logical_xor", prim_ops.bitwise_xor)
equal = _binary("equal", prim_ops.equal)
not_equal = _binary("not_equal", prim_ops.not_equal)
greater = _binary("greater", prim_ops.greater)
greater_equal = _binary("greater_equal", prim_ops.greater_equal)
less = _binary("less", prim_ops.less)
less_equal = _binary("less_equal", prim_ops.less_equal)

for _name, _operation in {
    "add": add,
    "subtract": subtract,
    "multiply": multiply,
    "divide": divide,
}.items():
    EXPR_OPERATORS.register(f"te.{_name}", _operation)
