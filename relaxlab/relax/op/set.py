"""Operators whose result length depends on values. Counterpart: ``tvm.relax.op.set``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> len(unique(Var("x", TensorType([4]))).args)
5
"""

from typing import Any

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import PrimType, TupleType, Type
from relaxlab.relax.literals import prim_value
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import normalize_axis, tensor_argument
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

__all__ = ["nonzero", "unique"]

_INT64 = DataType("int64")


def _infer_nonzero(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    return TensorType(None, _INT64, ty.vdevice, 2)


_NONZERO = declare("nonzero", ("x",), _infer_nonzero, FCallPacked="relax.run.nonzero")


def nonzero(x: Expr) -> Call:
    """Positions of the elements that are not 0: an int64 tensor (rank, count)."""
    return call_op(_NONZERO, x)


def _infer_unique(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    axis = call.args[5] if len(call.args) > 5 else None
    if isinstance(axis, IntImm) and ty.ndim != -1:
        normalize_axis("relax.unique", axis.value, ty.ndim)
    if ty.ndim == 0:
        values = TensorType(ShapeExpr((1,)), ty.dtype, ty.vdevice)
    else:
        values = TensorType(None, ty.dtype, ty.vdevice, 1 if axis is None else ty.ndim)
    outputs: list[Type] = [values]
    for flag in call.args[2:5]:
        if isinstance(flag, IntImm) and flag.value:
            shape = ShapeExpr((1,)) if ty.ndim == 0 else None
            outputs.append(TensorType(shape, _INT64, ty.vdevice, 1))
    return outputs[0] if len(outputs) == 1 else TupleType(tuple(outputs))


_UNIQUE = declare(
    "unique",
    ("x", "sorted", "return_index", "return_inverse", "return_counts", "axis"),
    _infer_unique,
    optional=1,
    FCallPacked="relax.run.unique",
)


def unique(
    x: Expr,
    sorted: Any = True,
    return_index: Any = False,
    return_inverse: Any = False,
    return_counts: Any = False,
    axis: Any = None,
) -> Call:
    """The different elements, and on request where they are and how often.

    Parameters
    ----------
    x
        A tensor.
    sorted
        Whether they come in ascending order.
    return_index, return_inverse, return_counts
        Which int64 tensors to add; the result is then a tuple.
    axis
        Axis whose slices are compared; None compares elements of the flattened tensor.
    """
    flags = [_flag(v) for v in (sorted, return_index, return_inverse, return_counts)]
    last = [] if axis is None else [prim_value(axis)]
    return call_op(_UNIQUE, x, *flags, *last)


def _flag(value: Any) -> Expr:
    flag = prim_value(value)
    if flag.ty != PrimType(DataType("bool")) and not isinstance(flag, IntImm):
        raise TypeError(f"unique needs booleans, got {value}")
    return flag
