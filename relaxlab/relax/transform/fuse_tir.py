"""Make one kernel of each fused function.

Counterpart: ``tvm.relax.transform.FuseTIR``.

Examples
--------
>>> FuseTIR().info.name
'FuseTIR'
"""

from collections.abc import Iterator
from dataclasses import dataclass

from relaxlab.errors import InternalError
from relaxlab.ir import (
    Attrs,
    Call,
    Expr,
    GlobalVar,
    IRModule,
    ModulePass,
    Op,
    Pass,
    PassContext,
    Sequential,
    Tuple,
    TupleType,
)
from relaxlab.relax.expr import Function, ShapeExpr, ShapeType
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.function_table import FunctionTable
from relaxlab.relax.transform.dead_code_elimination import DeadCodeElimination
from relaxlab.relax.transform.expand_tuple_arguments import ExpandTupleArguments
from relaxlab.relax.transform.fused_kernel import FusedKernel, fuse_kernels
from relaxlab.relax.transform.remove_unused_parameters import RemoveUnusedParameters

__all__ = ["FuseTIR"]


@dataclass(frozen=True)
class FuseTIR(Pass):
    """Replace functions with the attribute ``Primitive`` by kernels, and calls of them likewise."""

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Simplify the signatures, fuse, remove what nobody calls any more."""
        steps = (
            ExpandTupleArguments(),
            RemoveUnusedParameters(),
            _FuseTIRInner(),
            DeadCodeElimination(),
        )
        return Sequential(steps).run(mod, ctx)


@dataclass(frozen=True)
class _FuseTIRInner(ModulePass):
    pass_name = "FuseTIRInner"

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        kernels: dict[GlobalVar, tuple[GlobalVar, FusedKernel]] = {}
        for gvar, func in mod.functions.items():
            if isinstance(func, Function) and func.attrs.get("Primitive"):
                kernels[gvar] = (GlobalVar(gvar.name_hint), fuse_kernels(mod, func))
        if not kernels:
            return mod
        rest = mod.clone()
        for gvar in kernels:
            rest.remove(gvar)
        # calls need the type of the new kernels before these are in the module
        FunctionTable(IRModule({gvar: kernel.func for gvar, kernel in kernels.values()}))
        caller = _Caller(rest, kernels)
        updates = {
            gvar: caller.visit_expr(func)
            for gvar, func in rest.functions.items()
            if isinstance(func, Function)
        }
        for gvar, kernel in kernels.values():
            rest.add(gvar, kernel.func)
        for gvar, func in updates.items():
            # TVM puts each function with a binding back, changed or not: their order follows
            old = mod.functions[gvar]
            if func is not old or (isinstance(old, Function) and old.body.blocks):
                rest.add(gvar, func)
        return rest


class _Caller(ExprMutator):
    def __init__(
        self, mod: IRModule, kernels: dict[GlobalVar, tuple[GlobalVar, FusedKernel]]
    ) -> None:
        super().__init__(mod)
        self.kernels = kernels

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call, Call) or not isinstance(call.op, GlobalVar):
            return call
        found = self.kernels.get(call.op)
        if found is None or call.ty is None:
            return call
        gvar, kernel = found
        args = Tuple(tuple(item for arg in call.args for item in _spread(arg)))
        places = kernel.inplace_indices
        inplace = any(place != -1 for place in places)
        name = "relax.call_tir_inplace" if inplace else "relax.call_tir"
        attrs = Attrs({"inplace_indices": places}) if inplace else None
        return self.builder.normalize(
            Call(Op.get(name), (gvar, args), attrs, (call.ty,), span=call.span)
        )


def _spread(arg: Expr) -> Iterator[Expr]:
    """Yield what is passed for an argument: the dimensions of a shape, else itself."""
    match arg.ty:
        case ShapeType():
            values = arg.values if isinstance(arg, ShapeExpr) else arg.ty.values
            if values is None:
                raise InternalError(
                    f"FuseTIR requires that the sizes of a shape argument are known, got {arg} of "
                    f"type {arg.ty!r}"
                )
            yield from values
        case TupleType():
            raise InternalError(
                "All tuple arguments should be expanded before this point in FuseTIR, got "
                f"{arg}; run ExpandTupleArguments first"
            )
        case _:
            yield arg
