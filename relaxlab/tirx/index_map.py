"""Maps from the index of one layout to that of another.

A map such as ``lambda n, c: (n, c // 4, c % 4)`` says where an element goes. Its inverse says
where one comes from, for which the index is taken apart into digits: ``c // 4`` and ``c % 4`` are
those of ``c`` in a numeral system of base 4. Dimensions that their digits do not fill exactly are
padded at the end. Counterpart: ``tvm.tirx.IndexMap``.

Examples
--------
>>> split = IndexMap.from_func(lambda i: (i // 4, i % 4))
>>> [extent.value for extent in split.map_shape([14])]
[4, 4]
>>> inverse, padding = split.non_surjective_inverse([14])
>>> print(inverse.final_indices[0], "|", padding)
axis0 * T.int64(4) + axis1 | axis0 == T.int64(3) and T.int64(2) <= axis1
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.node import DEFINES, Node
from relaxlab.ir.prim import IntImm, Range
from relaxlab.ir.prim_functor import substitute
from relaxlab.ir.sym import Analyzer
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx.index_digits import Digit, DigitReader, Number, place_values

__all__ = ["IndexMap"]

_INT64 = DataType("int64")
_ONE = IntImm(_INT64, 1)


def _to_shape(shape: Sequence[Expr | int]) -> list[Expr]:
    return [IntImm(_INT64, d) if isinstance(d, int) else d for d in shape]


@dataclass(frozen=True, eq=False, slots=True)
class IndexMap(Node):
    """Where the element at an index goes.

    Attributes
    ----------
    initial_indices
        Variables that stand for the index.
    final_indices
        The index it goes to, in terms of them.
    """

    initial_indices: tuple[Var, ...] = field(metadata=DEFINES)
    final_indices: tuple[Expr, ...]

    @classmethod
    def from_func(cls, mapping: Callable[..., Any], ndim: int | None = None) -> "IndexMap":
        """Make a map of a function of index variables.

        Parameters
        ----------
        mapping
            Returns one expression or several.
        ndim
            How many variables it takes; needed for ``*args`` only.
        """
        names: list[str] = []
        rest: str | None = None
        for name, parameter in inspect.signature(mapping).parameters.items():
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                rest = name
            else:
                names.append(name)
        if rest is not None:
            assert ndim is not None, "ndim must be specified when *args is used"
            names += [f"{rest}_{i}" for i in range(ndim - len(names))]
        initial = tuple(Var(name, _INT64) for name in names)
        found = mapping(*initial)
        final = tuple(found) if isinstance(found, list | tuple) else (found,)
        for expr in final:
            if not isinstance(expr, Expr):
                raise TypeError(
                    "Expected mapping function to return an expression or a list of them.  "
                    f"Instead received {expr} of type {type(expr)}."
                )
        return cls(initial, final)

    def map_indices(self, indices: Sequence[Expr | int]) -> tuple[Expr, ...]:
        """Return where the element at an index goes."""
        analyzer = Analyzer()
        values = dict(zip(self.initial_indices, _to_shape(indices), strict=True))
        return tuple(analyzer.simplify(substitute(e, values)) for e in self.final_indices)

    def map_shape(self, shape: Sequence[Expr | int]) -> tuple[Expr, ...]:
        """Return the shape that a tensor of ``shape`` has afterwards, padding included.

        Raises
        ------
        InternalError
            If an index does not start at 0, or its extent cannot be told.
        """
        dims = _to_shape(shape)
        reader = DigitReader(self.initial_indices, dims)
        numbers = [reader.read(expr) for expr in self.final_indices]
        return tuple(
            self._bound(expr, dims) if number is None else reader.extent(number)
            for expr, number in zip(self.final_indices, numbers, strict=True)
        )

    def _bound(self, expr: Expr, dims: Sequence[Expr]) -> Expr:
        analyzer = Analyzer()
        for var, extent in zip(self.initial_indices, dims, strict=True):
            analyzer.bind(var, Range(IntImm(_INT64, 0), extent))
        bound = analyzer.const_int_bound(expr)
        if bound.min_value != 0 or bound.max_value >= bound.POS_INF:
            raise InternalError(
                f"the mapped index {expr} goes from {bound.min_value} to {bound.max_value}; it "
                "must start at 0 and end somewhere"
            )
        return IntImm(_INT64, bound.max_value + 1)

    def non_surjective_inverse(self, shape: Sequence[Expr | int]) -> tuple["IndexMap", Expr]:
        """Return where an element comes from, and for which indices from nowhere: the padding.

        Parameters
        ----------
        shape
            Of the tensor that is mapped.

        Returns
        -------
        inverse
            Variables are named as the initial ones where an index is kept, else ``axis0``, ...
        padding
            A condition in them; the literal False when there is no padding.

        Raises
        ------
        InternalError
            If the map is no change of numeral systems, or loses elements.
        """
        dims = _to_shape(shape)
        reader = DigitReader(self.initial_indices, dims)
        numbers: list[Number] = []
        for expr in self.final_indices:
            number = reader.read(expr)
            if number is None:
                raise InternalError(f"Could not parse mapping as sum of iterators: {expr}")
            numbers.append(number)
        axes = tuple(
            Var(expr.name if expr in self.initial_indices else f"axis{i}", _INT64)
            for i, expr in enumerate(self.final_indices)
        )
        analyzer = Analyzer()
        values: dict[Digit, Expr] = {}
        for axis, number in zip(axes, numbers, strict=True):
            analyzer.bind(axis, Range(IntImm(_INT64, 0), reader.extent(number)))
            for digit, scale in place_values(number, reader):
                if digit in values:
                    raise InternalError(
                        "Could not parse mapping as sum of iterators: mapped indices are not "
                        "independent"
                    )
                extent = reader.digit_extent(digit)
                value: Expr = prim_ops.floordiv(axis, scale)
                if not analyzer.can_prove_equal(scale * extent, reader.extent(number)):
                    value = prim_ops.floormod(value, extent)
                values[digit] = analyzer.simplify(value)
        sources, padding = reader.invert(values, analyzer)
        return IndexMap(axes, tuple(map(analyzer.simplify, sources))), analyzer.simplify(padding)

    def inverse(self, shape: Sequence[Expr | int]) -> "IndexMap":
        """Return where an element comes from; InternalError when there is padding."""
        inverse, padding = self.non_surjective_inverse(shape)
        if not (isinstance(padding, IntImm) and not padding.value):
            raise InternalError(f"the layout has padding where {padding}")
        return inverse
