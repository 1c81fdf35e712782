"""Reducers: sums, products, extremes, and ones that users define.

A reducer combines two partial results and knows the value that changes nothing. Several results
at once (a maximum with its position) are one reducer over tuples.
Counterpart: ``tvm.te.comm_reducer``, ``tvm.te.sum`` and its like.

Examples
--------
>>> from relaxlab import te
>>> a = te.placeholder((4, 8), "float32", "a")
>>> k = te.reduce_axis((0, 8), "k")
>>> te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="total").op.reduce_axis[0].var.name
'k'
"""

from collections.abc import Callable, Sequence
from typing import Any

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.prim import IntImm
from relaxlab.runtime.dtype import DataType
from relaxlab.te.tensor import CommReducer, Reduce, TensorSlice
from relaxlab.tirx import IterVar

__all__ = ["comm_reducer", "max", "min", "prod", "sum"]

_TRUE = IntImm(DataType("bool"), 1)


def comm_reducer(
    fcombine: Callable[[Any, Any], Any],
    fidentity: Callable[..., Any],
    name: str = "reduce",
) -> Callable[..., Any]:
    """Make a reducer.

    Parameters
    ----------
    fcombine
        Combines two values, or two tuples of values; must not depend on the order.
    fidentity
        Given the dtype of each value, returns the value(s) that change nothing.
    name
        For messages.

    Returns
    -------
    callable
        ``reducer(expr, axis, where=None, init=None)``: ``expr`` is a value or a tuple of them,
        ``axis`` one or several axes made by :func:`~relaxlab.te.reduce_axis`. Points where
        ``where`` is false take no part; ``init`` is what to begin with. TVM's
        ``create_prim_func`` drops both without a word; here they count. Given plain values
        instead of an axis, ``reducer(a, b, ...)`` combines them.
    """

    def combine(lhs: tuple[Expr, ...], rhs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        if len(lhs) == 1:
            return (fcombine(lhs[0], rhs[0]),)
        return tuple(fcombine(lhs, rhs))

    def identity(dtypes: tuple[DataType, ...]) -> tuple[Expr, ...]:
        values = fidentity(*(str(dtype) for dtype in dtypes))
        return tuple(values) if isinstance(values, tuple | list) else (values,)

    made = CommReducer(name, combine, identity)

    def reducer(
        expr: Any,
        axis: Any,
        where: Any = None,
        init: Any = None,
        *more: Any,
    ) -> Any:
        if not _is_axes(axis):
            values = [axis, *(v for v in (where, init, *more) if v is not None)]
            result = expr
            for value in values:
                result = fcombine(result, value)
            return result
        several = isinstance(expr, tuple | list)
        source = tuple(_scalar(e) for e in (expr if several else (expr,)))
        axes = (axis,) if isinstance(axis, IterVar) else tuple(axis)
        start = () if init is None else tuple(init) if several else (init,)
        begin = tuple(
            _scalar(value, like.dtype)
            for value, like in zip(start, source[: len(start)], strict=True)
        )
        condition = _TRUE if where is None else where
        results = tuple(Reduce(made, source, begin, axes, condition, i) for i in range(len(source)))
        return results if several else results[0]

    reducer.__name__ = name
    reducer.__doc__ = f"Reduce by {name} over one or several axes."
    return reducer


def _is_axes(axis: Any) -> bool:
    return isinstance(axis, IterVar) or (
        isinstance(axis, Sequence) and all(isinstance(a, IterVar) for a in axis)
    )


def _scalar(value: Any, dtype: DataType | None = None) -> Expr:
    if isinstance(value, TensorSlice):
        return value()
    if isinstance(value, bool | int | float):
        return prim_ops.const(value, dtype)
    if not isinstance(value, Expr):
        raise TypeError(f"a reduction needs a scalar expression, got {type(value).__name__}")
    return value


sum = comm_reducer(lambda a, b: a + b, lambda dtype: prim_ops.const(0, dtype), name="sum")
prod = comm_reducer(lambda a, b: a * b, lambda dtype: prim_ops.const(1, dtype), name="prod")
max = comm_reducer(prim_ops.max, prim_ops.min_value, name="max")
min = comm_reducer(prim_ops.min, prim_ops.max_value, name="min")
