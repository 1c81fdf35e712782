"""Tell kernels which of their arguments are weights, so that a tuner may lay them out anew.

Counterpart: ``tvm.relax.transform.AttachAttrLayoutFreeBuffers``.

Examples
--------
>>> AttachAttrLayoutFreeBuffers().info.name
'AttachAttrLayoutFreeBuffers'
"""

from dataclasses import dataclass
from typing import Any

from relaxlab.ir import (
    Call,
    DictAttrs,
    Expr,
    GenericConst,
    GlobalVar,
    IRModule,
    ModulePass,
    Op,
    PassContext,
    Tuple,
    replace,
)
from relaxlab.relax.expr import Function
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.transform.dead_code_elimination import DeadCodeElimination
from relaxlab.tirx import PrimFunc

__all__ = ["AttachAttrLayoutFreeBuffers"]

_ATTRIBUTE = "layout_free_buffers"


class _Marker(ExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod = mod
        self.weights: set[Expr] = set()

    def mark(self, func: Function) -> Function:
        count = int(func.attrs.get("num_input", len(func.params)))
        self.weights = set(func.params[count:])
        new: Any = self.visit_expr(func)
        return new  # type: ignore[no-any-return]  # a function stays one

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        match call:
            case Call(op=Op(name="relax.call_tir"), args=(GlobalVar() as gvar, args, *rest)):
                return self.marked(call, gvar, args, tuple(rest))
            case _:
                return call

    def marked(self, call: Call, gvar: GlobalVar, args: Expr, rest: tuple[Expr, ...]) -> Expr:
        kernel = self.mod.functions.get(gvar)
        if not isinstance(kernel, PrimFunc) or not isinstance(args, Tuple):
            return call
        free = tuple(
            index
            for index, arg in enumerate(args.fields)
            if isinstance(arg, GenericConst) or arg in self.weights
        )
        attrs = DictAttrs(dict(sorted({**kernel.attrs, _ATTRIBUTE: free}.items())))
        new = self.builder.add_func(replace(kernel, attrs=attrs), gvar.name_hint)
        return self.builder.normalize(replace(call, args=(new, args, *rest), ty=None))


@dataclass(frozen=True)
class AttachAttrLayoutFreeBuffers(ModulePass):
    """Note in ``layout_free_buffers`` which arguments of a kernel are constants or weights.

    Weights are the parameters from the attribute ``num_input`` of a function on. Each kernel is
    copied for every set of such arguments; what nobody calls any more is removed.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with marked kernels, ``mod`` itself if it calls none."""
        marker = _Marker(mod)
        changed = {
            gvar: marker.mark(func)
            for gvar, func in mod.functions.items()
            if isinstance(func, Function)
        }
        if all(mod.functions[gvar] is func for gvar, func in changed.items()):
            return mod
        for gvar, func in changed.items():
            marker.builder.update_func(gvar, func)
        return DeadCodeElimination()(marker.builder.get())
