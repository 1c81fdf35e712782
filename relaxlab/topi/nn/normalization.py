"""Layer and RMS normalization.

Sums are formed in float32 whatever the input is. Counterpart: ``tvm.topi.nn.layer_norm`` and
``rms_norm``.

Examples
--------
>>> from relaxlab import te
>>> x, g = te.placeholder((2, 4), name="x"), te.placeholder((4,), name="g")
>>> rms_norm(x, g, [-1]).name
'T_cast'
"""

from collections.abc import Callable, Sequence

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.topi.broadcast import multiply
from relaxlab.topi.indices import compute_ax, normalize_axes, product
from relaxlab.topi.reduction import sum as reduce_sum

__all__ = ["layer_norm", "rms_norm"]

_FLOAT32 = DataType("float32")


def _cast(x: Tensor, dtype: DataType) -> Tensor:
    return compute_ax(x.shape, lambda *i: prim_ops.cast(dtype, x(*i)), "T_cast", "elemwise")


class _Split:
    """The dimensions that are normalized over, and the others."""

    def __init__(self, data: Tensor, axis: Sequence[int] | int) -> None:
        self.data = data
        self.inner = normalize_axes(axis, data.ndim)
        self.outer = tuple(a for a in range(data.ndim) if a not in self.inner)
        self.outer_shape = tuple(data.shape[a] for a in self.outer)

    def count(self) -> Expr:
        """Return the number of normalized elements, in float32."""
        return prim_ops.cast(_FLOAT32, product([self.data.shape[a] for a in self.inner]))

    def add_up(self, value: Callable[..., Expr], name: str) -> Tensor:
        """Sum ``value(full index, outer index)`` over the normalized dimensions."""
        axes = {a: te.reduce_axis((0, self.data.shape[a]), f"k{a}") for a in self.inner}

        def body(*indices: Expr) -> Expr:
            rest = iter(indices)
            place = [axes[a].var if a in axes else next(rest) for a in range(self.data.ndim)]
            total: Expr = te.sum(value(place, indices), axis=tuple(axes.values()))
            return total

        return compute_ax(self.outer_shape, body, name, "comm_reduce")

    def outer_index(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the part of an index that is not normalized over."""
        return tuple(indices[a] for a in self.outer)

    def inner_index(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the part of an index that is normalized over."""
        return tuple(indices[a] for a in self.inner)


def layer_norm(
    data: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    axis: Sequence[int] | int,
    epsilon: float = 1e-5,
) -> Tensor:
    """Return ``(data - mean) / sqrt(variance + epsilon) * gamma + beta`` over some axes.

    Parameters
    ----------
    data
        What is normalized.
    gamma, beta
        Scale and offset, of the shape of the normalized dimensions; None for none.
    axis
        The dimensions to normalize over.
    epsilon
        Keeps the division from zero.
    """
    split = _Split(data, axis)

    def value(place: Sequence[Expr]) -> Expr:
        return prim_ops.cast(_FLOAT32, data(*place))

    total = split.add_up(lambda place, _: value(place), f"{data.name}_sum")
    mean = compute_ax(
        split.outer_shape, lambda *i: total(*i) / split.count(), f"{data.name}_mean", "elemwise"
    )

    def deviation(place: Sequence[Expr], outer: Sequence[Expr]) -> Expr:
        result: Expr = value(place) - mean(*outer)
        return result

    squares = split.add_up(
        lambda place, outer: deviation(place, outer) * deviation(place, outer),
        f"{data.name}_var_sum",
    )

    def body(*indices: Expr) -> Expr:
        outer, inner = split.outer_index(indices), split.inner_index(indices)
        variance = squares(*outer) / split.count()
        scale = prim_ops.rsqrt(variance + prim_ops.const(epsilon, _FLOAT32))
        result = prim_ops.cast(data.dtype, deviation(indices, outer) * scale)
        if gamma is not None:
            result = result * gamma(*inner)
        return result if beta is None else result + beta(*inner)

    return compute_ax(data.shape, body, "T_layer_norm", "injective")


def rms_norm(
    data: Tensor, weight: Tensor, axis: Sequence[int] | int, epsilon: float = 1e-5
) -> Tensor:
    """Return ``data / sqrt(mean(data * data) + epsilon) * weight`` over some axes."""
    split = _Split(data, axis)
    wide = _cast(data, _FLOAT32)
    squares = reduce_sum(multiply(wide, wide), split.inner)
    scale = compute_ax(
        split.outer_shape,
        lambda *i: prim_ops.rsqrt(squares(*i) / split.count() + prim_ops.const(epsilon, _FLOAT32)),
        "rsqrt",
    )
    factor = _cast(weight, _FLOAT32)
    normal = compute_ax(
        data.shape,
        lambda *i: scale(*split.outer_index(i)) * wide(*i) * factor(*split.inner_index(i)),
        "T_rms_norm",
        "injective",
    )
    return _cast(normal, data.dtype)
