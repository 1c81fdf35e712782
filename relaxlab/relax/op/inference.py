"""What the type inference of many operators shares: argument checks, axes, broadcasting.

Messages are TVM's, except that an operator is called by its name (TVM prints the whole operator
object there). Counterpart: the rules U-any, U-float, BCAST and RED of compiler.md, section 3.7.

Examples
--------
>>> normalize_axis("relax.sum", -1, 3)
2
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from relaxlab.errors import InternalError
from relaxlab.ir.attrs import Attrs
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.global_info import VDevice
from relaxlab.ir.node import structural_equal
from relaxlab.ir.op import Op
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import PrimType, TupleType, Type
from relaxlab.relax.op.declare import InferenceContext
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import ShapeType, TensorType
from relaxlab.relax.type_relations import dims_equal
from relaxlab.runtime.dtype import DataType

__all__ = [
    "BFLOAT_AND_FLOAT",
    "Shape",
    "attributes",
    "binary_dtype",
    "broadcast_shapes",
    "broadcast_vdevice",
    "dims_of",
    "dtype_name",
    "known_dims",
    "normalize_axes",
    "normalize_axis",
    "op_name",
    "operand_shape",
    "require_float",
    "shape_argument",
    "tensor_argument",
    "tensor_tuple",
    "type_of",
    "with_dtype",
]

#: Dimensions, or None when they are not known.
Shape: TypeAlias = tuple[Expr, ...] | None

#: DLPack's codes of IEEE floats and bfloat16: what "float dtype" means to operators.
BFLOAT_AND_FLOAT = (2, 4)

_ONE = IntImm(DataType("int64"), 1)


def op_name(call: Call) -> str:
    """Return the name of the operator called, such as ``"relax.add"``."""
    if not isinstance(call.op, Op):
        raise TypeError(f"expected a call of an operator, got {call}")
    return call.op.name


def attributes(call: Call) -> Attrs:
    """Return the attributes of a call of an operator that has some."""
    if call.attrs is None:
        raise TypeError(f"a call of {op_name(call)} needs its attributes, got none")
    return call.attrs


def type_of(expr: Expr) -> Type:
    """Return the type of a normalized expression; InternalError when it has none yet."""
    if expr.ty is None:
        raise InternalError(
            f"The type is not populated, check if you have normalized the expr: {expr}"
        )
    return expr.ty


def dtype_name(dtype: DataType | None) -> str:
    """Return a dtype as messages show it, ``T.float32``."""
    return "None" if dtype is None else f"T.{dtype}"


def tensor_argument(call: Call, index: int) -> TensorType:
    """Return the type of a tensor argument; TypeError for anything else."""
    ty = type_of(call.args[index])
    if isinstance(ty, TensorType):
        return ty
    assert isinstance(call.op, Op)
    name = call.op.arguments[index] if index < len(call.op.arguments) else "args"
    raise TypeError(
        f"Operator {call.op.name} requires argument {index} ({name}) to be a tensor.  However, "
        f"the argument {call.args[index]} is instead of type {ty!r}"
    )


def tensor_tuple(call: Call, index: int = 0) -> tuple[TensorType, ...]:
    """Return the types in a tuple-of-tensors argument; TypeError for anything else."""
    ty = type_of(call.args[index])
    if isinstance(ty, TupleType):
        fields = tuple(field for field in ty.fields if isinstance(field, TensorType))
        if len(fields) == len(ty.fields):
            return fields
    raise TypeError(
        f"{op_name(call)} expects the input to be a Tuple of Tensors. However, the given input "
        f"is {ty!r}"
    )


def shape_argument(call: Call, index: int, message: str) -> ShapeType:
    """Return the type of a shape argument; TypeError starting with ``message`` otherwise."""
    ty = type_of(call.args[index])
    if isinstance(ty, ShapeType):
        return ty
    raise TypeError(f"{message}. However, the given one is {ty!r}")


def dims_of(ty: TensorType) -> Shape:
    """Return the dimensions of a tensor when its shape is written out."""
    return ty.shape.values if isinstance(ty.shape, ShapeExpr) else None


def known_dims(ty: TensorType) -> Shape:
    """Return the dimensions of a tensor, also through a variable that stands for its shape.

    Checks look that far. Results mostly do not, as in TVM, where :func:`dims_of` decides.
    """
    shape = ty.shape
    if isinstance(shape, Var) and isinstance(shape.ty, ShapeType):
        return shape.ty.values
    return dims_of(ty)


def require_float(what: str, dtype: DataType | None, given: str = "input") -> None:
    """Refuse a known dtype that is no float; ``what`` starts the message."""
    if dtype is not None and dtype.code not in BFLOAT_AND_FLOAT:
        raise TypeError(
            f"{what} to have float dtype. However, the given {given} dtype is {dtype_name(dtype)}"
        )


def with_dtype(ty: TensorType, dtype: DataType | None) -> TensorType:
    """Return a tensor type with another dtype; itself when it has that one."""
    if ty.dtype is dtype:
        return ty
    return TensorType(ty.shape, dtype, ty.vdevice, -1 if ty.shape is not None else ty.ndim)


def normalize_axis(name: str, axis: int, ndim: int) -> int:
    """Return ``axis`` counted from the front.

    Raises
    ------
    ValueError
        If it is not in ``[-ndim, ndim)``.
    """
    if not -ndim <= axis < ndim:
        raise ValueError(
            f"In {name}, the input axis {axis} is out of range. The input tensor has {ndim} "
            f"dimensions, so axis should be in range [{-ndim}, {ndim})."
        )
    return axis + ndim if axis < 0 else axis


def normalize_axes(name: str, axes: Iterable[Any], ndim: int) -> list[int]:
    """Return axes counted from the front; repeated ones are refused."""
    result: list[int] = []
    for axis in axes:
        positive = normalize_axis(name, int(axis), ndim)
        if positive in result:
            raise ValueError(
                f"In {name}, the input axes is required to be non-repetitive. However, there are "
                f"multiple given axes referring to axis {positive}"
            )
        result.append(positive)
    return result


def broadcast_shapes(
    call: Call, ctx: InferenceContext, first: Sequence[Expr], second: Sequence[Expr]
) -> Shape:
    """Return the broadcast of two shapes, or None when it cannot be decided yet.

    Raises
    ------
    ValueError
        If two literal dimensions differ and neither is 1.
    """
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    result = list(longer)
    for back in range(1, len(shorter) + 1):
        a, b = first[-back], second[-back]
        if isinstance(a, IntImm) and a.value == 1:
            result[-back] = b
        elif (isinstance(b, IntImm) and b.value == 1) or dims_equal(a, b, ctx.analyzer):
            result[-back] = a
        elif isinstance(a, IntImm) and isinstance(b, IntImm):
            raise ValueError(
                f"In {op_name(call)}, the first input shape at dim {len(first) - back} is {a} and "
                f"the second input shape at dim {len(second) - back} is {b}, which are not "
                "broadcastable."
            )
        else:
            return None
    return tuple(result)


def operand_shape(expr: Expr) -> tuple[Shape, int]:
    """Return (dimensions, rank) of a broadcast operand; a scalar acts as one element."""
    ty = type_of(expr)
    if not isinstance(ty, TensorType):
        return (_ONE,), 1
    return known_dims(ty), ty.ndim


def binary_dtype(call: Call, lhs: Expr, rhs: Expr) -> DataType | None:
    """Return the common dtype of two operands, the left one's; None when either is unknown.

    Raises
    ------
    TypeError
        If both are known, differ, and neither is bool.
    """
    a, b = _element(lhs), _element(rhs)
    if a is None or b is None:
        return None
    if a is not b and not (a.is_bool or b.is_bool):
        raise TypeError(
            "Binary operators must have the same datatype for both operands.  However, "
            f"{call} uses datatype {dtype_name(a)} on the LHS (Type of {lhs.ty!r}), and datatype "
            f"{dtype_name(b)} on the RHS (Type of {rhs.ty!r})."
        )
    return a


def _element(expr: Expr) -> DataType | None:
    return expr.ty.dtype if isinstance(expr.ty, TensorType | PrimType) else None


def broadcast_vdevice(call: Call, *types: Type) -> VDevice | None:
    """Return the virtual device that tensor operands share; different ones are refused."""
    found: VDevice | None = None
    for ty in types:
        vdevice = ty.vdevice if isinstance(ty, TensorType) else None
        if found is None:
            found = vdevice
        elif vdevice is not None and not structural_equal(found, vdevice):
            raise ValueError(
                "Binary operators with Tensor arguments must have the same VDevice for both "
                f"operands.  However, {call} has a LHS on VDevice {found} and a RHS on VDevice "
                f"{vdevice}"
            )
    return found
