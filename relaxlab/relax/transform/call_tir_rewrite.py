"""Give kernels the memory they write to: destination passing made explicit.

``y = R.call_tir(f, (a, b), out_ty=T)`` becomes an allocation, a call ``f(a, b, alloc)`` and
``y = alloc``. Several outputs are allocated one by one and make a tuple; in-place outputs reuse an
argument. Counterpart: ``tvm.relax.transform.CallTIRRewrite``.

Examples
--------
>>> CallTIRRewrite().info.name
'CallTIRRewrite'
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from relaxlab.errors import InternalError
from relaxlab.ir import (
    Call,
    Expr,
    IntImm,
    IRModule,
    ModulePass,
    Op,
    PassContext,
    StringImm,
    Tuple,
    TupleType,
    Type,
    VDevice,
)
from relaxlab.relax.expr import ExternFunc, Function, GlobalVar, ShapeExpr, TensorType
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.literals import dtype_const
from relaxlab.runtime.dtype import DataType

__all__ = ["CallTIRRewrite"]

_WRITES: Final = frozenset({"relax.call_tir", "relax.call_tir_inplace", "relax.call_dps_packed"})


class _Rewriter(ExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod = mod

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return call
        if call.op.name not in _WRITES:
            return call
        if self.builder.current_block_is_dataflow():
            raise InternalError(
                f"CallTIRRewrite met a {call.op.name} inside a dataflow block, where calls with "
                "effects are not allowed; run ToNonDataflow first"
            )
        inplace = call.attrs.get("inplace_indices") if call.attrs is not None else None
        return self.write_into_memory(call, inplace)

    def write_into_memory(self, call: Call, inplace: Sequence[Any] | None) -> Expr:
        """Emit the allocations and the call; return what stands for its result."""
        callee, inputs = call.args[0], call.args[1]
        args = list(inputs.fields) if isinstance(inputs, Tuple) else [inputs]
        position = 0

        def output(ty: Type) -> Expr:
            nonlocal position
            if isinstance(ty, TupleType):
                return Tuple(tuple(output(item) for item in ty.fields))
            index = -1 if inplace is None else int(inplace[position])
            position += 1
            if index >= 0:
                return args[index]
            args.append(self.builder.emit(self.allocation(ty, callee), "alloc"))
            return args[-1]

        result = output(call.ty_args[0])
        if len(call.args) > 2:
            # symbolic variables given apart come last
            scalars = call.args[2]
            assert isinstance(scalars, ShapeExpr)
            args.extend(scalars.values)
        ty = None if isinstance(callee, ExternFunc) else TupleType(())
        self.builder.emit(Call(callee, tuple(args), ty=ty), "_")
        return result

    def allocation(self, ty: Type, callee: Expr) -> Call:
        if not isinstance(ty, TensorType) or not isinstance(ty.shape, ShapeExpr):
            raise InternalError(
                f"an output of {_name(callee)} needs a tensor type with a written-out shape to be "
                f"allocated, got {ty!r}"
            )
        if ty.dtype is None:
            raise InternalError(f"an output of {_name(callee)} has no dtype: {ty!r}")
        device, scope = self.place(ty.vdevice)
        args = (
            ty.shape,
            dtype_const(ty.dtype),
            IntImm(DataType("int64"), device),
            StringImm(scope),
        )
        return Call(Op.get("relax.builtin.alloc_tensor"), args, None, (ty,))

    def place(self, vdevice: VDevice | None) -> tuple[int, str]:
        """Return the number of a virtual device in the module, and its memory scope."""
        if vdevice is None:
            return 0, "global"
        known = self.mod.global_infos.get("vdevice", ())
        for index, info in enumerate(known):
            if info is vdevice:
                return index, vdevice.memory_scope
        raise InternalError(f"{vdevice} is none of the module's {len(known)} virtual devices")


def _name(callee: Expr) -> str:
    match callee:
        case GlobalVar(name_hint=name) | ExternFunc(global_symbol=name):
            return repr(name)
        case _:
            return repr(callee)


@dataclass(frozen=True)
class CallTIRRewrite(ModulePass):
    """Allocate the outputs of kernels explicitly."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with explicit allocations."""
        rewriter = _Rewriter(mod)
        return mod.with_functions(
            {
                gvar: rewriter.visit_expr(func)
                for gvar, func in mod.functions.items()
                if isinstance(func, Function)
            }
        )
