"""Turn the operators of the lowered program into calls of VM builtins.

What remains as an operator afterwards is what code generation knows. An operator may bring its
own lowering under ``FLowerBuiltin``: a function of (builder, call).
Counterpart: ``tvm.relax.transform.LowerRuntimeBuiltin`` (formerly ``VMBuiltinLower``).

Examples
--------
>>> LowerRuntimeBuiltin().info.name
'LowerRuntimeBuiltin'
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from relaxlab.errors import InternalError
from relaxlab.ir import (
    AnyType,
    Call,
    Expr,
    FuncType,
    IntImm,
    IRModule,
    Op,
    PassContext,
    StringImm,
    Target,
    Tuple,
    TupleType,
    Type,
    Var,
    VDevice,
)
from relaxlab.relax.expr import (
    ExternFunc,
    Function,
    ShapeExpr,
    ShapeType,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprMutator, ExprVisitor
from relaxlab.relax.literals import dtype_const
from relaxlab.relax.transform.pass_base import FunctionPass
from relaxlab.runtime.device import device
from relaxlab.runtime.dtype import DataType

__all__ = ["LowerRuntimeBuiltin", "VMBuiltinLower"]


def _packed(name: str, args: tuple[Expr, ...], ty: Type) -> Call:
    return Call(ExternFunc(name), args, None, (ty,))


def _typed(call: Call) -> Type:
    assert call.ty is not None
    return call.ty


def _fields(args: Expr) -> tuple[Expr, ...]:
    return args.fields if isinstance(args, Tuple) else (args,)


def _call_tir_dyn(call: Call) -> Expr:
    args = (call.args[0], *_fields(call.args[1]))
    return _packed("vm.builtin.call_tir_dyn", args, TupleType(()))


def _reshape(call: Call) -> Expr:
    x, shape = call.args
    if not isinstance(shape.ty, ShapeType):
        raise InternalError(f"reshape needs a shape, got {shape!r} of type {shape.ty!r}")
    return _packed("vm.builtin.reshape", (x, shape), _typed(call))


def _shape_of(call: Call) -> Expr:
    return _packed("vm.builtin.shape_of", (call.args[0],), _typed(call))


def _tensor_to_shape(call: Call) -> Expr:
    return _packed("vm.builtin.tensor_to_shape", (call.args[0],), _typed(call))


def _call_py_func(call: Call) -> Expr:
    return _packed("vm.builtin.call_py_func", (Tuple(call.args[:2]),), _typed(call))


def _to_vdevice(call: Call) -> Expr:
    assert call.attrs is not None
    target: VDevice = call.attrs.dst_vdevice
    args = (
        call.args[0],
        _int64(_device_type(target.target)),
        _int64(target.vdevice_id),
        StringImm(target.memory_scope),
    )
    return _packed("vm.builtin.to_device", args, _typed(call))


def _device_type(target: Target) -> int:
    """Return DLPack's number of the kind of device that a target is for."""
    kind = "cpu" if "cpu" in target.keys else target.kind.name
    return device(kind).dlpack_device_type()


def _make_closure(call: Call) -> Expr:
    args = (call.args[0], *_fields(call.args[1]))
    return _packed("vm.builtin.make_closure", args, AnyType())


def _invoke(closure: Expr, args: Iterable[Expr], ty: Type) -> Call:
    return Call(
        Op.get("relax.call_builtin_with_ctx"),
        (ExternFunc("vm.builtin.invoke_closure"), Tuple((closure, *args))),
        None,
        (ty,),
    )


def _alloc_storage(call: Call) -> Expr:
    size, where, scope, _ = call.args
    # storage has no element type at run time, only bytes
    return Call(Op.get("relax.vm.alloc_storage"), (size, where, dtype_const("uint8"), scope))


def _alloc_tensor(call: Call) -> Expr:
    return Call(Op.get("relax.vm.alloc_tensor"), call.args)


def _kill(call: Call) -> Expr:
    return Call(Op.get("relax.vm.kill_object"), call.args)


def _view(call: Call, is_absent: Callable[[Expr], bool]) -> Expr:
    """Write out what the view leaves as it is, since the builtin has no defaults."""
    x, shape, dtype, offset = call.args
    ty: Any = x.ty
    if all(map(is_absent, (shape, dtype, offset))):
        return x
    if is_absent(shape):
        if not isinstance(ty.shape, ShapeExpr):
            raise InternalError(f"a view of {x!r} needs a shape: its own is not known")
        shape = ty.shape
    if is_absent(dtype):
        if ty.dtype is None:
            raise InternalError(f"a view of {x!r} needs a dtype: its own is not known")
        dtype = dtype_const(ty.dtype)
    if is_absent(offset):
        offset = _int64(0)
    args = (x, shape, dtype, offset)
    # the type is known but not written down, as in TVM
    return Call(ExternFunc("runtime.TVMTensorCreateView"), args, ty=call.ty)


def _ensure_zero_offset(call: Call) -> Expr:
    return _packed("vm.builtin.ensure_zero_offset", call.args, _typed(call))


def _builtin_alloc_tensor(call: Call) -> Expr:
    raise InternalError(
        "R.builtin.alloc_tensor has no runtime counterpart; run LowerAllocTensor before "
        "LowerRuntimeBuiltin"
    )


def _int64(value: int) -> IntImm:
    return IntImm(DataType("int64"), value)


_LOWERINGS: Final[dict[str, Callable[[Call], Expr]]] = {
    "relax.builtin.alloc_tensor": _builtin_alloc_tensor,
    "relax.call_py_func": _call_py_func,
    "relax.make_closure": _make_closure,
    "relax.memory.alloc_storage": _alloc_storage,
    "relax.memory.alloc_tensor": _alloc_tensor,
    "relax.memory.ensure_zero_offset": _ensure_zero_offset,
    "relax.memory.kill_storage": _kill,
    "relax.memory.kill_tensor": _kill,
    "relax.reshape": _reshape,
    "relax.shape_of": _shape_of,
    "relax.tensor_to_shape": _tensor_to_shape,
    "relax.to_vdevice": _to_vdevice,
    "relax.vm.call_tir_dyn": _call_tir_dyn,
}


class _Consumed(ExprVisitor):
    """Finds variables that are more than returned, called or killed."""

    def __init__(self) -> None:
        self.found: set[Var] = set()

    def visit_var_(self, op: Var) -> None:
        self.found.add(op)

    def visit_call_(self, op: Call) -> None:
        name = op.op.name if isinstance(op.op, Op) else None
        if name == "relax.invoke_closure":
            self.visit_expr(op.args[1])
        elif name not in ("relax.memory.kill_tensor", "relax.vm.kill_object"):
            for arg in op.args:
                self.visit_expr(arg)

    def visit_function_(self, op: Function) -> None:
        for block in op.body.blocks:
            self.visit_binding_block(block)
        if not isinstance(op.body.body, Var):
            self.visit_expr(op.body.body)


class _Lowerer(ExprMutator):
    def __init__(self, mod: IRModule, consumed: set[Var]) -> None:
        super().__init__(mod)
        self.consumed = consumed
        #: Whether the variable being bound must keep its type.
        self.is_consumed = False

    def visit_var_binding_(self, binding: VarBinding) -> None:
        self.is_consumed = binding.var in self.consumed
        super().visit_var_binding_(binding)

    def visit_call_(self, op: Call) -> Expr:
        is_consumed = self.is_consumed
        if isinstance(op.op, Var):
            callee = self.visit_expr(op.op)
            if not isinstance(callee.ty, FuncType):
                # a closure that another closure returned
                ty = _typed(op) if is_consumed else AnyType()
                return self.builder.normalize(_invoke(callee, self.visit_each(op.args), ty))
        call = super().visit_call_(op)
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return call
        if call.op.name == "relax.invoke_closure":
            # TVM forgets the type, and so refuses a kernel that is given the result
            ty = _typed(call) if is_consumed else AnyType()
            return _invoke(call.args[0], _fields(call.args[1]), ty)
        if call.op.name == "relax.memory.view":
            return _view(call, self.is_absent)
        lowering = _LOWERINGS.get(call.op.name)
        if lowering is not None:
            return lowering(call)
        own = call.op.get_attr("FLowerBuiltin")
        if own is not None:
            lowered: Expr = own(self.builder, call)
            return lowered
        return call

    def is_absent(self, arg: Expr) -> bool:
        """Say whether an optional argument was left out: an empty tuple, or null."""
        value = self.builder.lookup_binding(arg) if isinstance(arg, Var) else arg
        if isinstance(value, Tuple):
            return not value.fields
        return (
            isinstance(value, Call)
            and isinstance(value.op, Op)
            and value.op.name == "relax.null_value"
        )


@dataclass(frozen=True)
class LowerRuntimeBuiltin(FunctionPass):
    """Lower operators to VM builtins."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function in terms of VM builtins."""
        consumed = _Consumed()
        consumed.visit_expr(func)
        result: Any = _Lowerer(mod, consumed.found).visit_expr(func)
        return result  # type: ignore[no-any-return]  # a function stays one


#: The name the pass had before.
VMBuiltinLower = LowerRuntimeBuiltin
