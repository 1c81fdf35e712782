"""Softmax and its logarithm, shifted by the maximum so that nothing overflows.

Counterpart: ``tvm.topi.nn.softmax``.

Examples
--------
>>> from relaxlab import te
>>> softmax(te.placeholder((2, 3), name="x")).name
'T_softmax_norm'
"""

from collections.abc import Callable, Sequence

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.te import Tensor
from relaxlab.tirx import IterVar
from relaxlab.topi.indices import normalize_axis

__all__ = ["log_softmax", "softmax", "softmax_by_steps"]


class _Along:
    """One axis of a tensor: how to loop over it and how to leave it out."""

    def __init__(self, x: Tensor, axis: int) -> None:
        self.place = normalize_axis(axis, x.ndim)
        self.extent = x.shape[self.place]
        self.outer = (*x.shape[: self.place], *x.shape[self.place + 1 :])

    def axis(self) -> IterVar:
        """Return a fresh loop over the axis."""
        return te.reduce_axis((0, self.extent), "k")

    def insert(self, indices: Sequence[Expr], index: Expr) -> tuple[Expr, ...]:
        """Return the full index with ``index`` on the axis."""
        return (*indices[: self.place], index, *indices[self.place :])

    def drop(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the index without the axis."""
        return (*indices[: self.place], *indices[self.place + 1 :])


def _maximum(x: Tensor, along: _Along) -> Tensor:
    k = along.axis()
    result: Tensor = te.compute(
        along.outer,
        lambda *i: te.max(x(*along.insert(i, k.var)), axis=k),
        name="T_softmax_maxelem",
    )
    return result


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """Return ``exp(x - max) / sum(exp(x - max))`` along an axis."""
    along = _Along(x, axis)
    largest = _maximum(x, along)
    exps = te.compute(
        x.shape, lambda *i: prim_ops.exp(x(*i) - largest(*along.drop(i))), name="T_softmax_exp"
    )
    return _normalized(x, along, exps)


def softmax_by_steps(x: Tensor, axis: int, exp: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a softmax whose exponential is a tensor computation of its own."""
    along = _Along(x, axis)
    largest = _maximum(x, along)
    delta = te.compute(x.shape, lambda *i: x(*i) - largest(*along.drop(i)), name="T_softmax_delta")
    return _normalized(x, along, exp(delta))


def _normalized(x: Tensor, along: _Along, exps: Tensor) -> Tensor:
    k = along.axis()
    total = te.compute(
        along.outer,
        lambda *i: te.sum(exps(*along.insert(i, k.var)), axis=k),
        name="T_softmax_expsum",
    )
    result: Tensor = te.compute(
        x.shape,
        lambda *i: exps(*i) / total(*along.drop(i)),
        name="T_softmax_norm",
        attrs={"axis": along.place},
    )
    return result


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """Return ``x - max - log(sum(exp(x - max)))`` along an axis."""
    along = _Along(x, axis)
    largest = _maximum(x, along)
    k = along.axis()

    def exps(*indices: Expr) -> Expr:
        value: Expr = x(*along.insert(indices, k.var)) - largest(*indices)
        total: Expr = te.sum(prim_ops.exp(value), axis=k)
        return total

    total = te.compute(along.outer, exps)
    result: Tensor = te.compute(
        x.shape,
        lambda *i: x(*i) - largest(*along.drop(i)) - prim_ops.log(total(*along.drop(i))),
        attrs={"axis": along.place},
    )
    return result
