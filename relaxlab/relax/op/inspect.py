"""What a tensor says of itself at run time: rank, dtype, extents, strides, offset.

Unlike ``shape_of`` they need no knowledge of the tensor when the program is compiled. TVM has the
operators, but neither Python functions nor ``R`` words for them. Counterpart: the operators
``relax.inspect.*``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> print(tensor_shape_i(Var("x", TensorType(None)), 1))
R.inspect.tensor_shape_i(x, 1)
"""

from collections.abc import Callable

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.op import Op
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import PrimType, Type
from relaxlab.relax.literals import prim_value
from relaxlab.relax.op.declare import InferenceContext, InferType, call_op, declare
from relaxlab.relax.op.inference import dims_of, op_name, type_of
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

__all__ = [
    "tensor_byte_offset",
    "tensor_dtype_bits",
    "tensor_dtype_code",
    "tensor_dtype_lanes",
    "tensor_elem_offset",
    "tensor_ndim",
    "tensor_shape_i",
    "tensor_stride_i",
]

_INT64 = DataType("int64")


def _tensor(call: Call) -> TensorType:
    ty = type_of(call.args[0])
    if not isinstance(ty, TensorType):
        raise TypeError(
            f"Operator {op_name(call)} expects a tensor argument, but argument {call.args[0]} has "
            f"type {ty!r}"
        )
    return ty


def _field(dtype: str) -> InferType:
    result = PrimType(DataType(dtype))

    def infer(call: Call, ctx: InferenceContext) -> Type:
        _tensor(call)
        return result

    return infer


def _infer_along(call: Call, ctx: InferenceContext) -> Type:
    tensor = _tensor(call)
    axis = call.args[1]
    if not isinstance(axis.ty, PrimType) or axis.ty.dtype is not _INT64:
        raise TypeError(
            f"Operator {op_name(call)} expects an int64 scalar as axis, but argument {axis} has "
            f"type {type_of(axis)!r}"
        )
    if isinstance(axis, IntImm):
        if axis.value < 0:
            raise InternalError(f"Expression {call} has the negative axis {axis.value}")
        if tensor.ndim != -1 and axis.value >= tensor.ndim:
            x = call.args[0]
            raise ValueError(
                f"Expression {call} attempts to access {x}.shape[{axis.value}], but {x}.shape "
                f"only has {tensor.ndim} elements"
            )
        dims = dims_of(tensor)
        if dims is not None:
            return PrimType(dims[axis.value].dtype)
    return PrimType(_INT64)


def _declare(name: str, arguments: tuple[str, ...], infer: InferType) -> Op:
    return declare(f"inspect.{name}", arguments, infer, RequiresArgumentShapes=False)


def _read(name: str, dtype: str, summary: str) -> Callable[[Expr], Call]:
    op = _declare(name, ("tensor",), _field(dtype))

    def build(x: Expr) -> Call:
        return call_op(op, x)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = summary
    return build


def _read_along(name: str, summary: str) -> Callable[[Expr, int | Expr], Call]:
    op = _declare(name, ("tensor", "axis"), _infer_along)

    def build(x: Expr, axis: int | Expr) -> Call:
        return call_op(op, x, axis if isinstance(axis, Expr) else prim_value(axis))

    build.__name__ = build.__qualname__ = name
    build.__doc__ = summary
    return build


tensor_ndim = _read("tensor_ndim", "int32", "Number of dimensions.")
tensor_dtype_code = _read("tensor_dtype_code", "uint8", "DLPack's code of the kind of elements.")
tensor_dtype_bits = _read("tensor_dtype_bits", "uint8", "Bits of an element (of one lane).")
tensor_dtype_lanes = _read("tensor_dtype_lanes", "uint16", "Lanes of an element.")
tensor_byte_offset = _read("tensor_byte_offset", "uint64", "Bytes before the first element.")
tensor_elem_offset = _read("tensor_elem_offset", "uint64", "Elements before the first one.")
tensor_shape_i = _read_along("tensor_shape_i", "Extent along an axis, counted from the front.")
tensor_stride_i = _read_along(
    "tensor_stride_i", "Elements to the next index along an axis, counted from the front."
)
