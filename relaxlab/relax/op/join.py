"""Joining several tensors and splitting one. Counterpart: part of ``tvm.relax.op.manipulate``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> x = Var("x", TensorType([2, 3]))
>>> concat([x, x], axis=1).attrs
Attrs({'axis': 1})
"""

from collections.abc import Sequence
from itertools import pairwise

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr, Tuple
from relaxlab.ir.node import structural_equal
from relaxlab.ir.prim import IntImm, Max, Min
from relaxlab.ir.type import TupleType, Type
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import (
    Shape,
    attributes,
    dims_of,
    dtype_name,
    normalize_axis,
    op_name,
    tensor_argument,
    tensor_tuple,
)
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.relax.type_relations import dims_equal
from relaxlab.runtime.dtype import DataType

__all__ = ["concat", "meshgrid", "split", "stack"]

_INT64 = DataType("int64")
_ZERO = IntImm(_INT64, 0)


def _common_dtype(types: Sequence[TensorType], message: str) -> DataType | None:
    """Return the dtype all tensors share, None when one is unknown; a mix is refused."""
    known = [ty.dtype for ty in types if ty.dtype is not None]
    for dtype in known:
        if dtype is not known[0]:
            raise TypeError(message.format(dtype_name(known[0]), dtype_name(dtype)))
    return known[0] if len(known) == len(types) else None


def _common_ndim(types: Sequence[TensorType], message: str) -> int:
    """Return the rank that all tensors of known rank share, -1 when none is known."""
    known = [ty.ndim for ty in types if ty.ndim != -1]
    for ndim in known:
        if ndim != known[0]:
            raise ValueError(message.format(known[0], ndim))
    return known[0] if known else -1


def _like(
    types: Sequence[TensorType], shape: Expr | None, dtype: DataType | None, ndim: int
) -> TensorType:
    devices = [ty.vdevice for ty in types if ty.vdevice is not None]
    same = bool(devices) and all(structural_equal(devices[0], other) for other in devices)
    return TensorType(shape, dtype, devices[0] if same else None, -1 if shape is not None else ndim)


def _to_tuple(tensors: Expr | Sequence[Expr]) -> Expr:
    return Tuple(tuple(tensors)) if isinstance(tensors, tuple | list) else tensors  # type: ignore[return-value]  # an Expr


# --- concat -------------------------------------------------------------------------------------


def _infer_concat(call: Call, ctx: InferenceContext) -> Type:
    types = tensor_tuple(call)
    if not types:
        raise ValueError(
            "Concat op expects at least one tensor in the input Tuple. However, the given input "
            "Tuple is empty."
        )
    axis = attributes(call).axis
    ranks = "Concat expects all input tensors to have same ndim. However, the input contains "
    ndim = _common_ndim(types, ranks + "tensors with ndim {} and {}")
    if axis is None:
        if ndim not in (-1, 1):
            raise ValueError(f"{ranks}tensors with ndim 1 and {ndim}")
        ndim, axis = 1, 0
    dtype = _common_dtype(
        types,
        "Concat expects all input tensors to have the same dtype. However, the input contains "
        "tensors with dtype {} and {}",
    )
    if ndim == -1:
        return types[0] if len(types) == 1 else _like(types, None, dtype, -1)
    axis = normalize_axis(op_name(call), axis, ndim)
    if len(types) == 1:
        return types[0]
    shapes = [dims_of(ty) for ty in types]
    dims = _joined(ctx, [shape for shape in shapes if shape is not None], axis)
    if dims is None or None in shapes:
        return _like(types, None, dtype, ndim)
    return _like(types, ShapeExpr(dims), dtype, ndim)


def _joined(ctx: InferenceContext, shapes: Sequence[tuple[Expr, ...]], axis: int) -> Shape:
    if not shapes:
        return None
    first, provable = shapes[0], True
    for other in shapes[1:]:
        for i, (a, b) in enumerate(zip(first, other, strict=True)):
            if i == axis or dims_equal(a, b, ctx.analyzer):
                continue
            if isinstance(a, IntImm) and isinstance(b, IntImm):
                raise ValueError(
                    "Concat expects the input tensors to have the same shape on every dimension "
                    "except the one indicated by the input axis. However, the input contains "
                    f"tensors whose shapes on dimension {i} is {a} and {b}"
                )
            provable = False
    lengths = [shape[axis] for shape in shapes]
    if all(structural_equal(lengths[0], length) for length in lengths[1:]):
        total: Expr = lengths[0] * len(lengths)
    else:
        total = lengths[0]
        for length in lengths[1:]:
            total = total + length
    return (*first[:axis], total, *first[axis + 1 :]) if provable else None


_CONCAT = declare("concat", ("tensors",), _infer_concat, attributes=("axis",))


def concat(tensors: Expr | Sequence[Expr], axis: int | None = 0) -> Call:
    """Join tensors along an axis; None joins 1-D tensors."""
    return call_op(_CONCAT, _to_tuple(tensors), axis=axis)


# --- stack, meshgrid ----------------------------------------------------------------------------


def _infer_stack(call: Call, ctx: InferenceContext) -> Type:
    types = tensor_tuple(call)
    if not types:
        raise ValueError(
            "Stack op expects at least one tensor in the input Tuple. However, the given input "
            "Tuple is empty."
        )
    ndim = _common_ndim(types, "Stack expects all input tensors to have same ndim. Found {} and {}")
    dtype = _common_dtype(
        types, "Stack expects all input tensors to have the same dtype. Found {} and {}"
    )
    if ndim == -1:
        return _like(types, None, dtype, -1)
    axis = normalize_axis(op_name(call), attributes(call).axis or 0, ndim + 1)
    shapes = [dims_of(ty) for ty in types]
    known = [shape for shape in shapes if shape is not None]
    provable = len(known) == len(shapes)
    for other in known[1:]:
        for i, (a, b) in enumerate(zip(known[0], other, strict=True)):
            if dims_equal(a, b, ctx.analyzer):
                continue
            if isinstance(a, IntImm) and isinstance(b, IntImm):
                raise ValueError(
                    "Stack expects all input tensors to have identical shapes. Dimension "
                    f"{i} differs between tensors: {a} vs {b}"
                )
            provable = False
    if not provable:
        return _like(types, None, dtype, ndim + 1)
    count = IntImm(_INT64, len(types))
    dims = (*known[0][:axis], count, *known[0][axis:])
    return _like(types, ShapeExpr(dims), dtype, ndim + 1)


_STACK = declare("stack", ("tensors",), _infer_stack, attributes=("axis",))


def stack(tensors: Expr | Sequence[Expr], axis: int = 0) -> Call:
    """Join tensors of one shape along a new axis."""
    return call_op(_STACK, _to_tuple(tensors), axis=axis)


def _infer_meshgrid(call: Call, ctx: InferenceContext) -> Type:
    types = tensor_tuple(call)
    for ty in types:
        if ty.ndim not in (-1, 1):
            raise ValueError(
                f"meshgrid expects each input tensor to be 1D. However, one has ndim {ty.ndim}"
            )
    dtype = _common_dtype(
        types, "meshgrid expects all input tensors to have the same dtype, got {} and {}"
    )
    lengths: list[Expr] = [dim for ty in types for dim in dims_of(ty) or ()]
    shape = ShapeExpr(tuple(lengths)) if len(lengths) == len(types) else None
    return TupleType(tuple(_like(types, shape, dtype, len(types)) for _ in types))


_MESHGRID = declare("meshgrid", ("tensors",), _infer_meshgrid, attributes=("indexing",))


def meshgrid(tensors: Expr | Sequence[Expr], indexing: str | None = "ij") -> Call:
    """Coordinates of a grid: a tuple of as many tensors of the grid's shape."""
    return call_op(_MESHGRID, _to_tuple(tensors), indexing=indexing)


# --- split --------------------------------------------------------------------------------------


def _infer_split(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    sections = attributes(call).indices_or_sections
    if isinstance(sections, int) and sections < 1:
        raise InternalError(
            "Split op expects the input number of sections to be a positive integer. However, the "
            f"given number of sections is {sections}"
        )
    axis = attributes(call).axis
    if ty.ndim != -1:
        axis = normalize_axis(op_name(call), axis, ty.ndim)
    count = sections if isinstance(sections, int) else len(sections) + 1
    if count == 1:
        return ty
    dims = dims_of(ty)
    if dims is None:
        return TupleType((TensorType(None, ty.dtype, ty.vdevice, ty.ndim),) * count)
    if isinstance(sections, int):
        lengths = _equal_lengths(ctx, dims[axis], sections)
    else:
        lengths = _lengths_between(ctx, dims[axis], sections)
    shapes = (ShapeExpr((*dims[:axis], length, *dims[axis + 1 :])) for length in lengths)
    return TupleType(tuple(TensorType(shape, ty.dtype, ty.vdevice) for shape in shapes))


def _equal_lengths(ctx: InferenceContext, length: Expr, sections: int) -> list[Expr]:
    part = ctx.analyzer.simplify((length + (sections - 1)) // sections)
    last = ctx.analyzer.simplify(length - part * (sections - 1))
    if isinstance(last, IntImm) and last.value < 0:
        # fewer elements than the equal sections would need
        assert isinstance(length, IntImm)
        assert isinstance(part, IntImm)
        total, step = length.value, part.value
        bounds = [min(i * step, total) for i in range(sections + 1)]
        return [IntImm(_INT64, b - a) for a, b in pairwise(bounds)]
    return [part] * (sections - 1) + [last]


def _lengths_between(ctx: InferenceContext, length: Expr, indices: Sequence[int]) -> list[Expr]:
    bounds: list[Expr] = [_ZERO, *(IntImm(_INT64, i) for i in indices), length]
    cut = [_clamped(bound, length) for bound in bounds[:-1]] + [length]
    pairs = pairwise(cut)
    return [ctx.analyzer.simplify(Max(end - begin, _ZERO)) for begin, end in pairs]


def _clamped(bound: Expr, length: Expr) -> Expr:
    assert isinstance(bound, IntImm)
    if bound.value <= 0:
        return _ZERO  # no length is negative
    if isinstance(length, IntImm):
        return IntImm(_INT64, min(bound.value, length.value))
    return Min(bound, length)


_SPLIT = declare("split", ("x",), _infer_split, attributes=("indices_or_sections", "axis"))


def split(x: Expr, indices_or_sections: int | Sequence[int | Expr], axis: int = 0) -> Call:
    """Cut a tensor along an axis.

    Parameters
    ----------
    x
        A tensor.
    indices_or_sections
        A number of equal parts (the last may be shorter), or the positions to cut at.
    axis
        Axis to cut along.

    Raises
    ------
    TypeError
        If a position is no literal integer.
    """
    if isinstance(indices_or_sections, tuple | list):
        for index in indices_or_sections:
            if not isinstance(index, int | IntImm):
                raise TypeError(f"split needs literal positions, got {index}")
        cuts: int | tuple[int, ...] = tuple(int(index) for index in indices_or_sections)
    elif isinstance(indices_or_sections, int | IntImm):
        cuts = int(indices_or_sections)
    else:
        raise TypeError(f"split needs a number of parts or positions, got {indices_or_sections}")
    return call_op(_SPLIT, x, indices_or_sections=cuts, axis=int(axis))
