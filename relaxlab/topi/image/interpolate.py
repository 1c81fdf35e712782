"""Values between pixels: what weight each neighbour has, and where it is.

A position along an axis is a float expression. An interpolation takes it to taps: how far a
neighbour is from the whole position below, and its weight.

Examples
--------
>>> from relaxlab.ir.expr import Var
>>> [str(tap.weight) for tap in linear(Var("x", "float32"))]
['T.float32(1.0) - (x - T.Cast("float32", T.Cast("int32", T.floor(x))))', 'x - T.Cast("float32", T.Cast("int32", T.floor(x)))']
"""  # noqa: E501  # a doctest

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr

__all__ = ["TAPS", "Tap", "cubic", "cubic_weights", "linear", "nested_sum"]


@dataclass(frozen=True, slots=True)
class Tap:
    """One neighbour: how many pixels behind the whole position, and its weight."""

    offset: int
    weight: Expr


def _fraction(position: Expr) -> Expr:
    whole = prim_ops.cast("float32", prim_ops.cast("int32", prim_ops.floor(position)))
    return prim_ops.subtract(position, whole)


def linear(position: Expr) -> list[Tap]:
    """Return the two neighbours of linear interpolation."""
    fraction = _fraction(position)
    return [Tap(0, prim_ops.const(1.0, "float32") - fraction), Tap(1, fraction)]


def cubic_weights(fraction: Expr, alpha: float) -> list[Expr]:
    """Return the weights of the four neighbours, from one before the position on.

    Source: R. Keys, "Cubic convolution interpolation for digital image processing", 1981.
    """
    t, t2 = fraction, fraction * fraction
    t3 = fraction * fraction * fraction
    return [
        alpha * (t3 - 2 * t2 + t),
        (alpha + 2) * t3 - (alpha + 3) * t2 + 1,
        -(alpha + 2) * t3 + (2 * alpha + 3) * t2 - alpha * t,
        -alpha * t3 + alpha * t2,
    ]


def cubic(position: Expr, alpha: float) -> list[Tap]:
    """Return the four neighbours of cubic interpolation."""
    fraction = position - prim_ops.floor(position)
    weights = cubic_weights(fraction, alpha)
    return [Tap(offset, weight) for offset, weight in zip(range(-1, 3), weights, strict=True)]


def nested_sum(taps: Sequence[Sequence[Tap]], value: Callable[[tuple[int, ...]], Expr]) -> Expr:
    """Return the weighted sum of all neighbours, the innermost axis first.

    Parameters
    ----------
    taps
        For each axis, outermost first, its neighbours.
    value
        The pixel at an offset along each axis.
    """

    def along(axis: int, offsets: tuple[int, ...]) -> Expr:
        if axis == len(taps):
            return value(offsets)
        terms = [along(axis + 1, (*offsets, tap.offset)) * tap.weight for tap in taps[axis]]
        total: Expr = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    return along(0, ())


#: How many neighbours a method looks at along each axis, by its name.
TAPS: Final = {"bilinear": 2, "linear": 2, "cubic": 4, "bicubic": 4}
