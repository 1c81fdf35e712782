"""Drop reshapes that others undo.

Counterpart: ``tvm.relax.transform.RemoveRedundantReshape``.

Examples
--------
>>> RemoveRedundantReshape().info.name
'RemoveRedundantReshape'
"""

from dataclasses import dataclass

from relaxlab.ir import Call, Expr, IRModule, PassContext
from relaxlab.relax.expr import Function, ShapeExpr
from relaxlab.relax.transform.operand_rewriter import OperandRewriter, shape_of
from relaxlab.relax.transform.pass_base import FunctionPass
from relaxlab.relax.type_relations import shapes_equal

__all__ = ["RemoveRedundantReshape"]


@dataclass(frozen=True)
class RemoveRedundantReshape(FunctionPass):
    """Reshape the first of a chain of reshapes; not at all if it has the shape already."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function with fewer reshapes, itself if none is redundant."""
        return _Rewriter().rewrite_function(func)


class _Rewriter(OperandRewriter):
    def rewrite(self, call: Call, name: str) -> Expr:
        if name != "relax.reshape":
            return call
        data, shape = call.args
        before = self.defined_as(data, "relax.reshape")
        if before is not None:
            data = before.args[0]  # which is no reshape: those were rewritten when they came
        dims = shape_of(data)
        wanted = shape.values if isinstance(shape, ShapeExpr) else None
        if dims is None or wanted is None:
            same = False
        else:
            same = shapes_equal(dims, wanted, self.builder.analyzer)
        if same:
            return data
        return call if data is call.args[0] else Call(call.op, (data, shape), call.attrs)
