"""What ``x + y`` and its like mean on Relax expressions.

Importing this module fills in the "relax" family of expression operators. Python numbers are
refused, as in TVM: a number has no dtype of its own. Counterpart: ``tvm.relax.ExprWithOp``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> x = Var("x", TensorType([2]))
>>> (x + x).op.name
'relax.add'
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.ir.expr import EXPR_OPERATORS, Expr, TupleGetItem
from relaxlab.ir.type import TupleType
from relaxlab.relax.op import binary, unary

__all__: list[str] = []


def _checked(function: Callable[..., Expr]) -> Callable[..., Expr]:
    def operate(*operands: Any) -> Expr:
        for operand in operands:
            if isinstance(operand, bool | int | float | np.generic | np.ndarray):
                raise TypeError(f"Please convert {operand} with `const` first")
            if not isinstance(operand, Expr):
                raise TypeError(f"type {type(operand)} not supported")
        return function(*operands)

    return operate


def _refuse(name: str) -> Callable[..., Expr]:
    def operate(*operands: Any) -> Expr:
        types = [str(o.ty) if isinstance(o, Expr) else type(o).__name__ for o in operands]
        raise TypeError(
            f"Operator overloading is not supported for expression type {types[0]}: write "
            f"relax.op.{name}(...) instead"
        )

    return operate


def _getitem(value: Expr, index: Any) -> Expr:
    if isinstance(index, tuple):
        raise IndexError("A Relax expression requires exactly one index")
    if value.ty is not None and not isinstance(value.ty, TupleType):
        raise InternalError(
            f"The type of Tuple must be TupleType, but expression {value} has type {value.ty!r}"
        )
    return TupleGetItem(value, int(index))


_MEANINGS: dict[str, Callable[..., Expr]] = {
    "add": _checked(binary.add),
    "subtract": _checked(binary.subtract),
    "multiply": _checked(binary.multiply),
    "divide": _checked(binary.divide),
    "floor_divide": _checked(binary.floor_divide),
    "mod": _checked(binary.mod),
    "power": _checked(binary.power),
    "negative": _checked(unary.negative),
    "less": _checked(binary.less),
    "less_equal": _checked(binary.less_equal),
    "greater": _checked(binary.greater),
    "greater_equal": _checked(binary.greater_equal),
    "shift_left": _refuse("left_shift"),
    "shift_right": _refuse("right_shift"),
    "bitwise_and": _refuse("bitwise_and"),
    "bitwise_or": _refuse("bitwise_or"),
    "bitwise_xor": _refuse("bitwise_xor"),
    "bitwise_not": _refuse("bitwise_not"),
    "getitem": _getitem,
}
for _name, _meaning in _MEANINGS.items():
    EXPR_OPERATORS.register(f"relax.{_name}", _meaning)
