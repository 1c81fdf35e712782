"""Making tensors: given ones, computed ones, and ones that a statement writes.

Counterpart: ``tvm.te.operation``.

Examples
--------
>>> from relaxlab import te
>>> a = te.placeholder((4, 8), "float32", "a")
>>> b = te.compute((8, 4), lambda i, j: a[j, i], name="b")
>>> b.op.axis[0].var.name, [t.name for t in b.op.input_tensors]
('i', ['a'])
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.node import Node, children
from relaxlab.ir.prim import IntImm, Range
from relaxlab.ir.prim_ops import const
from relaxlab.runtime.dtype import DataType
from relaxlab.te.tensor import (
    ComputeOp,
    ExternOp,
    PlaceholderOp,
    Reduce,
    Tensor,
    TensorSlice,
    to_shape,
)
from relaxlab.tirx import IterVar, IterVarType, Stmt, decl_buffer

__all__ = ["compute", "extern", "placeholder", "reduce_axis", "var"]


def placeholder(
    shape: Sequence[Expr | int] | Expr | int,
    dtype: DataType | str = "float32",
    name: str = "placeholder",
) -> Tensor:
    """Return a tensor given from outside.

    Parameters
    ----------
    shape
        Extents; plain ints become int32 literals.
    dtype
        Element type.
    name
        Name of the buffer it becomes.
    """
    return PlaceholderOp(name, to_shape(shape), DataType(dtype)).output(0)


def var(name: str = "tindex", dtype: DataType | str = "int32") -> Var:
    """Return a scalar variable, such as an unknown extent."""
    return Var(name, DataType(dtype))


def reduce_axis(
    dom: tuple[Expr | int, Expr | int] | Range, name: str = "rv", thread_tag: str = ""
) -> IterVar:
    """Return an axis to reduce over.

    Parameters
    ----------
    dom
        ``(begin, end)``, the end excluded, or a range.
    name
        Name of the loop.
    thread_tag
        GPU thread it is bound to, if any.
    """
    if not isinstance(dom, Range):
        begin, end = dom
        dtype = next((d.dtype for d in (end, begin) if isinstance(d, Expr)), DataType("int32"))
        start = IntImm(dtype, begin) if isinstance(begin, int) else begin
        stop = IntImm(dtype, end) if isinstance(end, int) else end
        dom = Range(start, stop - start)
    return IterVar(dom, Var(name, dom.extent.dtype), IterVarType.COMM_REDUCE, thread_tag)


def compute(
    shape: Sequence[Expr | int] | Expr | int,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """Return a tensor whose elements are computed from their index.

    Parameters
    ----------
    shape
        Extents.
    fcompute
        Called once with one variable per dimension; returns the value of that element, or
        several values for several tensors. The names of its parameters name the loops; those of
        ``*args`` are ``i0, i1, ...`` (or ``varargs_names``).
    name
        Name of the block and the buffer.
    tag
        A word about the kind of computation.
    attrs
        Annotations of the block.
    varargs_names
        Names for the loops of ``*args``.

    Returns
    -------
    Tensor or tuple of Tensor
        One per value that ``fcompute`` returned.

    Raises
    ------
    ValueError
        If ``fcompute`` does not take one index per dimension, or a reduction is part of a
        larger expression.
    TypeError
        If ``fcompute`` returns something that is no scalar expression.
    """
    dims = to_shape(shape)
    names = _axis_names(fcompute, len(dims), varargs_names, name)
    axis = tuple(
        IterVar(Range(IntImm(dim.dtype, 0), dim), Var(axis_name, dim.dtype))
        for dim, axis_name in zip(dims, names, strict=True)
    )
    body = fcompute(*(a.var for a in axis))
    several = isinstance(body, list | tuple)
    values = tuple(_to_value(value, name) for value in (body if several else (body,)))
    for value in values:
        _check_reductions(value, name)
    op = ComputeOp(name, axis, values, tag=tag, attrs=dict(attrs or {}))
    return op.outputs if several else op.output(0)


def _axis_names(
    fcompute: Callable[..., Any],
    ndim: int,
    varargs_names: Sequence[str] | None,
    name: str,
) -> list[str]:
    spec = inspect.getfullargspec(fcompute)
    if spec.varkw or spec.kwonlyargs or spec.defaults:
        raise ValueError(
            f"compute {name!r}: the function may only take one positional parameter per "
            "dimension, without defaults or keywords"
        )
    fixed = [arg for arg in spec.args if arg != "self"] if inspect.ismethod(fcompute) else spec.args
    if spec.varargs is not None:
        rest = ndim - len(fixed)
        names = list(varargs_names) if varargs_names is not None else [f"i{i}" for i in range(rest)]
        fixed = [*fixed, *names]
    if len(fixed) != ndim:
        raise ValueError(
            f"compute {name!r} has {ndim} dimension(s), but its function takes {len(fixed)}; "
            "give it one parameter per dimension, or *indices"
        )
    return list(fixed)


def _to_value(value: Any, name: str) -> Expr:
    if isinstance(value, TensorSlice):
        value = value()
    if isinstance(value, Tensor) and value.ndim == 0:
        value = value()
    if isinstance(value, bool | int | float):
        value = const(value)
    if not isinstance(value, Expr):
        raise TypeError(
            f"compute {name!r}: expected a scalar expression for an element, got "
            f"{type(value).__name__}"
        )
    return value


def _check_reductions(value: Expr, name: str) -> None:
    """Refuse a reduction inside an expression: it would need a loop in the middle of it."""
    pending: list[Node] = [value]
    while pending:
        for child in children(pending.pop()):
            if isinstance(child, Reduce):
                raise ValueError(
                    f"compute {name!r}: a reduction must be the whole value of an element; put "
                    "it into a compute of its own and use that tensor here"
                )
            pending.append(child)


def extern(
    shape: Sequence[Any],
    inputs: Sequence[Tensor],
    fcompute: Callable[[Sequence[Var], Sequence[Var]], Stmt],
    name: str = "extern",
    dtype: DataType | str | Sequence[DataType | str] | None = None,
    in_buffers: Sequence[Var] | None = None,
    out_buffers: Sequence[Var] | None = None,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Return tensors that a statement writes.

    Parameters
    ----------
    shape
        Shape of the result, or a list of shapes for several.
    inputs
        Tensors that the statement reads.
    fcompute
        Called with the input and the output buffers; returns the statement.
    name
        Name of the block.
    dtype
        Element type of the result(s); that of the inputs when they all agree.
    in_buffers, out_buffers
        Buffers to use, where names, alignment or offsets matter; by default they may begin
        anywhere (``elem_offset``).
    tag, attrs
        As for :func:`compute`.

    Returns
    -------
    Tensor or tuple of Tensor
        One per shape.

    Raises
    ------
    ValueError
        If ``dtype`` is None and the inputs have not one dtype.
    """
    several = bool(shape) and not isinstance(shape[0], Expr | int)
    shapes = [to_shape(s) for s in (shape if several else (shape,))]
    if dtype is None:
        found = {tensor.dtype for tensor in inputs}
        if len(found) != 1:
            raise ValueError(
                f"extern {name!r} needs a dtype: its inputs have {sorted(map(str, found))}"
            )
        dtype = found.pop()
    dtypes = [dtype] * len(shapes) if isinstance(dtype, str | DataType) else list(dtype)
    sources = (
        tuple(in_buffers)
        if in_buffers is not None
        else tuple(_anywhere(t.shape, t.dtype, t.name) for t in inputs)
    )
    results = (
        tuple(out_buffers)
        if out_buffers is not None
        else tuple(_anywhere(s, d, name) for s, d in zip(shapes, dtypes, strict=True))
    )
    body = fcompute(sources, results)
    op = ExternOp(name, tuple(inputs), sources, results, body, tag=tag, attrs=dict(attrs or {}))
    return op.outputs if several else op.output(0)


def _anywhere(shape: Sequence[Expr], dtype: DataType | str, name: str) -> Var:
    index = shape[0].dtype if shape else DataType("int32")
    return decl_buffer(shape, dtype, name, elem_offset=Var("elem_offset", index))
