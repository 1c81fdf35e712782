"""How an operator is declared and called.

An operator is a name, its arguments, its attributes in printing order, and a table: how the
result type follows (``FInferType``), whether a call has effects (``FPurity``), and what the passes
want to know. A family of like operators is a loop over a list of names. Counterpart: TVM's
``TVM_REGISTER_OP`` and the attribute keys listed there.

Examples
--------
>>> from relaxlab.relax.op.unary import exp
>>> exp.__name__, str(exp.__doc__).splitlines()[0]
('exp', 'Element-wise e to the power x.')
"""

from collections.abc import Callable
from typing import Any, Protocol

from relaxlab.ir.attrs import Attrs
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.op import Op, register_op
from relaxlab.ir.sym import Analyzer
from relaxlab.ir.type import Type

__all__ = ["InferType", "InferenceContext", "call_op", "declare"]


class InferenceContext(Protocol):
    """What type inference may ask; the block builder is one."""

    @property
    def analyzer(self) -> Analyzer:
        """Facts about the symbolic variables in scope."""

    def lookup_binding(self, var: Var) -> Expr | None:
        """Return the value that a variable was bound to, or None."""


#: ``FInferType``: the result type of a call whose arguments have types.
InferType = Callable[[Call, InferenceContext], Type]


def declare(
    name: str,
    arguments: tuple[str, ...],
    infer_type: InferType,
    *,
    attributes: tuple[str, ...] = (),
    pure: bool = True,
    optional: int = 0,
    variadic: bool = False,
    **table: Any,
) -> Op:
    """Register the operator ``relax.<name>``.

    Parameters
    ----------
    name
        Name without ``relax.``.
    arguments
        Names of the positional arguments, the last ``optional`` of which may be left out.
    infer_type
        Computes the result type.
    attributes
        Names of the attributes, in printing order.
    pure
        Whether a call has no visible effect.
    optional
        How many of the last arguments may be left out.
    variadic
        Whether any number of arguments is accepted.
    **table
        More entries of the operator's table.
    """
    return register_op(
        f"relax.{name}",
        arguments=arguments,
        attribute_names=attributes,
        num_inputs=-1 if variadic or optional else len(arguments),
        FInferType=_counted(len(arguments), optional, infer_type) if not variadic else infer_type,
        FPurity=pure,
        **table,
    )


def _counted(most: int, optional: int, infer_type: InferType) -> InferType:
    """Check the number of arguments before inferring."""

    def infer(call: Call, ctx: InferenceContext) -> Type:
        count = len(call.args)
        if not most - optional <= count <= most:
            expected = f"{most - optional} to {most}" if optional else str(most)
            raise ValueError(
                f"Operator {_name(call)} expects {expected} arguments, but was called with "
                f"{count} arguments"
            )
        return infer_type(call, ctx)

    return infer


def _name(call: Call) -> str:
    assert isinstance(call.op, Op)
    return call.op.name


def call_op(op: Op, *args: Expr, **attrs: Any) -> Call:
    """Build a call; attributes in declaration order.

    Raises
    ------
    TypeError
        If an argument is no expression.
    """
    given: tuple[object, ...] = args
    for position, arg in enumerate(given):
        if not isinstance(arg, Expr):
            name = op.arguments[position] if position < len(op.arguments) else str(position)
            raise TypeError(
                f"{op.name} expects an expression as argument {name}, got {type(arg).__name__}: "
                f"{arg!r}; numbers become expressions by relax.const or relax.prim_value"
            )
    return Call(op, args, Attrs(attrs) if attrs else None)
