"""The type of a call of a function, and the Relax view of a kernel's signature.

A call binds the callee's symbolic variables to the caller's dimensions: calling
``g(x: (n, 4)) -> (n * 2, 4)`` with a tensor of shape ``(m, 4)`` gives ``(m * 2, 4)``.
Counterpart: ``tvm.relax.analysis.derive_call_ret_type``.

Examples
--------
>>> from relaxlab.ir.expr import Call, Var
>>> from relaxlab.ir.type import FuncType
>>> from relaxlab.relax.type import TensorType
>>> n = Var("n", "int64")
>>> ty = FuncType((TensorType([n]),), TensorType([n]))
>>> call = Call(Var("f", ty), (Var("x", TensorType([4])),))
>>> derive_call_ret_type(ty, call).shape.values[0].value
4
"""

from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.prim import Cast, IntImm
from relaxlab.ir.sym import Analyzer
from relaxlab.ir.type import (
    AnyType,
    FuncType,
    PointerType,
    PrimType,
    TupleType,
    Type,
    is_void,
)
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import ShapeType, TensorType
from relaxlab.relax.type_relations import (
    BaseCheckResult,
    dims_equal,
    type_base_check,
)
from relaxlab.relax.type_variables import erase_to_well_defined
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx.buffer import BufferType
from relaxlab.tirx.function import PrimFunc

__all__ = ["derive_call_ret_type", "infer_function_call", "prim_func_type"]

_L0, _L1, _L2, _PASS = BaseCheckResult
_INT64 = DataType("int64")


def derive_call_ret_type(func_ty: FuncType, call: Call, ctx: Any = None) -> Type:
    """Return the type of ``call`` when its callee has type ``func_ty``.

    Parameters
    ----------
    func_ty
        Type of the callee. An opaque one gives its declared result, or what its derive function
        computes from the call.
    call
        The call; its arguments have types.
    ctx
        The block builder at work, which knows facts about symbolic variables; may be None.

    Raises
    ------
    ValueError
        If the number of arguments is wrong, or an argument cannot have its parameter's type.
    """
    if func_ty.params is None:
        if func_ty.derive_func is not None:
            derived: Type = func_ty.derive_func(call, ctx)
            return derived
        return func_ty.ret
    if len(func_ty.params) != len(call.args):
        args = ", ".join(str(arg) for arg in call.args)
        raise ValueError(
            f"Number of arguments and parameters mismatch: Function {call.op} has type {func_ty!r} "
            f"and accepts {len(func_ty.params)} parameters, but was called with {len(call.args)} "
            f"arguments (({args}{',' if len(call.args) == 1 else ''}))"
        )
    binder = _Binder(getattr(ctx, "analyzer", None))
    for i, (param, arg) in enumerate(zip(func_ty.params, call.args, strict=True)):
        if arg.ty is None:
            raise InternalError(f"Argument {i} of a call has no type yet: {arg}")
        if binder.bind(param, arg.ty) <= _L1:
            raise ValueError(f"Argument {i} type mismatch: expected {param!r}, given {arg.ty!r}")
    return erase_to_well_defined(func_ty.ret, binder.dims, binder.shapes)


class _Binder:
    """Matches parameter types with argument types and collects what variables stand for."""

    def __init__(self, analyzer: Analyzer | None) -> None:
        self.analyzer = analyzer
        self.dims: dict[Var, Expr] = {}
        self.shapes: dict[Var, Expr] = {}

    def bind(self, param: Type, arg: Type) -> BaseCheckResult:
        match param, arg:
            case TensorType(), TensorType():
                shapeless = TensorType(None, param.dtype, param.vdevice, param.ndim)
                result = type_base_check(shapeless, arg, self.analyzer)
                if result is _L0 or param.shape is None:
                    return result
                return min(result, self._bind_shape(param.shape, arg.shape))
            case ShapeType(), ShapeType():
                result = type_base_check(ShapeType(ndim=param.ndim), arg, self.analyzer)
                if result is _L0 or param.values is None:
                    return result
                if arg.values is None:
                    return min(result, _L2)
                return min(result, self._bind_dims(param.values, arg.values))
            case TupleType(), TupleType():
                if len(param.fields) != len(arg.fields):
                    return _L0
                result = _PASS
                for p, a in zip(param.fields, arg.fields, strict=True):
                    result = min(result, self.bind(p, a))
                return result
            case _:
                return type_base_check(param, arg, self.analyzer)

    def _bind_shape(self, param: Expr, arg: Expr | None) -> BaseCheckResult:
        if isinstance(param, Var):
            if arg is None:
                return _L2
            bound = self.shapes.setdefault(param, arg)
            return _PASS if bound is arg else _L2
        if isinstance(param, ShapeExpr) and isinstance(arg, ShapeExpr):
            return self._bind_dims(param.values, arg.values)
        return _L2

    def _bind_dims(self, params: tuple[Expr, ...], args: tuple[Expr, ...]) -> BaseCheckResult:
        if len(params) != len(args):
            return _L0
        result = _PASS
        for param, arg in zip(params, args, strict=True):
            if isinstance(param, Var):
                bound = self.dims.setdefault(param, arg)
                check = _PASS if dims_equal(bound, arg, self.analyzer) else _L2
            elif isinstance(param, IntImm) and isinstance(arg, IntImm):
                check = _PASS if param.value == arg.value else _L0
            else:
                # a compound dimension is checked at run time, when its variables have values
                check = _L2
            result = min(result, check)
        return result


def infer_function_call(call: Call, ctx: Any = None) -> Type:
    """Return the type of a call whose callee is a value (not an operator).

    Raises
    ------
    InternalError
        If the callee's type is unknown or no function type.
    """
    if call.op.ty is None:
        raise InternalError(
            f"the type of the callee {call.op} is not known; add the function to the module (or "
            "give the variable a type) before it is called"
        )
    if not isinstance(call.op.ty, FuncType):
        raise InternalError(
            f"Call->op must contains a function type, but {call.op} has type {call.op.ty!r}"
        )
    return derive_call_ret_type(call.op.ty, call, ctx)


def prim_func_type(func: PrimFunc) -> FuncType:
    """Return the type of a kernel as Relax code sees it: buffers are tensors.

    A kernel that returns nothing writes into its buffers, so it is impure; one that returns a
    scalar is pure.
    """
    params: list[Type] = []
    for param in func.params:
        if isinstance(param.ty, BufferType):
            dims = [_int64(dim) for dim in param.ty.shape]
            params.append(TensorType(ShapeExpr(tuple(dims)), param.ty.dtype))
        elif isinstance(param.ty, PointerType):
            params.append(AnyType())  # any tensor passes as its descriptor
        elif param.ty is not None:
            params.append(param.ty)
        else:
            raise TypeError(f"kernel parameter {param.name!r} has no type")
    return FuncType(tuple(params), func.ret_type, purity=not is_void(func.ret_type))


def _int64(dim: Expr) -> Expr:
    if isinstance(dim, IntImm):
        return IntImm(_INT64, dim.value)
    if isinstance(dim.ty, PrimType) and dim.dtype is not _INT64:
        return Cast(_INT64, dim)
    return dim
