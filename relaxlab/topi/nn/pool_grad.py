"""Gradients of pooling.

Counterpart: ``tvm.topi.nn.pool_grad``.

Examples
--------
>>> from relaxlab import te
>>> g, x = te.placeholder((1, 1, 2, 2), name="g"), te.placeholder((1, 1, 4, 4), name="x")
>>> pool_grad(g, x, (2, 2), (2, 2), (0, 0, 0, 0), "avg").name
'T_pool_grad'
"""

from collections.abc import Sequence
from typing import Any

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.sym import Analyzer
from relaxlab.te import Tensor
from relaxlab.tirx import IterVar
from relaxlab.topi.indices import compute_ax, ravel_index
from relaxlab.topi.nn.pooling import pad_ax, spatial_places

__all__ = ["pool_grad"]


class _Backward:
    """Which windows an element of the image was in."""

    def __init__(
        self,
        grad: Tensor,
        data: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        layout: str,
    ) -> None:
        self.grad, self.data, self.kernel, self.stride = grad, data, kernel, stride
        self.places = spatial_places(layout)
        self.head = list(padding[:2])
        self.tail = [
            p + s - 1 if ceil_mode else p for p, s in zip(padding[2:], stride, strict=True)
        ]
        simplify = Analyzer().simplify
        #: Extents of the result of pooling.
        self.dims = list(data.shape)
        for i, place in enumerate(self.places):
            room = data.shape[place] - kernel[i] + self.head[i] + self.tail[i]
            self.dims[place] = simplify(prim_ops.indexdiv(room, stride[i]) + 1)
        self.windows = [
            te.reduce_axis((0, (k + s - 1) // s), name)
            for k, s, name in zip(kernel, stride, ("wh", "ww"), strict=True)
        ]

    def padded(self, value: Expr) -> Tensor:
        """Return the image with its padding, or itself when there is none."""
        if not any((*self.head, *self.tail)):
            return self.data
        before, after = [0] * self.data.ndim, [0] * self.data.ndim
        for i, place in enumerate(self.places):
            before[place], after[place] = self.head[i], self.tail[i]
        return pad_ax(self.data, before, after, value)

    def outputs(self, indices: Sequence[Expr]) -> list[Expr]:
        """Return the index, in the result, of the current window around an element."""
        place = list(indices)
        for i, at in enumerate(self.places):
            shifted = indices[at] + self.head[i]
            place[at] = prim_ops.div(shifted, self.stride[i]) - self.windows[i].var
        return place

    def first(self, i: int, index: Expr) -> Expr:
        """Return the first window that an element is in, along the ``i``-th dimension."""
        k, s, pad = self.kernel[i], self.stride[i], self.head[i]
        beyond = prim_ops.less(index, k - pad)
        return prim_ops.select(
            beyond, prim_ops.const(0, index.dtype), prim_ops.div(index - (k - pad), s) + 1
        )


def pool_grad(
    grad: Tensor,
    data: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> Tensor:
    """Return the gradient of ``pool`` towards its data.

    Parameters
    ----------
    grad
        The gradient towards the result.
    data
        What was pooled.
    kernel, stride, padding, pool_type, ceil_mode, layout, count_include_pad
        As given to ``pool``.

    Raises
    ------
    ValueError
        If ``pool_type`` is neither.
    """
    backward = _Backward(grad, data, kernel, stride, padding, ceil_mode, layout)
    if pool_type == "avg":
        return _average(backward, count_include_pad)
    if pool_type != "max":
        raise ValueError(f"pool_grad: pool_type must be max or avg, got {pool_type!r}")
    return _maximum(backward)


def _better(lhs: Any, rhs: Any) -> tuple[Expr, Expr]:
    (left_at, left), (right_at, right) = lhs, rhs
    ahead = prim_ops.greater(left, right)
    first = prim_ops.logical_and(prim_ops.equal(left, right), prim_ops.less(left_at, right_at))
    at = prim_ops.select(prim_ops.logical_or(ahead, first), left_at, right_at)
    return at, prim_ops.select(ahead, left, right)


def _worst(at_dtype: str, dtype: str) -> tuple[Expr, Expr]:
    return prim_ops.const(-1, at_dtype), prim_ops.min_value(dtype)


_argmax = te.comm_reducer(_better, _worst, name="argmax")


def _maximum(backward: _Backward) -> Tensor:
    data, grad = backward.data, backward.grad
    axes: list[IterVar] = [
        te.reduce_axis((0, k), name) for k, name in zip(backward.kernel, ("dh", "dw"), strict=True)
    ]
    padded = backward.padded(prim_ops.min_value(data.dtype))

    def largest(*indices: Expr) -> Any:
        place = list(indices)
        for i, at in enumerate(backward.places):
            place[at] = indices[at] * backward.stride[i] + axes[i].var
        position = ravel_index(place, padded.shape)
        return _argmax((position, padded(*place)), axis=axes)

    names = [f"ax{i}" for i in range(grad.ndim)]
    positions, _ = te.compute(
        backward.dims, largest, "maxpool_grad_argmax", "commreduce_idx", varargs_names=names
    )

    def body(*indices: Expr) -> Any:
        place = list(indices)
        for i, at in enumerate(backward.places):
            place[at] = indices[at] + backward.head[i]
        position = ravel_index(place, padded.shape)
        out = backward.outputs(indices)
        conditions = [
            prim_ops.greater_equal(out[at], backward.first(i, indices[at]))
            for i, at in enumerate(backward.places)
        ]
        conditions.append(prim_ops.equal(positions(*out), position))
        value = prim_ops.if_then_else(
            prim_ops.all(*conditions), grad(*out), prim_ops.const(0, data.dtype)
        )
        return te.sum(value, axis=backward.windows)

    return compute_ax(data.shape, body, "T_pool_grad", "pool_grad_max")


def _average(backward: _Backward, count_include_pad: bool) -> Tensor:
    data, grad = backward.data, backward.grad

    def count(out: Sequence[Expr]) -> Expr:
        if count_include_pad:
            return prim_ops.const(backward.kernel[0] * backward.kernel[1])
        total: Expr | None = None
        for i, at in enumerate(backward.places):
            start = out[at] * backward.stride[i] - backward.head[i]
            end = prim_ops.min(start + backward.kernel[i], data.shape[at])
            inside = end - prim_ops.max(start, 0)
            total = inside if total is None else total * inside
        assert total is not None, "a pooled image has spatial dimensions"
        return prim_ops.max(total, 1)

    def body(*indices: Expr) -> Any:
        out = backward.outputs(indices)
        conditions: list[Expr] = []
        for i, at in enumerate(backward.places):
            conditions.append(prim_ops.greater_equal(out[at], backward.first(i, indices[at])))
            conditions.append(prim_ops.less(out[at], backward.dims[at]))
        share = prim_ops.div(grad(*out), prim_ops.cast(data.dtype, count(out)))
        value = prim_ops.if_then_else(
            prim_ops.all(*conditions), share, prim_ops.const(0, data.dtype)
        )
        return te.sum(value, axis=backward.windows)

    return compute_ax(data.shape, body, "T_pool_grad", "pool_grad_avg")
