"""Calls of functions found by name: packed functions, VM builtins, Python functions.

``call_dps_packed`` writes into outputs passed after its arguments, ``call_pure_packed`` promises
that a packed function has no effect, ``call_builtin_with_ctx`` calls a VM builtin that wants the
machine itself. Counterpart: part of ``tvm.relax.op.base``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> x = Var("x", TensorType([4]))
>>> call_pure_packed("f", x, ty_args=x.ty).op.name
'relax.call_pure_packed'
"""

from collections.abc import Sequence
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir.attrs import Attrs
from relaxlab.ir.expr import Call, Expr, StringImm
from relaxlab.ir.type import FuncType, TupleType, Type
from relaxlab.relax.call_type import derive_call_ret_type
from relaxlab.relax.literals import convert_to_expr
from relaxlab.relax.op.call_arguments import (
    Types,
    callee_of,
    check_inplace_indices,
    flat_types,
    infer_by_out_ty,
    op_label,
    output_type,
    to_argument_tuple,
    to_indices,
    to_types,
)
from relaxlab.relax.op.declare import InferenceContext, declare
from relaxlab.relax.op.inference import attributes, type_of
from relaxlab.relax.type_relations import is_base_of

__all__ = [
    "call_builtin_with_ctx",
    "call_dps_packed",
    "call_inplace_packed",
    "call_packed",
    "call_pure_packed",
    "call_py_func",
]


_CALL_DPS_PACKED = declare("call_dps_packed", ("func", "args"), infer_by_out_ty)


def call_dps_packed(func: str | Expr, args: Any, out_ty: Type | Sequence[Type]) -> Call:
    """Call a packed function that writes into outputs passed after its arguments."""
    return Call(
        _CALL_DPS_PACKED,
        (callee_of(func), to_argument_tuple(args)),
        None,
        (output_type("call_dps_packed", out_ty),),
    )


def call_packed(func: str | Expr, *args: Any, ty_args: Types = None) -> Call:
    """Call a packed function that may have effects.

    Parameters
    ----------
    func
        Its name.
    *args
        What it is called with; numbers and lists become expressions.
    ty_args
        Type of the result; several mean a tuple, none that it is not known.
    """
    return Call(callee_of(func), tuple(map(convert_to_expr, args)), None, to_types(ty_args))


def _inner_call(call: Call) -> Call:
    """Return the call that a ``call_pure_packed`` stands for."""
    if not call.args:
        raise InternalError(f"{op_label(call)} must be called with at least one argument")
    return Call(call.args[0], call.args[1:], None, call.ty_args)


def _infer_call_pure_packed(call: Call, ctx: InferenceContext) -> Type:
    inner = _inner_call(call)
    if not isinstance(inner.op.ty, FuncType):
        raise InternalError(
            f"{op_label(call)} expects a function to call, but {inner.op} has type {inner.op.ty!r}"
        )
    return derive_call_ret_type(inner.op.ty, inner, ctx)


_CALL_PURE_PACKED = declare("call_pure_packed", ("args",), _infer_call_pure_packed, variadic=True)


def call_pure_packed(func: str | Expr, *args: Any, ty_args: Types) -> Call:
    """Call a packed function, promising that it has no effect; see :func:`call_packed`."""
    return Call(
        _CALL_PURE_PACKED,
        (callee_of(func), *map(convert_to_expr, args)),
        None,
        to_types(ty_args),
    )


def _infer_call_inplace_packed(call: Call, ctx: InferenceContext) -> Type:
    result = _infer_call_pure_packed(call, ctx)
    inputs, indices = [type_of(arg) for arg in call.args[1:]], attributes(call).inplace_indices
    check_inplace_indices(indices, len(inputs), "call_pure_packed")
    outputs = (result,) if len(indices) == 1 else flat_types(result)
    for index, out in zip(indices, outputs, strict=False):
        if index != -1 and not is_base_of(inputs[index], out):
            raise ValueError(
                "The derived return Type does not match that for the in-place argument at index "
                f"{index}: {out!r} vs {inputs[index]}"
            )
    return result


_CALL_INPLACE_PACKED = declare(
    "call_inplace_packed",
    ("args",),
    _infer_call_inplace_packed,
    attributes=("inplace_indices",),
    variadic=True,
)


def call_inplace_packed(
    func: str | Expr, *args: Any, inplace_indices: int | Sequence[int], ty_args: Types
) -> Call:
    """:func:`call_pure_packed` of a function whose results overwrite some arguments."""
    return Call(
        _CALL_INPLACE_PACKED,
        (callee_of(func), *map(convert_to_expr, args)),
        Attrs({"inplace_indices": to_indices(inplace_indices)}),
        to_types(ty_args),
    )


# --- builtins and Python ------------------------------------------------------------------------


def _infer_call_builtin(call: Call, ctx: InferenceContext) -> Type:
    if len(call.ty_args) > 1:
        raise InternalError(
            f"{op_label(call)} takes at most one type argument, got {len(call.ty_args)}"
        )
    return call.ty_args[0] if call.ty_args else TupleType(())


_CALL_BUILTIN_WITH_CTX = declare(
    "call_builtin_with_ctx", ("func", "args"), _infer_call_builtin, pure=False
)


def call_builtin_with_ctx(func: str | Expr, args: Any, *, ty_args: Types = None) -> Call:
    """Call a VM builtin that gets the machine as its first argument.

    Parameters
    ----------
    func
        Name of the builtin, such as ``"vm.builtin.alloc_shape_heap"``.
    args
        The other arguments.
    ty_args
        Type of the result; none means no value.
    """
    return Call(
        _CALL_BUILTIN_WITH_CTX, (callee_of(func), to_argument_tuple(args)), None, to_types(ty_args)
    )


def validate_call_py_func(call: Call) -> None:
    """Check the form of a call of a Python function (``FValidate``)."""
    if not isinstance(call.args[0], StringImm):
        raise ValueError(f"{op_label(call)} needs the function's name, got {call.args[0]}")
    if not isinstance(type_of(call.args[1]), TupleType):
        raise ValueError(f"{op_label(call)} needs a tuple of arguments, got {call.args[1]}")


_CALL_PY_FUNC = declare(
    "call_py_func", ("func_name", "args"), infer_by_out_ty, FValidate=validate_call_py_func
)


def call_py_func(func_name: str, args: Any, out_ty: Type | Sequence[Type]) -> Call:
    """Call a Python function registered with the module."""
    return Call(
        _CALL_PY_FUNC,
        (StringImm(func_name), to_argument_tuple(args)),
        None,
        (output_type("call_py_func", out_ty),),
    )
