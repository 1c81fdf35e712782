"""Element-wise operators of three tensors. Counterpart: ``tvm.relax.op.ternary``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> x = Var("x", TensorType([2]))
>>> len(ewise_fma(x, x, x).args)
3
"""

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.type import Type
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import dims_of, dtype_name, tensor_argument
from relaxlab.relax.type import TensorType
from relaxlab.relax.type_relations import shapes_equal

__all__ = ["ewise_fma"]


def _infer_ewise_fma(call: Call, ctx: InferenceContext) -> Type:
    first, second, third = (tensor_argument(call, i) for i in range(3))
    types = (first, second, third)
    ranks = {ty.ndim for ty in types} - {-1}
    if len(ranks) > 1:
        raise ValueError("The 3 arguments of EwiseFMA must have the same number of dimensions")
    if not first.dtype is second.dtype is third.dtype:
        names = [dtype_name(ty.dtype) for ty in types]
        raise TypeError(
            f"Data types {names[0]}, {names[1]}, and {names[2]} must be equal for EwiseFMA"
        )
    if first.shape is not None and first.shape is second.shape is third.shape:
        return first
    dims = [known for known in map(dims_of, types) if known is not None]
    if not all(shapes_equal(dims[0], other, ctx.analyzer) for other in dims[1:]):
        raise ValueError("The 3 arguments of EwiseFMA must have the same shape")
    if len(dims) == 3:
        return first
    return TensorType(None, first.dtype, first.vdevice, max(ranks, default=-1))


_EWISE_FMA = declare("ewise_fma", ("x1", "x2", "x3"), _infer_ewise_fma)


def ewise_fma(x1: Expr, x2: Expr, x3: Expr) -> Call:
    """Element-wise ``x1 * x2 + x3`` of tensors of one shape and dtype."""
    return call_op(_EWISE_FMA, x1, x2, x3)
