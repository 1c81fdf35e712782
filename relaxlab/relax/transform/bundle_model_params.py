"""Pass all weights as one tuple.

Counterpart: ``tvm.relax.transform.BundleModelParams``. Calls inside the module follow, which TVM
forgets.

Examples
--------
>>> BundleModelParams("weights").param_tuple_name
'weights'
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from relaxlab.ir import (
    Call,
    Expr,
    GlobalVar,
    IRModule,
    ModulePass,
    PassContext,
    PrimType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
)
from relaxlab.relax.expr import BindingBlock, Function, SeqExpr, VarBinding
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.normalizer import flatten_blocks
from relaxlab.relax.transform.private_functions import Change, change_private_functions

__all__ = ["BundleModelParams", "bundle_params"]

_NAME = "model_params"


def bundle_params(func: Function, param_tuple_name: str | None = None) -> Function:
    """Return a function whose parameters from ``num_input`` on are one tuple.

    The function itself comes back when it has no attribute ``num_input``, or its weights are such
    a tuple already.
    """
    count = func.attrs.get("num_input")
    name = param_tuple_name or _NAME
    if count is None:
        return func
    weights = func.params[int(count) :]
    if len(weights) == 1 and weights[0].name == name and isinstance(weights[0].ty, TupleType):
        return func
    result: Any = _Bundler(name, func, int(count)).visit_expr(func)
    return result  # type: ignore[no-any-return]  # a function stays one


class _Bundler(ExprMutator):
    def __init__(self, name: str, func: Function, count: int) -> None:
        super().__init__()
        self.func = func
        self.count = count
        weights = func.params[count:]
        self.fields = {param: index for index, param in enumerate(weights)}
        self.bundle = Var(name, TupleType(tuple(p.ty for p in weights if p.ty is not None)))

    def visit_function_(self, op: Function) -> Expr:
        if op is not self.func:
            return super().visit_function_(op)
        params = (*op.params[: self.count], self.bundle)
        # a scalar may be a size in types, which cannot look into the tuple
        scalars = tuple(
            VarBinding(param, TupleGetItem(self.bundle, index), span=param.span)
            for param, index in self.fields.items()
            if isinstance(param.ty, PrimType)
        )
        for binding in scalars:
            del self.fields[binding.var]
        body = op.body
        if scalars:
            blocks = (BindingBlock(scalars), *body.blocks)
            body = SeqExpr(flatten_blocks(blocks), body.body, ty=body.ty, span=body.span)
        new = self.visit_with_new_scope(body, params)
        return self.builder.rebuild_function(op, params, new, op.ret_ty)

    def visit_var_(self, op: Var) -> Expr:
        index = self.fields.get(op)
        if index is None:
            return super().visit_var_(op)
        return self.builder.emit(TupleGetItem(self.bundle, index), op.name)


@dataclass(frozen=True)
class BundleModelParams(ModulePass):
    """Gather the parameters from ``num_input`` on.

    Parameters
    ----------
    param_tuple_name
        Name of the tuple parameter; ``model_params`` when omitted.
    """

    opt_level: ClassVar[int] = 1

    param_tuple_name: str | None = None

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with weights bundled, in every function that has ``num_input``."""

        def change(func: Function, calls: Sequence[Call]) -> Change | None:
            new = bundle_params(func, self.param_tuple_name)
            count = len(new.params) - 1

            def call_of(callee: GlobalVar, call: Call) -> Expr:
                args = (*call.args[:count], Tuple(call.args[count:]))
                return Call(callee, args, call.attrs, call.ty_args, span=call.span)

            return None if new is func else Change(new, call_of)

        return change_private_functions(mod, change, public_too=True)
