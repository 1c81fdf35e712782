"""Writing into a copy of a tensor at indices.

Counterpart: ``tvm.topi.scatter_elements``, ``scatter_nd``, ``index_put`` and ``slice_scatter``.

Examples
--------
>>> from relaxlab import te
>>> x, y = te.placeholder((4, 2), name="x"), te.placeholder((2, 2), name="y")
>>> i = te.placeholder((1, 2), "int64", name="i")
>>> scatter_nd(x, i, y, "update").op.name
'scatter_nd_generic'
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr, Var
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.tirx import ForKind, Stmt, buffer_type, decl_buffer, seq
from relaxlab.topi.broadcast import add as add_tensors
from relaxlab.topi.broadcast import (
    broadcast_to,
    equal,
    floor_divide,
    floor_mod,
    greater_equal,
    less,
    logical_and,
    subtract,
)
from relaxlab.topi.creation import arange, full, where
from relaxlab.topi.flat import flat_load, flat_store, loop, sequential
from relaxlab.topi.indices import (
    broadcast_shape,
    is_one,
    normalize_axis,
    product,
    same_extent,
    static_extent,
)
from relaxlab.topi.math import clip, identity
from relaxlab.topi.slicing import take
from relaxlab.topi.transform import reshape

__all__ = ["index_put", "scatter_elements", "scatter_nd", "slice_scatter"]

_INT64 = DataType("int64")
_Update = Callable[[Expr, Expr], Expr]

_UPDATES: Final[dict[str, _Update]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: prim_ops.div(old + new, prim_ops.const(2, old.dtype)),
    "min": prim_ops.min,
    "max": prim_ops.max,
}


def _update(name: str, reduction: str, allowed: Sequence[str]) -> _Update:
    if reduction not in allowed:
        raise ValueError(f"{name}: reduction must be one of {', '.join(allowed)}, got {reduction}")
    return _UPDATES[reduction]


def _counted(index: Expr, extent: Expr) -> Expr:
    """Return an index counted from the front; a negative one counts from the end."""
    negative = prim_ops.cast(_INT64, prim_ops.less(index, prim_ops.const(0, index.dtype)))
    result: Expr = prim_ops.cast(_INT64, index) + negative * extent
    return result


def _copy(data: Var, result: Var, kind: ForKind) -> Stmt:
    i = Var("v", _INT64)
    count = product(buffer_type(data).shape)
    return loop(i, count, flat_store(result, i, flat_load(data, i)), kind)


def _extern(
    data: Tensor, others: Sequence[Tensor], body: Callable[..., Stmt], name: str, **options: Any
) -> Tensor:
    result: Tensor = te.extern(
        [data.shape],
        [data, *others],
        body,
        name=name,
        dtype=[data.dtype],
        out_buffers=[decl_buffer(data.shape, data.dtype, "out_buf")],
        **options,
    )[0]
    return result


def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "update"
) -> Tensor:
    """Write each update where its index says on one axis, and its own place on the others.

    Parameters
    ----------
    data
        What is copied first.
    indices, updates
        Tensors of one shape; a negative index counts from the end.
    axis
        The axis of the indices.
    reduction
        ``"update"``, ``"add"``, ``"mul"``, ``"mean"``, ``"min"`` or ``"max"`` of old and new.
    """
    combine = _update("scatter_elements", reduction, list(_UPDATES))
    place = normalize_axis(axis, data.ndim)
    before, after = product(indices.shape[:place]), product(indices.shape[place + 1 :])
    behind = product(data.shape[place + 1 :])
    length, count = data.shape[place], indices.shape[place]

    def body(inputs: Sequence[Var], outputs: Sequence[Var]) -> Stmt:
        source, chosen, new = inputs
        result = outputs[0]
        row, k = Var("v", _INT64), Var("v", _INT64)
        outer, inner = prim_ops.floordiv(row, after), prim_ops.floormod(row, after)
        origin = outer * (count * after) + inner + k * after
        index = _counted(flat_load(chosen, origin), length)
        to = outer * (length * behind) + inner + index * behind
        value = combine(flat_load(result, to), flat_load(new, origin))
        scatter = loop(k, count, flat_store(result, to, value))
        rows = loop(row, before * after, scatter, ForKind.PARALLEL)
        return sequential(seq([_copy(source, result, ForKind.PARALLEL), rows]))

    return _extern(data, [indices, updates], body, "scatter_elements_generic")


def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, reduction: str = "update") -> Tensor:
    """Write each update where several indices together say.

    Parameters
    ----------
    data
        What is copied first.
    indices
        Of shape (number of indices, ...); that number must be a literal.
    updates
        Of the remaining shape of the indices, then that of ``data`` without the indexed dimensions.
    reduction
        ``"update"``, ``"add"``, ``"mul"``, ``"min"`` or ``"max"`` of old and new.

    Raises
    ------
    ValueError
        If the first extent of ``indices`` is no literal.
    """
    combine = _update("scatter_nd", reduction, ["update", "add", "mul", "min", "max"])
    depth = static_extent(indices.shape[0])
    if depth is None:
        raise ValueError("scatter_nd: how many indices name an element must be known")
    count, inside = product(indices.shape[1:]), product(data.shape[depth:])

    def body(inputs: Sequence[Var], outputs: Sequence[Var]) -> Stmt:
        source, chosen, new = inputs
        result = outputs[0]
        row, k = Var("v", _INT64), Var("v", _INT64)
        to: Expr = k
        stride = inside
        for i in reversed(range(depth)):
            index = prim_ops.cast(_INT64, flat_load(chosen, row + i * count if i else row))
            to = to + stride * index
            stride = stride * data.shape[i]
        value = combine(flat_load(result, to), flat_load(new, row * inside + k))
        scatter = loop(k, inside, flat_store(result, to, value), ForKind.PARALLEL)
        rows = loop(row, count, scatter)
        return sequential(seq([_copy(source, result, ForKind.SERIAL), rows]))

    in_buffers = [
        _anywhere(data, data.name),
        decl_buffer(indices.shape, indices.dtype, indices.name),
        _anywhere(updates, updates.name),
    ]
    return _extern(data, [indices, updates], body, "scatter_nd_generic", in_buffers=in_buffers)


def _anywhere(tensor: Tensor, name: str) -> Var:
    offset = Var("elem_offset", tensor.shape[0].dtype if tensor.shape else DataType("int32"))
    return decl_buffer(tensor.shape, tensor.dtype, name, elem_offset=offset)


def index_put(
    data: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Write values where index tensors, broadcast to one shape, together say.

    Parameters
    ----------
    data
        What is copied first.
    indices
        One tensor per dimension of ``data``; a negative index counts from the end.
    values
        Of the shape of the broadcast indices, or broadcast to it.
    accumulate
        Whether to add instead.

    Raises
    ------
    ValueError
        If there is not one index tensor for each dimension.
    """
    if len(indices) != data.ndim:
        raise ValueError(
            f"index_put needs one index tensor per dimension of {data.ndim}, got {len(indices)}"
        )
    shape: tuple[Expr, ...] = ()
    for index in indices:
        shape, _, _ = broadcast_shape(shape, index.shape)
    combine = _UPDATES["add" if accumulate else "update"]

    def body(inputs: Sequence[Var], outputs: Sequence[Var]) -> Stmt:
        source, *chosen, new = inputs
        result = outputs[0]
        i = Var("v", _INT64)
        to: Expr | None = None
        stride: Expr | None = None
        for buffer, extent in reversed(list(zip(chosen, data.shape, strict=True))):
            position = _broadcast_position(i, shape, buffer_type(buffer).shape)
            index = _counted(flat_load(buffer, position), extent)
            to = index if to is None or stride is None else to + index * stride
            stride = extent if stride is None else stride * extent
        assert to is not None, "there is one index at least"
        given = buffer_type(new).shape
        same = len(given) == len(shape) and all(map(same_extent, given, shape))
        origin = i if same else _broadcast_position(i, shape, given)
        value = combine(flat_load(result, to), flat_load(new, origin))
        scatter = loop(i, product(shape), flat_store(result, to, value), ForKind.PARALLEL)
        return sequential(seq([_copy(source, result, ForKind.PARALLEL), scatter]))

    return _extern(data, [*indices, values], body, "index_put_generic")


def _broadcast_position(position: Expr, shape: Sequence[Expr], operand: Sequence[Expr]) -> Expr:
    """Return the position in an operand for one in the shape that it is broadcast to."""
    result: Expr | None = None
    stride: Expr = prim_ops.const(1, _INT64)
    offset = len(shape) - len(operand)
    for axis in reversed(range(len(shape))):
        extent = operand[axis - offset] if axis >= offset else None
        if extent is not None and not is_one(extent):
            index = prim_ops.floormod(position, shape[axis])
            result = index * stride if result is None else result + index * stride
            stride = stride * extent
        position = prim_ops.floordiv(position, shape[axis])
    return prim_ops.const(0, _INT64) if result is None else result


def slice_scatter(
    data: Tensor, src: Tensor, start: Expr, end: Expr, step: Expr, axis: int
) -> Tensor:
    """Replace a slice of one axis.

    Parameters
    ----------
    data
        What is copied.
    src
        What the slice becomes.
    start, end, step
        The slice.
    axis
        Its axis.
    """
    place = normalize_axis(axis, data.ndim)
    extent = data.shape[place]
    if static_extent(src.shape[place]) == 0:
        return identity(data)
    mask: Any = full((extent,), "bool", True)
    length = static_extent(extent)
    last = extent if length is None else prim_ops.const(length)
    positions = arange(prim_ops.const(0, last.dtype), last, prim_ops.const(1, last.dtype), "int64")
    if static_extent(start) != 0:
        mask = logical_and(mask, greater_equal(positions, start))
    if not same_extent(end, extent):
        mask = logical_and(mask, less(positions, end))
    if static_extent(step) != 1:
        moved = floor_mod(subtract(positions, start), step)
        mask = logical_and(mask, equal(moved, prim_ops.const(0, "int64")))
    dims = [prim_ops.const(1, extent.dtype)] * data.ndim
    dims[place] = extent
    mask = broadcast_to(reshape(mask, dims), data.shape)
    shifted = add_tensors(subtract(positions, start), step - 1)
    # TVM limits this to the extent of the data, and reads beyond the slice's replacement
    origin = clip(floor_divide(shifted, step), prim_ops.const(0, "int64"), src.shape[place] - 1)
    return where(mask, take(src, origin, place), data)
