"""What a piece of generated text stands for: a scalar, or an array over some axes.

Counterpart: the values that TVM's code generators pass around.

Examples
--------
>>> transposed("x", (1, 0), (0, 1)), transposed("x", (0, 1), (0, 1))
('x.T', 'x')
"""

from collections.abc import Sequence
from dataclasses import dataclass

from relaxlab.runtime.dtype import DataType

__all__ = ["Value", "transposed"]


@dataclass(frozen=True, slots=True)
class Value:
    """The text of a value.

    Attributes
    ----------
    code
        An atom: a name, a call or a subscript.
    axes
        Places of the axes it varies along; none for a scalar.
    dtype
        Its element type.
    fresh
        Whether it is a named array that nothing else refers to, so it may be overwritten.
    plain
        The array before it was aligned with the space; its dimensions follow ``order``.
    order
        Places of the axes, dimension by dimension, of ``plain``.
    """

    code: str
    axes: tuple[int, ...]
    dtype: DataType
    fresh: bool = False
    plain: str = ""
    order: tuple[int, ...] = ()


def transposed(code: str, order: Sequence[int], wanted: Sequence[int]) -> str:
    """Return the text of an array with its dimensions moved from ``order`` to ``wanted``."""
    if list(order) == list(wanted):
        return code
    moves = [list(order).index(place) for place in wanted]
    return code + (".T" if moves == [1, 0] else f".transpose({', '.join(map(str, moves))})")
