"""Operators with visible effects: printing and run-time assertions.

Counterpart: part of ``tvm.relax.op.base``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> print(Var("x", TensorType([2])), format="x is {}").args[0].value
'x is {}'
"""

from typing import Any

from relaxlab.ir.expr import Call, Expr, StringImm
from relaxlab.ir.type import PrimType, TupleType, Type
from relaxlab.relax.literals import convert_to_expr
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import type_of
from relaxlab.relax.type import TensorType

__all__ = ["assert_op", "print"]


def infer_void(call: Call, ctx: InferenceContext) -> Type:
    """Infer that there is no value."""
    return TupleType(())


_PRINT = declare(
    "print", ("vals",), infer_void, pure=False, variadic=True, FCallPacked="relax.run.print"
)


def print(*values: Any, format: str | Expr = "") -> Call:
    """Print values when the program runs.

    Parameters
    ----------
    values
        What to print.
    format
        A Python format string with one ``{}`` for each value; empty prints them in order.
    """
    return call_op(_PRINT, _format(format), *map(convert_to_expr, values))


def _format(text: str | Expr) -> Expr:
    if isinstance(text, str):
        return StringImm(text)
    if not isinstance(text, StringImm):
        raise TypeError(f"a format must be a string, got {text}")
    return text


def _infer_assert_op(call: Call, ctx: InferenceContext) -> Type:
    if not call.args:
        raise ValueError("Assert op must have at least one argument (the condition), but has none")
    ty = type_of(call.args[0])
    scalar = isinstance(ty, PrimType) or (isinstance(ty, TensorType) and ty.ndim in (0, -1))
    dtype = ty.dtype if isinstance(ty, PrimType | TensorType) else None
    if not scalar or (dtype is not None and not dtype.is_bool):
        raise TypeError(f"The argument to assert must be a boolean scalar, but received {ty!r}")
    return TupleType(())


_ASSERT_OP = declare(
    "assert_op",
    ("vals",),
    _infer_assert_op,
    pure=False,
    variadic=True,
    FCallPacked="relax.run.assert_op",
)


def assert_op(condition: Any, format_args: Any = None, format: str | Expr = "") -> Call:
    """Stop the running program with an error unless a boolean scalar is true.

    Parameters
    ----------
    condition
        A bool tensor of rank 0 or a bool scalar.
    format_args
        A value, or several, for the message.
    format
        The message, a Python format string.
    """
    if format_args is None:
        format_args = ()
    elif not isinstance(format_args, tuple | list):
        format_args = (format_args,)
    values = map(convert_to_expr, format_args)
    return call_op(_ASSERT_OP, convert_to_expr(condition), _format(format), *values)
