"""Reshape and its kin: the same elements in order, under another shape.

Counterpart: part of ``tvm.relax.op.manipulate``. A ``-1`` and a ``0`` in the new shape are
resolved when the call is built, so a call always carries a complete shape.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> call = reshape(Var("x", TensorType([2, 6])), (3, -1))
>>> [int(dim) for dim in call.args[1].values]
[3, 4]
"""

from collections.abc import Sequence

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.sym import Analyzer
from relaxlab.ir.type import PrimType, Type
from relaxlab.relax.literals import to_shape
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import (
    dims_of,
    known_dims,
    shape_argument,
    tensor_argument,
    type_of,
)
from relaxlab.relax.op.statistical import element_count
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

__all__ = ["flatten", "reshape"]

_ONE = IntImm(DataType("int64"), 1)


def _infer_reshape(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    target = shape_argument(call, 1, "Reshape requires the input new shape to be Shape")
    old, new = known_dims(ty), target.values
    if old is not None and new is not None:
        before, after = (ctx.analyzer.simplify(element_count(d)) for d in (old, new))
        if isinstance(before, IntImm) and isinstance(after, IntImm) and int(before) != int(after):
            raise ValueError(
                "Reshape expects the new shape to be convertible from the old shape. However, the "
                f"old shape is {ty.shape}, with product {before}, while the new shape is "
                f"{ShapeExpr(new)}, with product {after}"
            )
    # dimensions say more than a variable that stands for them
    shape = call.args[1] if new is None else ShapeExpr(new)
    return TensorType(shape, ty.dtype, ty.vdevice)


_RESHAPE = declare("reshape", ("x", "shape"), _infer_reshape)


def reshape(x: Expr, shape: Expr | Sequence[Expr | int]) -> Call:
    """Give a tensor another shape.

    Parameters
    ----------
    x
        A tensor.
    shape
        The new shape. Written out, it may hold one ``-1`` (what is left over) and zeros (the
        length of the same axis of ``x``); both need the shape of ``x`` to be known.

    Raises
    ------
    InternalError
        If there are several -1, a dimension below -1, or the shape of ``x`` is needed but
        unknown.
    """
    if isinstance(shape, ShapeExpr):
        shape = shape.values
    if isinstance(shape, tuple | list):
        shape = _resolved(x, list(shape))
    return call_op(_RESHAPE, x, to_shape(shape))


def _literal(dim: Expr | int) -> int | None:
    if isinstance(dim, IntImm):
        return dim.value
    return dim if isinstance(dim, int) else None


def _resolved(x: Expr, dims: list[Expr | int]) -> tuple[Expr | int, ...]:
    shown = "(" + ", ".join(map(str, dims)) + ("," if len(dims) == 1 else "") + ")"
    for dim in dims:
        ty = _ONE.ty if isinstance(dim, int) else getattr(dim, "ty", None)
        if not isinstance(ty, PrimType) or not ty.dtype.is_int:
            raise InternalError(
                "Reshape requires the new shape values to be all integers. However, the give new "
                f"shape is {shown}"
            )
    literals = [_literal(dim) for dim in dims]
    if literals.count(-1) > 1:
        raise InternalError(
            'Reshape accepts at most one "-1" in the new shape. However, there are multiple "-1" '
            f"in the given new shape  {shown}"
        )
    if any(value is not None and value < -1 for value in literals):
        raise InternalError(
            'Reshape requires all values in the new shape to be positive except a single "-1". '
            f"However, the given new shape is {shown}"
        )
    if -1 not in literals and 0 not in literals:
        return tuple(dims)
    old = _known_dims(x)
    for i, value in enumerate(literals):
        if value == 0:
            if i >= len(old):
                raise ValueError(
                    f"Reshape: the 0 at position {i} of the new shape {shown} copies an axis that "
                    f"the input does not have; it has {len(old)} dimensions"
                )
            dims[i] = old[i]
    if -1 in literals:
        dims[literals.index(-1)] = _left_over(old, dims)
    return tuple(dims)


def _known_dims(x: Expr) -> tuple[Expr, ...]:
    ty = type_of(x)
    dims = known_dims(ty) if isinstance(ty, TensorType) else None
    if dims is None:
        raise InternalError(
            "Reshape expects the input tensor to have known shape when there is some dimension "
            f"length to infer. However, the given input has no shape. relax.reshape got {x} of "
            f"type {ty!r}; give it one with R.match_cast first"
        )
    return dims


def _left_over(old: tuple[Expr, ...], dims: list[Expr | int]) -> Expr:
    total: Expr = _ONE
    for length in old:
        total = total * length
    given: Expr = _ONE
    for dim in dims:
        if _literal(dim) != -1:
            given = given * dim
    if isinstance(given, IntImm) and given.value == 0:
        raise ValueError("Reshape: -1 is ambiguous when another dimension of the shape is 0")
    quotient: Expr = Analyzer().simplify(total // given)
    return quotient


def _infer_flatten(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    if ty.ndim == 1:
        return ty
    dims = dims_of(ty)
    if dims is None:
        return TensorType(None, ty.dtype, ty.vdevice, 1)
    return TensorType(ShapeExpr((element_count(dims),)), ty.dtype, ty.vdevice)


_FLATTEN = declare("flatten", ("x",), _infer_flatten)


def flatten(x: Expr) -> Call:
    """All elements in one axis."""
    return call_op(_FLATTEN, x)
