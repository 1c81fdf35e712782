"""From a tensor computation to a ``call_tir``: what ``BlockBuilder.call_te`` does.

Relax arguments become placeholders (tensors), lists of scalars (shapes) or scalars; the function
is called with them; its result becomes a kernel of the module and a call of it. The kernel gets
symbolic variables of its own. A symbolic variable that no tensor's shape defines is passed as a
scalar argument behind the tensors. Counterpart: ``gen_call_tir_inputs`` of ``tvm.relax.utils``.

Where TVM makes a kernel that cannot work, this does not: a result that *is* an argument is
copied, and a variable that the function captured (rather than was given) is passed too.

Examples
--------
>>> from relaxlab import topi
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> x = Var("x", TensorType([2, 3]))
>>> kernel, args, out_ty = make_kernel(topi.sum, (x,), {"axis": 1})
>>> [p.name for p in kernel.params], args[0] is x, out_ty.ndim
(['x', 'x_red'], True, 1)
"""

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from relaxlab import te, topi
from relaxlab.ir.expr import Call, Expr, GenericConst, GlobalVar, StringImm, Tuple, Var
from relaxlab.ir.global_info import VDevice
from relaxlab.ir.module import BaseFunc
from relaxlab.ir.op import Op
from relaxlab.ir.prim_functor import free_vars, substitute
from relaxlab.ir.type import PrimType, TupleType, Type
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import ShapeType, TensorType
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.tirx import PrimFunc

__all__ = ["call_te", "make_kernel"]


class KernelOwner(Protocol):
    """What is asked of a block builder."""

    def add_func(self, func: BaseFunc, func_name: str) -> GlobalVar:
        """Add a function, or find an equal one."""

    def normalize_argument(self, expr: Expr) -> Expr:
        """Bind an expression that is no leaf to a variable."""


def call_te(
    builder: KernelOwner,
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    primfunc_name_hint: str | None = None,
    primfunc_attrs: Mapping[str, Any] | None = None,
) -> Call:
    """Add the kernel of a tensor computation to the builder's module and return a call of it.

    Parameters
    ----------
    builder
        Where the kernel goes.
    func
        Takes te tensors (and whatever else is among the arguments); returns a te tensor or a
        list of them.
    args, kwargs
        Its arguments, in Relax terms; lists, tuples and dicts are searched.
    primfunc_name_hint
        Name of the kernel; ``func.__name__`` by default.
    primfunc_attrs
        More attributes of the kernel.

    Raises
    ------
    AssertionError
        If a tensor's or shape's dimensions are not written out, or ``func`` returns something
        else than tensors.
    TypeError
        If an argument is of a kind that a computation cannot take.
    """
    kernel, call_args, out_ty = make_kernel(func, args, kwargs, primfunc_attrs)
    name = str(primfunc_name_hint or getattr(func, "__name__", "main"))
    gvar = builder.add_func(kernel, name)
    given = Tuple(tuple(builder.normalize_argument(arg) for arg in call_args))
    return Call(Op.get("relax.call_tir"), (gvar, given), ty_args=_types(out_ty))


def _types(out_ty: Type | list[TensorType]) -> tuple[Type, ...]:
    if isinstance(out_ty, list):
        return (TupleType(tuple(out_ty)),)
    return (out_ty,)


def make_kernel(
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    primfunc_attrs: Mapping[str, Any] | None = None,
) -> tuple[PrimFunc, list[Expr], TensorType | list[TensorType]]:
    """Return the kernel of a tensor computation, the arguments to call it with, and its type.

    See :func:`call_te`, which adds the kernel to a module.
    """
    converter = _Converter()
    te_args = [converter.convert(arg) for arg in args]
    te_kwargs = {key: converter.convert(value) for key, value in kwargs.items()}
    outputs, several = _outputs(func(*te_args, **te_kwargs), converter.tensors)
    scalars = _unbound(converter, outputs)
    params: list[Tensor | Var] = [*converter.tensors, *scalars, *outputs]
    kernel = te.create_prim_func(params, index_dtype_override="int64")
    captured = [v for v in free_vars(kernel) if v not in _shape_vars(params) and v not in scalars]
    if captured:
        scalars = [*scalars, *captured]
        params = [*converter.tensors, *scalars, *outputs]
        kernel = te.create_prim_func(params, index_dtype_override="int64")
    kernel = kernel.without_attr("global_symbol")
    if primfunc_attrs:
        kernel = kernel.with_attr(primfunc_attrs)
    back = {mine: theirs for theirs, mine in converter.variables.items()}
    types = [
        TensorType([substitute(d, back) for d in out.shape], out.dtype, converter.vdevice)
        for out in outputs
    ]
    call_args = [*converter.inputs, *(back.get(v, v) for v in scalars)]
    return kernel, call_args, types if several else types[0]


class _Converter:
    """Relax arguments to te arguments, remembering what became what."""

    def __init__(self) -> None:
        #: The Relax tensors, and the placeholder of each.
        self.inputs: list[Expr] = []
        self.tensors: list[Tensor] = []
        #: Symbolic variable of the caller to that of the kernel.
        self.variables: dict[Var, Var] = {}
        #: Scalar expressions among the arguments, in terms of the kernel's variables.
        self.scalars: list[Expr] = []
        self.vdevice: VDevice | None = None

    def convert(self, arg: Any) -> Any:
        """Convert one argument."""
        match arg:
            case None | bool() | int() | float() | str() | DataType():
                return arg
            case StringImm():
                return arg.value
            case Tuple():
                return [self.convert(field) for field in arg.fields]
            case Expr():
                return self._convert_expr(arg)
            case list() | tuple():
                return [self.convert(item) for item in arg]
            case Mapping():
                return {key: self.convert(value) for key, value in arg.items()}
            case _:
                raise TypeError(f"not supported type in emit_te: {type(arg)}")

    def _convert_expr(self, arg: Expr) -> Any:
        ty = arg.ty
        if isinstance(arg, GenericConst) and isinstance(arg.value, DataType):
            return arg.value
        if isinstance(ty, TensorType):
            return self._placeholder(arg, ty)
        if isinstance(ty, ShapeType):
            assert isinstance(arg, ShapeExpr), (
                "For Expr having ShapeType, emit_te now only supports ShapeExpr"
            )
            return [self._scalar(dim) for dim in arg.values]
        if isinstance(ty, PrimType):
            return self._scalar(arg)
        raise TypeError(f"not supported type in emit_te: {type(arg)}")

    def _placeholder(self, arg: Expr, ty: TensorType) -> Tensor:
        dims = ty.get_shape()
        assert dims is not None, "emit_te now only supports Tensor that has ShapeExpr shape"
        assert ty.dtype is not None, "emit_te now only supports Tensor of known dtype"
        count = len(self.tensors)
        if isinstance(arg, Var):
            name = arg.name
        elif count < len(string.ascii_uppercase):
            name = string.ascii_uppercase[count]
        else:
            name = f"tensor_input_{count}"
        tensor = te.placeholder([self._own(dim) for dim in dims], ty.dtype, name)
        self.inputs.append(arg)
        self.tensors.append(tensor)
        self.vdevice = self.vdevice or ty.vdevice
        return tensor

    def _scalar(self, value: Expr) -> Expr:
        mine = self._own(value)
        self.scalars.append(mine)
        return mine

    def _own(self, value: Expr) -> Expr:
        """Replace the caller's variables by the kernel's."""
        used = free_vars(value)
        for var in used:
            if var not in self.variables:
                self.variables[var] = Var(var.name, var.ty)
        return substitute(value, {var: self.variables[var] for var in used})


def _outputs(result: Any, inputs: Sequence[Tensor]) -> tuple[list[Tensor], bool]:
    several = isinstance(result, list | tuple)
    outputs = list(result) if several else [result]
    if not outputs or not all(isinstance(out, Tensor) for out in outputs):
        raise AssertionError(
            "only support te.tensor or tuple/list/Array of te.tensor as function output, got "
            f"{result!r}"
        )
    seen: list[Tensor] = list(inputs)
    for i, out in enumerate(outputs):
        if any(out is other for other in seen):
            # one buffer cannot be two parameters
            outputs[i] = topi.identity(out)
        seen.append(outputs[i])
    return outputs, several and len(outputs) > 1


def _shape_vars(params: Sequence[Tensor | Var]) -> set[Var]:
    """Symbolic variables that stand alone as an extent of a parameter, which defines them."""
    return {
        dim
        for param in params
        if isinstance(param, Tensor)
        for dim in param.shape
        if isinstance(dim, Var)
    }


def _unbound(converter: _Converter, outputs: Sequence[Tensor]) -> list[Var]:
    """Return variables used by extents or scalars and defined by none, in order of use."""
    params = [*converter.tensors, *outputs]
    defined = _shape_vars(params)
    used = [dim for tensor in params for dim in tensor.shape]
    found: dict[Var, None] = {}
    for value in (*used, *converter.scalars):
        found.update(dict.fromkeys(v for v in free_vars(value) if v not in defined))
    return list(found)
