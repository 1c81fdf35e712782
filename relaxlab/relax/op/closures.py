"""Functions as values. Counterpart: part of ``tvm.relax.op.base``.

Examples
--------
>>> from relaxlab.ir import GlobalVar
>>> make_closure(GlobalVar("f"), ()).op.name
'relax.make_closure'
"""

from typing import Any

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.type import AnyType, Type
from relaxlab.relax.op.call_arguments import Types, infer_from_ty_args, to_argument_tuple, to_types
from relaxlab.relax.op.declare import InferenceContext, declare

__all__ = ["invoke_closure", "invoke_pure_closure", "make_closure", "null_value"]


def infer_any(call: Call, ctx: InferenceContext) -> Type:
    """Infer nothing: any value."""
    return AnyType()


_MAKE_CLOSURE = declare("make_closure", ("func", "args"), infer_any)
_INVOKE_CLOSURE = declare("invoke_closure", ("closure", "args"), infer_from_ty_args, pure=False)
_INVOKE_PURE_CLOSURE = declare("invoke_pure_closure", ("closure", "args"), infer_from_ty_args)
_NULL_VALUE = declare("null_value", (), infer_any)


def make_closure(func: Expr, args: Any) -> Call:
    """A function together with values for its last parameters."""
    return Call(_MAKE_CLOSURE, (func, to_argument_tuple(args)))


def invoke_closure(closure: Expr, args: Any, ty_args: Types) -> Call:
    """Call a closure; ``ty_args`` is the type of the result."""
    return Call(_INVOKE_CLOSURE, (closure, to_argument_tuple(args)), None, to_types(ty_args))


def invoke_pure_closure(closure: Expr, args: Any, ty_args: Types) -> Call:
    """:func:`invoke_closure`, promising that the call has no effect."""
    return Call(_INVOKE_PURE_CLOSURE, (closure, to_argument_tuple(args)), None, to_types(ty_args))


def null_value() -> Call:
    """The value that stands for none."""
    return Call(_NULL_VALUE)
