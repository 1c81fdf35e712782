"""Conversions of the element type. Counterpart: ``tvm.relax.op.datatype``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> astype(Var("x", TensorType([2])), "int32").attrs.dtype
DataType("int32")
"""

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.type import PrimType, Type
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import attributes, tensor_argument, with_dtype
from relaxlab.runtime.dtype import DataType

__all__ = ["astype", "to_dtype", "wrap_param"]


def to_dtype(dtype: DataType | PrimType | str | None) -> DataType | None:
    """Return a dtype attribute; None stays None."""
    if isinstance(dtype, PrimType):
        return dtype.dtype
    return None if dtype is None or dtype == "" else DataType(dtype)


def _infer_cast(call: Call, ctx: InferenceContext) -> Type:
    return with_dtype(tensor_argument(call, 0), attributes(call).dtype)


_ASTYPE = declare("astype", ("x",), _infer_cast, attributes=("dtype",))
_WRAP_PARAM = declare("wrap_param", ("data",), _infer_cast, attributes=("dtype",))


def astype(x: Expr, dtype: DataType | PrimType | str) -> Call:
    """Convert each element; float to integer truncates, anything to bool is ``!= 0``."""
    return call_op(_ASTYPE, x, dtype=to_dtype(dtype))


def wrap_param(data: Expr, dtype: DataType | PrimType | str = "float32") -> Call:
    """Convert a model parameter; mixed precision marks parameters so."""
    return call_op(_WRAP_PARAM, data, dtype=to_dtype(dtype))
