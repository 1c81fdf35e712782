"""Legalization of reductions.

Mean, variance and standard deviation are built of sums here, not in ``topi``, as in TVM.
Counterpart: ``tvm.relax.transform.legalize_ops.statistical``.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.mean").has_attr("FLegalize")
True
"""

from collections.abc import Callable, Sequence
from typing import Any

from relaxlab import topi
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim_ops import const
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import (
    LegalizeFunc,
    attrs_of,
    register_legalize,
)
from relaxlab.te import Tensor
from relaxlab.topi.indices import normalize_axes, normalize_axis, product

__all__: list[str] = []

_Axes = Sequence[int] | None


def mean(x: Tensor, axis: _Axes, keepdims: bool) -> Tensor:
    """Return the sum divided by the number of elements."""
    axes = range(x.ndim) if axis is None else [normalize_axis(a, x.ndim) for a in axis]
    count = product([x.shape[a] for a in axes])  # in the order given
    quotient: Tensor = topi.divide(topi.sum(x, axis, keepdims), count)
    return quotient


def variance(x: Tensor, axis: _Axes, keepdims: bool) -> Tensor:
    """Return the mean of the squared deviations from the mean."""
    deviation = topi.subtract(x, mean(x, axis, keepdims=True))
    return mean(topi.multiply(deviation, deviation), axis, keepdims)


def std(x: Tensor, axis: _Axes, keepdims: bool) -> Tensor:
    """Return the square root of the variance; that of integers in float32."""
    squared = variance(x, axis, keepdims)
    if not squared.dtype.is_float:
        squared = topi.cast(squared, "float32")
    return topi.sqrt(squared)


def median(x: Tensor, axis: _Axes, keepdims: bool) -> Any:
    """Return the middle one of the sorted values (of two middle ones the smaller).

    Over one axis also its position; over several axes, or all, the value alone.
    """
    axes = normalize_axes(axis, x.ndim)
    if axis is not None and len(axes) == 1:
        # the axis as it was given: TVM hands a negative one on to the sort
        given = axis if isinstance(axis, int) else axis[0]
        return _median_along(x, int(given), keepdims)
    kept = [a for a in range(x.ndim) if a not in axes]
    length = product([x.shape[a] for a in axes])
    if kept:
        x = topi.transpose(x, [*kept, *axes])
    shape = [x.shape[i] for i in range(len(kept))]
    value, _ = _median_along(topi.reshape(x, (*shape, length)), -1, keepdims=False)
    return topi.expand_dims(value, list(axes)) if keepdims and axes else value


def _median_along(x: Tensor, axis: int, keepdims: bool) -> list[Tensor]:
    place = normalize_axis(axis, x.ndim)
    middle = (x.shape[place] - 1) // 2
    dims = [const(1, d.dtype) if a == place else d for a, d in enumerate(x.shape)]
    at = topi.full(dims, "int64", middle)
    order = topi.argsort(x, axis, True, "int64")
    found = [
        topi.gather(topi.gather(x, place, order), place, at),
        topi.gather(order, place, at),
    ]
    return found if keepdims else [topi.squeeze(t, [place]) for t in found]


def _reduction(te_func: Callable[..., Any], name: str) -> LegalizeFunc:
    def legalize(bb: BlockBuilder, call: Call) -> Expr:
        attrs = attrs_of(call)
        return bb.call_te(
            te_func, call.args[0], attrs.axis, attrs.keepdims, primfunc_name_hint=name
        )

    return legalize


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "max": topi.max,
    "mean": mean,
    "median": median,
    "min": topi.min,
    "prod": topi.prod,
    "std": std,
    "sum": topi.sum,
    "variance": variance,
}
for _name, _te_func in _REDUCTIONS.items():
    register_legalize(_name)(_reduction(_te_func, _name))
