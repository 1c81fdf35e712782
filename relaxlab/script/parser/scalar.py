"""What Python's operators mean on scalar expressions, in kernels and in shapes.

Examples
--------
>>> from relaxlab.ir import Var
>>> type(SCALAR_OPERATORS["equal"](Var("n", "int64"), 1)).__name__
'EQ'
"""

from collections.abc import Callable
from typing import Final

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.prim import Not

__all__ = ["SCALAR_OPERATORS"]


def _not(operand: Expr) -> Expr:
    """Return the node itself, also of a literal: ``not T.bool(True)`` is read back as it stands."""
    prim_ops.logical_not(operand)  # refuses what is no boolean
    return Not(operand)


#: By the name of the operator in ``Evaluator.operate``.
SCALAR_OPERATORS: Final[dict[str, Callable[..., Expr]]] = {
    "add": prim_ops.add,
    "bitwise_and": prim_ops.bitwise_and,
    "bitwise_not": prim_ops.bitwise_not,
    "bitwise_or": prim_ops.bitwise_or,
    "bitwise_xor": prim_ops.bitwise_xor,
    "divide": prim_ops.divide,
    "equal": prim_ops.equal,
    "floor_divide": prim_ops.floordiv,
    "greater": prim_ops.greater,
    "greater_equal": prim_ops.greater_equal,
    "if_then_else": prim_ops.if_then_else,
    "less": prim_ops.less,
    "less_equal": prim_ops.less_equal,
    "logical_and": prim_ops.logical_and,
    "logical_not": _not,
    "logical_or": prim_ops.logical_or,
    "mod": prim_ops.floormod,
    "multiply": prim_ops.multiply,
    "negative": prim_ops.negative,
    "not_equal": prim_ops.not_equal,
    "shift_left": prim_ops.shift_left,
    "shift_right": prim_ops.shift_right,
    "subtract": prim_ops.subtract,
}
