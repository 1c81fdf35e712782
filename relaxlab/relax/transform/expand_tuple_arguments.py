"""Pass the fields of a tuple instead of the tuple, to functions that only this module calls.

Counterpart: ``tvm.relax.transform.ExpandTupleArguments``.

Examples
--------
>>> ExpandTupleArguments().info.name
'ExpandTupleArguments'
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relaxlab.ir import (
    Call,
    Expr,
    GlobalVar,
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
from relaxlab.relax.expr import BindingBlock, Function, SeqExpr, VarBinding
from relaxlab.relax.transform.canonicalize_bindings import CanonicalizeBindings
from relaxlab.relax.transform.dead_code_elimination import DeadCodeElimination
from relaxlab.relax.transform.private_functions import Change, change_private_functions

__all__ = ["ExpandTupleArguments"]


@dataclass(frozen=True)
class ExpandTupleArguments(Pass):
    """Give private functions one parameter per field of a tuple, then clean up."""

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Expand, canonicalize the bindings, remove dead code."""
        steps = (_ExpandTupleArgumentsInner(), CanonicalizeBindings(), DeadCodeElimination())
        return Sequential(steps).run(mod, ctx)


@dataclass(frozen=True)
class _ExpandTupleArgumentsInner(ModulePass):
    pass_name = "ExpandTupleArgumentsInner"

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return change_private_functions(mod, _expanded)


def _expanded(func: Function, calls: Sequence[Call]) -> Change | None:
    if not any(isinstance(param.ty, TupleType) for param in func.params):
        return None
    params: list[Var] = []
    tuples: list[VarBinding] = []

    def expand(param: Var) -> None:
        if not isinstance(param.ty, TupleType):
            params.append(param)
            return
        fields = tuple(
            Var(f"{param.name}_{i}", ty, param.span) for i, ty in enumerate(param.ty.fields)
        )
        for field in fields:
            expand(field)
        # after its own fields, which may be tuples again
        tuples.append(VarBinding(param, Tuple(fields), span=param.span))

    for param in func.params:
        expand(param)
    # the old body's result may be no variable, so that it is bound where the bodies are joined
    blocks = (BindingBlock(tuple(tuples)),)
    body = SeqExpr(blocks, func.body, ty=func.body.ty, span=func.body.span)
    new = Function(params, body, func.ret_ty, func.is_pure, func.attrs, span=func.span)
    return Change(new, _call)


def _call(callee: GlobalVar, call: Call) -> Call:
    return Call(callee, tuple(_fields(call.args)), call.attrs, call.ty_args, span=call.span)


def _fields(args: Sequence[Expr]) -> Iterator[Expr]:
    for arg in args:
        if isinstance(arg.ty, TupleType):
            yield from _fields([TupleGetItem(arg, i) for i in range(len(arg.ty.fields))])
        else:
            yield arg
