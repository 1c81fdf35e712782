"""Drop fields of results that nobody reads, where only this module calls the function.

Counterpart: ``tvm.relax.transform.RemoveUnusedOutputs``.

Examples
--------
>>> RemoveUnusedOutputs().info.name
'RemoveUnusedOutputs'
"""

from collections.abc import Sequence
from dataclasses import dataclass

from relaxlab.ir import (
    Call,
    Expr,
    GlobalVar,
    IntImm,
    IRModule,
    ModulePass,
    Pass,
    PassContext,
    Sequential,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
)
from relaxlab.relax.expr import Function, SeqExpr, VarBinding
from relaxlab.relax.expr_functor import ExprVisitor
from relaxlab.relax.transform.canonicalize_bindings import CanonicalizeBindings
from relaxlab.relax.transform.dead_code_elimination import DeadCodeElimination
from relaxlab.relax.transform.private_functions import Change, change_private_functions
from relaxlab.runtime.dtype import DataType

__all__ = ["RemoveUnusedOutputs"]

_INT64 = DataType("int64")


@dataclass(frozen=True)
class RemoveUnusedOutputs(Pass):
    """Let private functions return only what is read, then clean up.

    A single field that is left is returned by itself.
    """

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Change the results, canonicalize the bindings, remove dead code."""
        steps = (_RemoveUnusedOutputsInner(), CanonicalizeBindings(), DeadCodeElimination())
        return Sequential(steps).run(mod, ctx)


@dataclass(frozen=True)
class _RemoveUnusedOutputsInner(ModulePass):
    pass_name = "RemoveUnusedOutputsInner"

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        reads = _Reads()
        for func in mod.functions.values():
            if isinstance(func, Function):
                reads.visit_expr(func)

        def change(func: Function, calls: Sequence[Call]) -> Change | None:
            used = reads.of(calls)
            if not isinstance(func.ret_ty, TupleType) or used is None:
                return None
            if not used or len(used) == len(func.ret_ty.fields):
                return None
            return _returning(func, func.ret_ty, used)

        return change_private_functions(mod, change)


class _Reads(ExprVisitor):
    """Which fields of the results of calls are read; a call all of which is used is ``whole``."""

    def __init__(self) -> None:
        self.calls: dict[Var, Call] = {}
        self.fields: dict[Call, set[int]] = {}
        self.whole: set[Call] = set()

    def of(self, calls: Sequence[Call]) -> list[int] | None:
        """Return the fields that any of the calls' users read; None for all."""
        if any(call in self.whole or call not in self.fields for call in calls):
            return None
        return sorted({index for call in calls for index in self.fields[call]})

    def visit_var_binding_(self, binding: VarBinding) -> None:
        match binding.value:
            case Call(op=GlobalVar()) as call:
                self.calls[binding.var] = call
                self.fields[call] = set()
                super().visit_var_binding_(binding)
            case TupleGetItem(tuple_value=Var() as source, index=index) if source in self.calls:
                self.fields[self.calls[source]].add(index)
            case _:
                super().visit_var_binding_(binding)

    def visit_var_(self, op: Var) -> None:
        if op in self.calls:
            self.whole.add(self.calls[op])


def _returning(func: Function, ret_ty: TupleType, used: Sequence[int]) -> Change:
    """Return the change to a function that gives only some fields."""
    result = func.body.body
    fields = [
        result.fields[i] if isinstance(result, Tuple) else TupleGetItem(result, i) for i in used
    ]
    types = tuple(ret_ty.fields[i] for i in used)
    single = len(used) == 1
    value = fields[0] if single else Tuple(tuple(fields))
    body = SeqExpr(func.body.blocks, value, ty=value.ty, span=func.body.span)
    new = Function(
        func.params,
        body,
        types[0] if single else TupleType(types),
        func.is_pure,
        func.attrs,
        span=func.span,
    )
    places = {index: place for place, index in enumerate(used)}

    def call_of(callee: GlobalVar, call: Call) -> Expr:
        given = Call(callee, call.args, call.attrs, call.ty_args, span=call.span)
        # nobody reads what stands for the other fields
        filler = IntImm(_INT64, -1)
        parts: list[Expr] = []
        for index in range(len(ret_ty.fields)):
            if index not in places:
                parts.append(filler)
            else:
                parts.append(given if single else TupleGetItem(given, places[index]))
        return Tuple(tuple(parts))

    return Change(new, call_of)
