"""What calls of kernels and packed functions share: arguments, declared types, in-place indices.

Examples
--------
>>> to_indices(0), to_types(None)
((0,), ())
"""

from collections.abc import Sequence
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr, Tuple
from relaxlab.ir.type import TupleType, Type
from relaxlab.relax.expr import ExternFunc
from relaxlab.relax.literals import convert_to_expr
from relaxlab.relax.op.declare import InferenceContext
from relaxlab.relax.op.inference import op_name
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType, infer_by_ty_args

__all__ = [
    "Types",
    "callee_of",
    "check_inplace_indices",
    "flat_types",
    "infer_by_out_ty",
    "infer_from_ty_args",
    "only_type",
    "op_label",
    "output_type",
    "to_argument_tuple",
    "to_indices",
    "to_types",
]

Types = Type | Sequence[Type] | None


def to_argument_tuple(args: Any) -> Expr:
    """Return the arguments of a call as one tuple; a single expression becomes a tuple of one."""
    if isinstance(args, Expr) and isinstance(args.ty, TupleType):
        return args
    if isinstance(args, tuple | list):
        return Tuple(tuple(convert_to_expr(arg) for arg in args))
    return Tuple((convert_to_expr(args),))


def to_types(types: Types) -> tuple[Type, ...]:
    """Return type arguments as a tuple; one type becomes a tuple of one, None an empty one."""
    if types is None:
        return ()
    return (types,) if isinstance(types, Type) else tuple(types)


def output_type(name: str, out_ty: Type | Sequence[Type]) -> Type:
    """Return the declared output type: tensors with written-out shapes, or a tuple of them."""
    outputs = to_types(out_ty)
    for ty in outputs:
        if not isinstance(ty, TensorType):
            raise TypeError(f"out_ty of {name} must be a TensorType or a list of them, got {ty!r}")
        if not isinstance(ty.shape, ShapeExpr):
            raise InternalError(
                f"out_ty of {name} should have defined ShapeExpr as shape. However, one given "
                f"type information is {ty!r}; an output of unknown shape needs R.match_cast first"
            )
    return outputs[0] if len(outputs) == 1 else TupleType(outputs)


def callee_of(func: str | Expr) -> Expr:
    """Return a callee; a name means a function found at run time."""
    return ExternFunc(func) if isinstance(func, str) else func


def op_label(call: Call) -> str:
    """Return the operator of a call as programs write it, ``R.call_tir``."""
    return "R" + op_name(call).removeprefix("relax")


def only_type(call: Call) -> Type:
    """Return the one type argument of a call; InternalError when there is not one."""
    if len(call.ty_args) != 1:
        raise InternalError(
            f"{op_label(call)} needs exactly one type argument, got {len(call.ty_args)}"
        )
    return call.ty_args[0]


def infer_by_out_ty(call: Call, ctx: InferenceContext) -> Type:
    """Infer the declared output type."""
    return only_type(call)


def infer_from_ty_args(call: Call, ctx: InferenceContext) -> Type:
    """Infer by the call's type arguments alone."""
    return infer_by_ty_args(call)


def flat_types(ty: Type) -> tuple[Type, ...]:
    """Return the outputs of a declared type: the fields of a tuple, else the type itself."""
    return ty.fields if isinstance(ty, TupleType) else (ty,)


def to_indices(indices: int | Sequence[int]) -> tuple[int, ...]:
    """Return in-place indices as a tuple; one index becomes a tuple of one."""
    return (indices,) if isinstance(indices, int) else tuple(int(i) for i in indices)


def check_inplace_indices(indices: Sequence[int], count: int, alternative: str) -> None:
    """Refuse in-place indices that are out of range, repeated, or all -1."""
    for i, index in enumerate(indices):
        if not -1 <= index < count:
            raise ValueError(
                f"In-place index {i} is out of range (must be between -1 and {count - 1}, "
                f"inclusive, but is {index})"
            )
        if index != -1 and index in indices[:i]:
            raise ValueError(
                f"All in-place indices must be unique, but index {index} appears more than once."
            )
    if all(index == -1 for index in indices):
        raise ValueError(
            f"At least one index must have a value other than -1 (or else simply use {alternative})"
        )
