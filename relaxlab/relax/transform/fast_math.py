"""Trade a little precision of exp, tanh, erf and softmax for speed.

Counterpart: ``tvm.relax.transform.FastMathTransform``.

Examples
--------
>>> FastMathTransform().info.name
'FastMathTransform'
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from relaxlab import topi
from relaxlab.ir import Call, Expr, IRModule, ModulePass, Op, PassContext
from relaxlab.relax.expr import Function
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.type import TensorType
from relaxlab.te import Tensor

__all__ = ["FastMathTransform"]

_FAST: Final[dict[str, Callable[..., Tensor]]] = {
    "relax.erf": topi.fast_erf,
    "relax.exp": topi.fast_exp,
    "relax.nn.softmax": topi.fast_softmax,
    "relax.tanh": topi.fast_tanh,
}


class _Rewriter(ExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return call
        function = _FAST.get(call.op.name)
        ty = call.args[0].ty if function is not None else None
        # of an unknown shape no kernel can be made
        if function is None or not isinstance(ty, TensorType) or ty.get_shape() is None:
            return call
        options = () if call.attrs is None else (call.attrs.axis,)
        made: Expr = self.builder.call_te(function, call.args[0], *options)
        return self.builder.normalize(made)


@dataclass(frozen=True)
class FastMathTransform(ModulePass):
    """Give exp, tanh, erf and softmax kernels that approximate them (see ``topi.fast_math``)."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with fast kernels, ``mod`` itself if it has no such operator."""
        rewriter = _Rewriter(mod)
        changed = False
        for gvar, func in mod.functions_items():
            if isinstance(func, Function):
                new: Any = rewriter.visit_expr(func)
                if new is not func:
                    rewriter.builder.update_func(gvar, new)
                    changed = True
        return rewriter.builder.get() if changed else mod
