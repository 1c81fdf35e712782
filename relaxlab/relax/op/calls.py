"""Calls of kernels and of functions found by name, as operators.

``call_tir`` is the door between Relax and kernels: destination-passing, with the output's type
written down. ``call_dps_packed`` is the same for a packed function; ``call_pure_packed`` promises
that a packed function has no effect; ``call_builtin_with_ctx`` calls a VM builtin that wants the
machine itself. Counterpart: part of ``tvm.relax.op.base``.

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
from relaxlab.ir.expr import Call, Expr, GlobalVar, StringImm, Tuple, TupleGetItem, Var
from relaxlab.ir.op import Op
from relaxlab.ir.type import FuncType, TupleType, Type
from relaxlab.relax.call_type import derive_call_ret_type
from relaxlab.relax.expr import ExternFunc
from relaxlab.relax.literals import convert_to_expr
from relaxlab.relax.op.declare import InferenceContext, declare
from relaxlab.relax.op.inference import attributes, op_name, type_of
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType, infer_by_ty_args
from relaxlab.relax.type_relations import is_base_of

__all__ = [
    "call_builtin_with_ctx",
    "call_dps_packed",
    "call_inplace_packed",
    "call_packed",
    "call_pure_packed",
    "call_py_func",
    "call_tir",
    "call_tir_inplace",
    "call_tir_with_grad",
]

Types = Type | Sequence[Type] | None


# --- arguments ----------------------------------------------------------------------------------


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


def _output_type(name: str, out_ty: Type | Sequence[Type]) -> Type:
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


def _kernel(gvar: Any) -> Expr:
    if isinstance(gvar, GlobalVar):
        return gvar
    raise InternalError(
        "R.call_tir expects the first argument to be a GlobalVar referring to a TIR PrimFunc. "
        f"However, the argument {gvar!r} instead has type {type(gvar).__name__}"
    )


def _callee(func: str | Expr) -> Expr:
    return ExternFunc(func) if isinstance(func, str) else func


# --- call_tir and its kin -----------------------------------------------------------------------


def _infer_call_tir(call: Call, ctx: InferenceContext) -> Type:
    callee = _kernel(call.args[0])
    # a callee of a module still under construction may not have its type yet
    if callee.ty is not None and not isinstance(callee.ty, FuncType):
        raise InternalError(
            f"Operation {op_name(call)} expects the first argument to be a TIR callee.  However, "
            f"the first argument {callee} has type {callee.ty!r}"
        )
    return _only_type(call)


def _infer_by_out_ty(call: Call, ctx: InferenceContext) -> Type:
    return _only_type(call)


def _only_type(call: Call) -> Type:
    if len(call.ty_args) != 1:
        raise InternalError(
            f"{_op_label(call)} needs exactly one type argument, got {len(call.ty_args)}"
        )
    return call.ty_args[0]


def _op_label(call: Call) -> str:
    assert isinstance(call.op, Op)
    return "R" + call.op.name.removeprefix("relax")


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
                f"{_op_label(call)} should take a tuple of arguments, but {args} has type {ty!r}"
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
    callee, label = call.args[0], _op_label(call)
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
    flat = _flat(declared)
    if call.attrs is not None and "inplace_indices" in call.attrs:
        fresh = [ty for ty, i in zip(flat, call.attrs.inplace_indices, strict=True) if i == -1]
        declared = fresh[0] if len(fresh) == 1 else TupleType(tuple(fresh))
    if not is_base_of(expected, declared):
        raise ValueError(
            f"The `out_ty` argument for {label} must be compatible with the PrimFunc.  However, "
            f"the PrimFunc's signature implies that the output should be {expected!r}, but the "
            f"`out_ty` argument was {declared!r}"
        )


def _flat(ty: Type) -> tuple[Type, ...]:
    return ty.fields if isinstance(ty, TupleType) else (ty,)


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
        (_output_type("call_tir", out_ty),),
    )


def _infer_call_tir_inplace(call: Call, ctx: InferenceContext) -> Type:
    result = _infer_call_tir(call, ctx)
    outputs, indices = _flat(result), attributes(call).inplace_indices
    if len(indices) != len(outputs):
        raise ValueError("There must be an in-place index specified for each output")
    inputs = [type_of(arg) for arg in _fields(call.args[1])]
    _check_inplace_indices(indices, len(inputs), "call_tir")
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


def _check_inplace_indices(indices: Sequence[int], count: int, alternative: str) -> None:
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


_CALL_TIR_INPLACE = declare(
    "call_tir_inplace",
    ("func", "args", "tir_vars"),
    _infer_call_tir_inplace,
    attributes=("inplace_indices",),
    optional=1,
    FNormalize=normalize_argument_tuple,
    FValidate=validate_call_tir,
)


def _to_indices(indices: int | Sequence[int]) -> tuple[int, ...]:
    return (indices,) if isinstance(indices, int) else tuple(int(i) for i in indices)


def call_tir_inplace(
    gvar: GlobalVar,
    args: Any,
    inplace_indices: int | Sequence[int],
    out_ty: Type | Sequence[Type],
) -> Call:
    """:func:`call_tir` whose outputs overwrite inputs.

    Parameters
    ----------
    inplace_indices
        For each output the input it overwrites, or -1 for a fresh one; at least one is not -1.
    """
    return Call(
        _CALL_TIR_INPLACE,
        (_kernel(gvar), to_argument_tuple(args)),
        Attrs({"inplace_indices": _to_indices(inplace_indices)}),
        (_output_type("call_tir_inplace", out_ty),),
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
        (_output_type("call_tir_with_grad", out_ty),),
    )


# --- packed functions ---------------------------------------------------------------------------


_CALL_DPS_PACKED = declare("call_dps_packed", ("func", "args"), _infer_by_out_ty)


def call_dps_packed(func: str | Expr, args: Any, out_ty: Type | Sequence[Type]) -> Call:
    """Call a packed function that writes into outputs passed after its arguments."""
    return Call(
        _CALL_DPS_PACKED,
        (_callee(func), to_argument_tuple(args)),
        None,
        (_output_type("call_dps_packed", out_ty),),
    )


def call_packed(func: str | Expr, *args: Any, ty_args: Types = None) -> Call:
    """Call a packed function that may have effects.

    Parameters
    ----------
    func
        Its name.
    ty_args
        Type of the result; several mean a tuple, none that it is not known.
    """
    return Call(_callee(func), tuple(map(convert_to_expr, args)), None, to_types(ty_args))


def _inner_call(call: Call) -> Call:
    """Return the call that a ``call_pure_packed`` stands for."""
    if not call.args:
        raise InternalError(f"{_op_label(call)} must be called with at least one argument")
    return Call(call.args[0], call.args[1:], None, call.ty_args)


def _infer_call_pure_packed(call: Call, ctx: InferenceContext) -> Type:
    inner = _inner_call(call)
    if not isinstance(inner.op.ty, FuncType):
        raise InternalError(
            f"{_op_label(call)} expects a function to call, but {inner.op} has type {inner.op.ty!r}"
        )
    return derive_call_ret_type(inner.op.ty, inner, ctx)


_CALL_PURE_PACKED = declare("call_pure_packed", ("args",), _infer_call_pure_packed, variadic=True)


def call_pure_packed(func: str | Expr, *args: Any, ty_args: Types) -> Call:
    """Call a packed function, promising that it has no effect; see :func:`call_packed`."""
    return Call(
        _CALL_PURE_PACKED,
        (_callee(func), *map(convert_to_expr, args)),
        None,
        to_types(ty_args),
    )


def _infer_call_inplace_packed(call: Call, ctx: InferenceContext) -> Type:
    result = _infer_call_pure_packed(call, ctx)
    inputs, indices = [type_of(arg) for arg in call.args[1:]], attributes(call).inplace_indices
    _check_inplace_indices(indices, len(inputs), "call_pure_packed")
    outputs = (result,) if len(indices) == 1 else _flat(result)
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
        (_callee(func), *map(convert_to_expr, args)),
        Attrs({"inplace_indices": _to_indices(inplace_indices)}),
        to_types(ty_args),
    )


# --- builtins and Python ------------------------------------------------------------------------


def _infer_call_builtin(call: Call, ctx: InferenceContext) -> Type:
    if len(call.ty_args) > 1:
        raise InternalError(
            f"{_op_label(call)} takes at most one type argument, got {len(call.ty_args)}"
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
        _CALL_BUILTIN_WITH_CTX, (_callee(func), to_argument_tuple(args)), None, to_types(ty_args)
    )


def validate_call_py_func(call: Call) -> None:
    """Check the form of a call of a Python function (``FValidate``)."""
    if not isinstance(call.args[0], StringImm):
        raise ValueError(f"{_op_label(call)} needs the function's name, got {call.args[0]}")
    if not isinstance(type_of(call.args[1]), TupleType):
        raise ValueError(f"{_op_label(call)} needs a tuple of arguments, got {call.args[1]}")


_CALL_PY_FUNC = declare(
    "call_py_func", ("func_name", "args"), _infer_by_out_ty, FValidate=validate_call_py_func
)


def call_py_func(func_name: str, args: Any, out_ty: Type | Sequence[Type]) -> Call:
    """Call a Python function registered with the module."""
    return Call(
        _CALL_PY_FUNC,
        (StringImm(func_name), to_argument_tuple(args)),
        None,
        (_output_type("call_py_func", out_ty),),
    )


def infer_from_ty_args(call: Call, ctx: InferenceContext) -> Type:
    """Infer by the call's type arguments alone."""
    return infer_by_ty_args(call)
