"""Group and instance normalization: statistics per group of channels, and per channel.

Sums are formed in float32 whatever the input is. Counterpart: ``tvm.topi.nn.group_norm`` and
``instance_norm``.

Examples
--------
>>> from relaxlab import te
>>> x, g = te.placeholder((2, 4, 3), name="x"), te.placeholder((4,), name="g")
>>> instance_norm(x, g, None, 1, [2]).name
'T_instance_norm'
"""

from collections.abc import Sequence
from typing import Any

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.topi.indices import compute_ax, normalize_axes, normalize_axis
from relaxlab.topi.transform import reshape

__all__ = ["group_norm", "instance_norm"]

_FLOAT32 = DataType("float32")


def _both_sums(lhs: Any, rhs: Any) -> tuple[Expr, Expr]:
    return lhs[0] + rhs[0], lhs[1] + rhs[1]


def _zeros(first: str, second: str) -> tuple[Expr, Expr]:
    return prim_ops.const(0, first), prim_ops.const(0, second)


_sums = te.comm_reducer(_both_sums, _zeros, name="tuple_sum")


class _Statistics:
    """Mean and variance over some dimensions, from sums of elements and of their squares."""

    def __init__(self, data: Tensor, axes: Sequence[int], name: str) -> None:
        self.data, self.axes = data, tuple(sorted(axes))
        loops = {a: te.reduce_axis((0, data.shape[a]), f"k{a}") for a in self.axes}
        self.kept = [a for a in range(data.ndim) if a not in loops]

        def body(*indices: Expr) -> Any:
            rest = iter(indices)
            place = [loops[a].var if a in loops else next(rest) for a in range(data.ndim)]
            value = prim_ops.cast(_FLOAT32, data(*place))
            return _sums((value, value * value), axis=tuple(loops.values()))

        names = [f"ax{i}" for i in range(len(self.kept))]
        dims = [data.shape[a] for a in self.kept]
        self.total, self.squares = te.compute(dims, body, name, varargs_names=names)

    def normalized(self, indices: Sequence[Expr], epsilon: float, dtype: DataType) -> Expr:
        """Return an element less the mean, divided by the deviation, in ``dtype``."""
        kept = [indices[a] for a in self.kept]
        count: Expr = prim_ops.const(1, _FLOAT32)
        for axis in self.axes:
            count = count * prim_ops.cast(_FLOAT32, self.data.shape[axis])
        mean: Expr = self.total(*kept) / count
        variance: Expr = self.squares(*kept) / count - mean * mean
        deviation: Expr = prim_ops.cast(_FLOAT32, self.data(*indices)) - mean
        result: Expr = deviation * prim_ops.rsqrt(variance + prim_ops.const(epsilon, _FLOAT32))
        return prim_ops.cast(dtype, result)


def group_norm(
    data: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
) -> Tensor:
    """Normalize over some dimensions and over the channels of each group.

    Parameters
    ----------
    data
        What is normalized.
    gamma, beta
        Scale and offset, one per channel; None for none.
    num_groups
        Into how many groups the channels are divided.
    channel_axis
        The dimension of the channels.
    axes
        The other dimensions to normalize over.
    epsilon
        Keeps the division from zero.
    """
    place = normalize_axis(channel_axis, data.ndim)
    others = [a + (a > place) for a in normalize_axes(axes, data.ndim)]
    per_group = prim_ops.floordiv(data.shape[place], num_groups)
    groups = prim_ops.const(num_groups, data.shape[place].dtype)
    dims = [*data.shape[:place], groups, per_group, *data.shape[place + 1 :]]
    grouped = reshape(data, dims)
    if data.dtype is not _FLOAT32:
        narrow = grouped
        grouped = compute_ax(
            dims, lambda *i: prim_ops.cast(_FLOAT32, narrow(*i)), "T_cast", "elemwise"
        )
    statistics = _Statistics(grouped, [place + 1, *others], f"{data.name}_red_temp")
    scale = None if gamma is None else reshape(gamma, (groups, per_group))
    offset = None if beta is None else reshape(beta, (groups, per_group))

    def body(*indices: Expr) -> Expr:
        result = statistics.normalized(indices, epsilon, data.dtype)
        channel = indices[place : place + 2]
        if scale is not None:
            result = result * scale(*channel)
        return result if offset is None else result + offset(*channel)

    normal = compute_ax(dims, body, "T_group_norm", "injective")
    return reshape(normal, data.shape)


def instance_norm(
    data: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
) -> Tensor:
    """Normalize over some dimensions, which leave out the channels; parameters as group_norm.

    Raises
    ------
    TypeError
        If the data is neither float16 nor float32.
    """
    if str(data.dtype) not in ("float16", "float32"):
        raise TypeError(f"instance_norm: only float16 and float32 data, got {data.dtype}")
    place = normalize_axis(channel_axis, data.ndim)
    over = normalize_axes(axes, data.ndim)
    statistics = _Statistics(data, over, f"{data.name}_red_temp")

    def body(*indices: Expr) -> Expr:
        result = statistics.normalized(indices, epsilon, data.dtype)
        if gamma is not None:
            result = result * gamma(indices[place])
        return result if beta is None else result + beta(indices[place])

    return compute_ax(data.shape, body, "T_instance_norm", "injective")
