"""The two containers a register can hold: shapes and arrays.

A shape is immutable and made of integers; an array (what Relax calls a tuple) holds any values
and is shared by reference, so that ``vm.builtin.tuple_reset_item`` is seen by every holder.
Counterparts: ``tvm_ffi.Shape`` and ``tvm_ffi.Array``.

Examples
--------
>>> ShapeTuple([2, 3]), Array([1, "a"])
(ShapeTuple((2, 3)), (1, 'a'))
>>> Array([1, 2]) == (1, 2) == ShapeTuple((1, 2))
True
"""

import operator
from collections.abc import Iterable
from typing import Any, Self

__all__ = ["Array", "ShapeTuple"]


class ShapeTuple(tuple[int, ...]):
    """A shape: a tuple of Python integers.

    Parameters
    ----------
    dims
        The extents; NumPy integers are converted.

    Raises
    ------
    TypeError
        If an extent is not an integer.
    """

    __slots__ = ()

    def __new__(cls, dims: Iterable[Any] = ()) -> Self:
        """Convert every extent; a shape is returned as it is."""
        if type(dims) is cls:
            return dims
        dims = tuple(dims)
        try:
            return tuple.__new__(cls, map(operator.index, dims))
        except TypeError:
            raise TypeError(f"a shape holds integers only, got {dims!r}") from None

    def __repr__(self) -> str:
        return f"ShapeTuple({tuple.__repr__(self)})"

    def numel(self) -> int:
        """Return the number of elements, 1 for an empty shape."""
        count = 1
        for dim in self:
            count *= dim
        return count


class Array(list[Any]):
    """A Relax tuple: values of any kind, shared by reference.

    It compares equal to any list or tuple with equal elements, as TVM's does.
    """

    __slots__ = ()
    __hash__ = None  # how Python spells "unhashable"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, list | tuple):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __repr__(self) -> str:
        return repr(tuple(self))
