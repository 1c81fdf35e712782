"""``call_tir`` and its kin: the door between Relax and kernels.

Destination-passing, with the output's type written down. Counterpart: part of
``tvm.relax.op.base``.

Examples
--------
>>> from relaxlab.ir import GlobalVar, Var
>>> from relaxlab.relax.type import TensorType
>>> x = Var("x", TensorType([4]))
>>> len(call_tir(GlobalVar("kernel"), (x,), out_ty=TensorType([4])).args)
2
"""

from collections.abc import Mapping, Sequence
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir.attrs import Attrs
from relaxlab.ir.expr import Call, Expr, GlobalVar, Tuple, TupleGetItem, Var
from relaxlab.ir.type import FuncType, TupleType, Type
from relaxlab.relax.call_type import derive_call_ret_type
from relaxlab.relax.op.call_arguments import (
    check_inplace_indices,
    flat_types,
    only_type,
    op_label,
    output_type,
    to_argument_tuple,
    to_indices,
)
from relaxlab.relax.op.declare import InferenceContext, declare
from relaxlab.relax.op.inference import attributes, op_name, type_of
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.relax.type_relations import is_base_of

__all__ = [
    "call_tir",
    "call_tir_inplace",
    "call_tir_with_grad",
    "normalize_argument_tuple",
    "validate_call_tir",
]


def _kernel(gvar: Any) -> Expr:
    if isinstance(gvar, GlobalVar):
        return gvar
    raise InternalError(
        "R.call_tir expects the first argument to be a GlobalVar referring to a TIR PrimFunc. "
        f"However, the argument {gvar!r} instead has type {type(gvar).__name__}"
    )


def _infer_call_tir(call: Call, ctx: InferenceContext) -> Type:
    callee = _kernel(call.args[0])
    # a callee of a module still under construction may not have its type yet
    if callee.ty is not None and not isinstance(callee.ty, FuncType):
        raise InternalError(
            f"Operation {op_name(call)} expects the first argument to be a TIR callee.  However, "
            f"the first argument {callee} has type {callee.ty!r}"
        )
    return only_type(call)


def normalize_argument_tuple(call: Call, ctx: InferenceContext) -> Expr:
    """Write the argument tuple of a ``call_tir`` in line (its ``FNormalize``).

    A tuple held by a variable is replaced by its fields, looked up where the variable is bound,
    else taken one by one.
    """
    args = call.args[1]
    if isinstance(args, Tuple):
        return call
    bound: Expr | None = args
    while isinstance(bound, Var):
        bound = ctx.lookup_binding(bound)
    if not isinstance(bound, Tuple):
        ty = type_of(args)
        if not isinstance(ty, TupleType):
            raise InternalError(
                f"{op_label(call)} should take a tuple of arguments, but {args} has type {ty!r}"
            )
        bound = Tuple(tuple(TupleGetItem(args, i) for i in range(len(ty.fields))))
    rest = (call.args[0], bound, *call.args[2:])
    return Call(call.op, rest, call.attrs, call.ty_args, span=call.span)


def _explicit_arguments(call: Call) -> list[Type]:
    args = call.args[1]
    types = [type_of(arg) for arg in args.fields] if isinstance(args, Tuple) else []
    if len(call.args) > 2 and isinstance(call.args[2], ShapeExpr):
        types.extend(type_of(value) for value in call.args[2].values)
    return types


def validate_call_tir(call: Call) -> None:
    """Check a call against the signature of its kernel (``FValidate``).

    Raises
    ------
    ValueError
        If there are too many arguments, or the arguments or the declared output cannot be those
        of the kernel.
    """
    callee, label = call.args[0], op_label(call)
    if not isinstance(callee.ty, FuncType) or callee.ty.params is None:
        return
    given, params = _explicit_arguments(call), callee.ty.params
    if len(given) > len(params):
        raise ValueError(
            f"{label} attempted to call a function using {len(given)} explicit arguments.  "
            f"However, the callee only accepts {len(params)} arguments in total."
        )
    inputs, outputs = params[: len(given)], params[len(given) :]
    produced = outputs[0] if len(outputs) == 1 else TupleType(outputs)
    # the arguments decide what the kernel's symbolic variables stand for
    signature = FuncType(inputs, produced, purity=callee.ty.purity)
    args = tuple(Var("arg", ty) for ty in given)
    expected = derive_call_ret_type(signature, Call(callee, args))
    declared = call.ty_args[0]
    flat = flat_types(declared)
    if call.attrs is not None and "inplace_indices" in call.attrs:
        fresh = [ty for ty, i in zip(flat, call.attrs.inplace_indices, strict=True) if i == -1]
        declared = fresh[0] if len(fresh) == 1 else TupleType(tuple(fresh))
    if not is_base_of(expected, declared):
        raise ValueError(
            f"The `out_ty` argument for {label} must be compatible with the PrimFunc.  However, "
            f"the PrimFunc's signature implies that the output should be {expected!r}, but the "
            f"`out_ty` argument was {declared!r}"
        )


_CALL_TIR = declare(
    "call_tir",
    ("func", "args", "tir_vars"),
    _infer_call_tir,
    optional=1,
    FNormalize=normalize_argument_tuple,
    FValidate=validate_call_tir,
)


def call_tir(gvar: GlobalVar, args: Any, out_ty: Type | Sequence[Type]) -> Call:
    """Call a kernel of the module; the outputs are allocated and passed after the arguments.

    Parameters
    ----------
    gvar
        The kernel.
    args
        Its inputs: an expression or a tuple of tensors and scalars.
    out_ty
        Type of the output, or a list of types for several; shapes are written out.

    Returns
    -------
    Call
        Its value is the output, or a tuple of the outputs.
    """
    return Call(
        _CALL_TIR,
        (_kernel(gvar), to_argument_tuple(args)),
        None,
        (output_type("call_tir", out_ty),),
    )


def _infer_call_tir_inplace(call: Call, ctx: InferenceContext) -> Type:
    result = _infer_call_tir(call, ctx)
    outputs, indices = flat_types(result), attributes(call).inplace_indices
    if len(indices) != len(outputs):
        raise ValueError("There must be an in-place index specified for each output")
    inputs = [type_of(arg) for arg in _fields(call.args[1])]
    check_inplace_indices(indices, len(inputs), "call_tir")
    for i, (index, out) in enumerate(zip(indices, outputs, strict=True)):
        if index == -1:
            continue
        given = inputs[index]
        if not isinstance(given, TensorType) or not (
            is_base_of(given, out) and is_base_of(out, given)
        ):
            raise ValueError(
                "The input used for an in-place mutation must be a tensor with identical shape "
                f"and dtype as the output.  However, output {i} with type {out!r} is specified as "
                f"an in-place mutation of input {index} with type {given!r}"
            )
    return result


def _fields(args: Expr) -> tuple[Expr, ...]:
    return args.fields if isinstance(args, Tuple) else (args,)


_CALL_TIR_INPLACE = declare(
    "call_tir_inplace",
    ("func", "args", "tir_vars"),
    _infer_call_tir_inplace,
    attributes=("inplace_indices",),
    optional=1,
    FNormalize=normalize_argument_tuple,
    FValidate=validate_call_tir,
)


def call_tir_inplace(
    gvar: GlobalVar,
    args: Any,
    inplace_indices: int | Sequence[int],
    out_ty: Type | Sequence[Type],
) -> Call:
    """:func:`call_tir` whose outputs overwrite inputs.

    Parameters
    ----------
    gvar, args, out_ty
        As for :func:`call_tir`.
    inplace_indices
        For each output the input it overwrites, or -1 for a fresh one; at least one is not -1.
    """
    return Call(
        _CALL_TIR_INPLACE,
        (_kernel(gvar), to_argument_tuple(args)),
        Attrs({"inplace_indices": to_indices(inplace_indices)}),
        (output_type("call_tir_inplace", out_ty),),
    )


_CALL_TIR_WITH_GRAD = declare(
    "call_tir_with_grad",
    ("func", "args", "tir_vars"),
    _infer_call_tir,
    attributes=("te_grad_name", "te_grad_kwargs"),
    optional=1,
    FNormalize=normalize_argument_tuple,
    FValidate=validate_call_tir,
)


def call_tir_with_grad(
    gvar: GlobalVar,
    args: Any,
    out_ty: Type | Sequence[Type],
    te_grad_name: str,
    te_grad_kwargs: Mapping[str, Any] | None = None,
) -> Call:
    """:func:`call_tir` with the name of the te function that computes its gradient."""
    attrs = {"te_grad_name": te_grad_name, "te_grad_kwargs": dict(te_grad_kwargs or {})}
    return Call(
        _CALL_TIR_WITH_GRAD,
        (_kernel(gvar), to_argument_tuple(args)),
        Attrs(attrs),
        (output_type("call_tir_with_grad", out_ty),),
    )
