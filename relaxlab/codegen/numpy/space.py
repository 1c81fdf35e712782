"""The iteration space of a loop nest, and how an index moves through a buffer in it.

A nest runs over a box: one axis per loop (or block variable). Vectorising means that each axis
becomes an axis of NumPy arrays; for that an index must be understood as a linear function of the
axes, and be proved to stay inside the buffer. Counterpart: ``tvm.sym.detect_iter_map`` and the
bound checks of TVM's passes, in spirit.

Examples
--------
>>> from relaxlab.ir import IntImm, Var
>>> i, j = Var("i", "int64"), Var("j", "int64")
>>> steps, rest = linear(i * 4 + j + 3, {i: 0, j: 1})
>>> steps, rest.value
({0: 4, 1: 1}, 3)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.prim import Add, Cast, IntImm, Mul, Range, Sub
from relaxlab.ir.prim_functor import post_order_visit, substitute
from relaxlab.ir.sym import Analyzer, IntervalSet

__all__ = ["Axis", "Space", "linear", "variables_of"]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: ``low <= var < high``; ``reduce`` where its iterations are folded into one."""

    var: Var
    low: Expr
    high: Expr
    reduce: bool = False


def variables_of(expr: Expr) -> set[Var]:
    """Return the variables that occur in an expression."""
    found: set[Var] = set()
    post_order_visit(expr, lambda n: found.add(n) if isinstance(n, Var) else None)
    return found


def linear(expr: Expr, axes: Mapping[Var, int]) -> tuple[dict[int, int], Expr] | None:
    """Return ``expr`` as literal steps per axis plus a rest without axes, if it is linear."""
    match expr:
        case Var() if expr in axes:
            return {axes[expr]: 1}, prim_ops.const(0, expr.dtype)
        case Add(a=a, b=b) | Sub(a=a, b=b):
            left, right = linear(a, axes), linear(b, axes)
            if left is None or right is None:
                return None
            sign = 1 if isinstance(expr, Add) else -1
            steps = dict(left[0])
            for axis, step in right[0].items():
                steps[axis] = steps.get(axis, 0) + sign * step
            operator = prim_ops.add if sign == 1 else prim_ops.subtract
            return {a: s for a, s in steps.items() if s}, operator(left[1], right[1])
        case Mul(a=a, b=IntImm(value=scale)) | Mul(a=IntImm(value=scale), b=a):
            inner = linear(a, axes)
            if inner is None:
                return None
            steps = {axis: step * scale for axis, step in inner[0].items() if scale}
            return steps, prim_ops.multiply(inner[1], scale)
        case Cast(dtype=dtype, value=value) if dtype.is_int and value.dtype.is_int:
            inner = linear(value, axes)
            return None if inner is None else (inner[0], prim_ops.cast(dtype, inner[1]))
        case _:
            return None if any(v in axes for v in variables_of(expr)) else ({}, expr)


class Space:
    """A box of axes, with what can be proved about expressions of its variables.

    Parameters
    ----------
    axes
        Outermost first.
    sizes
        Symbolic sizes that may occur; none is negative.
    loops
        Python loops around the space: their variables are numbers inside it.
    """

    def __init__(
        self, axes: Sequence[Axis], sizes: Sequence[Var] = (), loops: Sequence[Axis] = ()
    ) -> None:
        self.axes = tuple(axes)
        self.sizes = tuple(sizes)
        self.loops = tuple(loops)
        self.place = {axis.var: i for i, axis in enumerate(self.axes)}
        self.analyzer = Analyzer()
        for var in self.sizes:
            self.analyzer.mark_global_non_neg_value(var)
        one = {}
        self._domains: dict[Var, IntervalSet] = {}
        for axis in (*self.loops, *self.axes):
            extent = self.simplify(prim_ops.subtract(axis.high, axis.low))
            if isinstance(extent, IntImm) and extent.value == 1 and axis in self.axes:
                one[axis.var] = axis.low
            else:
                self.analyzer.bind(axis.var, Range(axis.low, extent))
            last = prim_ops.subtract(axis.high, 1)
            self._domains[axis.var] = IntervalSet(axis.low, last)
        #: Axes of extent one stand for their only value.
        self.fixed: dict[Var, Expr] = one

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.axes)

    def narrowed(self, place: int, low: Expr, high: Expr) -> "Space":
        """Return the space with one axis cut down."""
        axes = list(self.axes)
        axis = axes[place]
        axes[place] = Axis(axis.var, low, high, axis.reduce)
        return Space(axes, self.sizes, self.loops)

    def simplify(self, expr: Expr) -> Expr:
        """Simplify with what is known of the axes and sizes."""
        return self.analyzer.simplify(expr)

    def axes_of(self, expr: Expr) -> tuple[int, ...]:
        """Return the places of the axes that occur in an expression, in order."""
        return tuple(sorted(self.place[v] for v in variables_of(expr) if v in self.place))

    def axes_of_all(self, exprs: Sequence[Expr]) -> list[int]:
        """Return the places of the axes that occur in any of some expressions, in order."""
        return sorted({place for expr in exprs for place in self.axes_of(expr)})

    def extent(self, place: int) -> Expr:
        """Return how many iterations an axis has."""
        axis = self.axes[place]
        return self.simplify(prim_ops.subtract(axis.high, axis.low))

    def equal(self, a: Expr, b: Expr) -> bool:
        """Whether two expressions are equal for sure."""
        return self.analyzer.can_prove_equal(a, b)

    def at_least_zero(self, expr: Expr) -> bool:
        """Whether an expression is never negative."""
        if self.analyzer.const_int_bound(expr).min_value >= 0:
            return True
        if self.analyzer.can_prove_greater_equal(expr, 0):
            return True
        low = self.analyzer.int_set(expr, self._domains).min_value
        return low is not None and self.analyzer.can_prove_greater_equal(low, 0)

    def inside(self, index: Expr, extent: Expr) -> bool:
        """Whether ``0 <= index < extent`` for sure."""
        index = substitute(index, self.fixed)
        return self.at_least_zero(index) and self.at_least_zero(
            prim_ops.subtract(prim_ops.subtract(extent, 1), index)
        )

    def ends(self, steps: Mapping[int, int], rest: Expr) -> tuple[Expr, Expr]:
        """Return the smallest and the largest value of a linear index."""
        low = high = rest
        for place, step in steps.items():
            axis = self.axes[place]
            first = prim_ops.multiply(axis.low, step)
            last = prim_ops.multiply(prim_ops.subtract(axis.high, 1), step)
            if step < 0:
                first, last = last, first
            low, high = prim_ops.add(low, first), prim_ops.add(high, last)
        return self.simplify(low), self.simplify(high)
