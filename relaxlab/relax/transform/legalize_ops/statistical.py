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
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import (
    LegalizeFunc,
    attrs_of,
    register_legalize,
)
from relaxlab.te import Tensor
from relaxlab.topi.indices import normalize_axes, product

__all__: list[str] = []

_Axes = Sequence[int] | None


def mean(x: Tensor, axis: _Axes, keepdims: bool) -> Tensor:
    """Return the sum divided by the number of elements."""
    count = product([x.shape[a] for a in normalize_axes(axis, x.ndim)])
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
    "min": topi.min,
    "prod": topi.prod,
    "std": std,
    "sum": topi.sum,
    "variance": variance,
}
for _name, _te_func in _REDUCTIONS.items():
    register_legalize(_name)(_reduction(_te_func, _name))
