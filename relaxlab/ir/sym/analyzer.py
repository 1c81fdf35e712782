"""The analyzer: what is known of integer variables, and what follows for expressions.

Counterpart: ``tvm.sym.Analyzer``.

Examples
--------
>>> from relaxlab.ir import IntImm, Range, Var
>>> analyzer = Analyzer()
>>> v, n = Var("v", "int64"), Var("n", "int64")
>>> analyzer.bind(v, Range(IntImm("int64", 0), IntImm("int64", 8)))
>>> int(analyzer.simplify(v // 8)), analyzer.can_prove_equal(n * 2 + n, 3 * n)
(0, True)
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.prim import EQ, Add, And, IntImm, Mul, Range, Sub
from relaxlab.ir.prim_functor import substitute
from relaxlab.ir.sym.canonical_simplify import CanonicalSimplifier
from relaxlab.ir.sym.const_int_bound import BoundAnalyzer, ConstIntBound
from relaxlab.ir.sym.int_set import IntervalSet, evaluate_interval
from relaxlab.ir.sym.modular_set import ModularAnalyzer, ModularSet
from relaxlab.ir.sym.pattern import same
from relaxlab.ir.sym.rewrite_simplify import RewriteSimplifier

__all__ = ["Analyzer"]


class Analyzer:
    """Knows bounds, residues and conditions; simplifies and proves."""

    def __init__(self) -> None:
        self._modular = ModularAnalyzer()
        self._bounds = BoundAnalyzer(self._modular)
        self._rewrite = RewriteSimplifier(self)
        self._canonical = CanonicalSimplifier(self)
        self._bound_exprs: dict[Var, Expr] = {}
        self._ranges: dict[Var, Range] = {}

    # ------------------------------------------------------------ what is known

    def bind(self, var: Var, value: Expr | Range, allow_override: bool = False) -> None:
        """Say what a variable is: a value, or a range it lies in.

        Raises
        ------
        ValueError
            If it was bound to something else and ``allow_override`` is false.
        """
        if isinstance(value, Range):
            self._bind_range(var, value, allow_override)
            return
        simplified = self.simplify(value)
        before = self._bound_exprs.get(var)
        if before is not None and not allow_override and not same(before, simplified):
            raise ValueError(
                f"variable {var.name!r} is already bound to {before!r}, cannot bind it to "
                f"{simplified!r}; pass allow_override=True to replace it"
            )
        self._bound_exprs[var] = simplified
        self._bounds.update(var, self._bounds(simplified))
        self._modular.update(var, self._modular(simplified))

    def _bind_range(self, var: Var, given: Range, allow_override: bool) -> None:
        low, extent = self.simplify(given.min), self.simplify(given.extent)
        if isinstance(extent, IntImm) and extent.value == 1:
            self.bind(var, low, allow_override)
            return
        first, count = self._bounds(low), self._bounds(extent)
        upper = first.max_value
        if upper < ConstIntBound.POS_INF and count.max_value < ConstIntBound.POS_INF:
            upper += count.max_value - 1
        else:
            upper = ConstIntBound.POS_INF
        bound = ConstIntBound(first.min_value, upper)
        before = self._bounds.known(var)
        if before is not None and not allow_override and before != bound:
            raise ValueError(
                f"variable {var.name!r} is already bound to [{before.min_value}, "
                f"{before.max_value}], cannot bind it to [{bound.min_value}, "
                f"{bound.max_value}]; pass allow_override=True to replace it"
            )
        self._bounds.update(var, bound)
        self._ranges[var] = Range(low, extent)

    def mark_global_non_neg_value(self, value: Expr) -> None:
        """Say that an expression is never negative; for ``n - 3`` that ``n`` is at least 3.

        Of other expressions than a variable plus a number nothing is remembered.
        """
        match self.simplify(value):
            case Var() as var:
                offset = 0
            case Add(a=Var() as var, b=IntImm(value=offset)):
                pass
            case Sub(a=Var() as var, b=IntImm(value=less)):
                offset = -less
            case _:
                return
        known = self._bounds.known(var) or self._bounds(var)
        at_least = ConstIntBound(-offset, ConstIntBound.POS_INF)
        self._bounds.update(var, known.intersect(at_least))

    @contextmanager
    def constraint_scope(self, condition: Expr, *, literally: bool = False) -> Iterator[None]:
        """Assume a condition inside ``with``.

        ``literally``: only where it is written again; nothing else follows from it.
        """
        assumed: Expr = prim_ops.const(True) if literally else condition
        leave_bounds = self._bounds.enter(assumed)
        leave_modular = self._modular.enter(assumed)
        literals = _conjuncts(condition)
        for simplifier in (self._rewrite, self._canonical):
            simplifier.literal_constraints.extend(literals)
        try:
            yield
        finally:
            leave_bounds()
            leave_modular()
            for simplifier in (self._rewrite, self._canonical):
                del simplifier.literal_constraints[
                    len(simplifier.literal_constraints) - len(literals) :
                ]

    # ------------------------------------------------------------ what follows

    def const_int_bound(self, expr: Expr) -> ConstIntBound:
        """Return the smallest and the largest value of an integer expression."""
        return self._bounds(expr)

    def modular_set(self, expr: Expr) -> ModularSet:
        """Return the residues of an integer expression."""
        return self._modular(expr)

    def int_set(self, expr: Expr, dom_map: Mapping[Var, IntervalSet] | None = None) -> IntervalSet:
        """Return the symbolic interval an expression lies in.

        Parameters
        ----------
        expr
            An integer expression.
        dom_map
            Intervals of variables; those bound to a range count too, the rest stay symbolic.
        """
        known = {
            var: IntervalSet(r.min, prim_ops.subtract(prim_ops.add(r.min, r.extent), 1))
            for var, r in self._ranges.items()
        }
        return evaluate_interval(self, expr, {**known, **(dom_map or {})})

    def rewrite_simplify(self, expr: Expr) -> Expr:
        """Simplify by rules only."""
        return self._rewrite(self._with_bound_values(expr))

    def canonical_simplify(self, expr: Expr) -> Expr:
        """Simplify to normal form only."""
        return self._canonical(self._with_bound_values(expr))

    def simplify(self, expr: Expr, steps: int = 2) -> Expr:
        """Return the expression in its simplest form: normal form, rules, normal form.

        Parameters
        ----------
        expr
            Any scalar expression; only int32 and int64 arithmetic is rearranged.
        steps
            How many rounds, of rules and normal form in turn, follow the first normal form.
        """
        if not self._bound_exprs and _is_simple(expr):
            return expr
        result: Any = self._canonical(self._with_bound_values(expr))
        for step in range(steps):
            if isinstance(result, IntImm):
                return result
            result = self._canonical(result) if step % 2 else self._rewrite(result)
        return result  # type: ignore[no-any-return]  # visitors are typed per node

    def _with_bound_values(self, expr: Expr) -> Expr:
        return substitute(expr, self._bound_exprs) if self._bound_exprs else expr

    def can_prove(self, condition: Expr) -> bool:
        """Say whether a condition holds for sure."""
        if isinstance(condition, IntImm):
            return condition.value != 0
        simplified = self.simplify(condition)
        return isinstance(simplified, IntImm) and simplified.value != 0

    def can_prove_equal(self, lhs: Expr | int, rhs: Expr | int) -> bool:
        """Say whether two integer expressions are equal for sure."""
        a, b = prim_ops.match_dtypes(lhs, rhs)
        if same(a, b):
            return True
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return a.value == b.value
        difference = self.simplify(prim_ops.subtract(a, b))
        if isinstance(difference, IntImm):
            return difference.value == 0
        return self.can_prove(EQ(difference, prim_ops.const(0, difference.dtype)))

    def can_prove_greater_equal(self, expr: Expr, lower: int) -> bool:
        """Say whether ``expr >= lower`` for sure."""
        return self._bounds(self.simplify(expr)).min_value >= lower

    def can_prove_less(self, expr: Expr, upper: int) -> bool:
        """Say whether ``expr < upper`` for sure."""
        return self._bounds(self.simplify(expr)).max_value < upper


def _is_simple(expr: Expr) -> bool:
    """Whether an expression is in normal form for sure: the usual dimensions."""
    match expr:
        case Var() | IntImm():
            return True
        case Mul(a=Var(), b=IntImm(value=value)):
            return value > 1
        case Add(a=Var(), b=IntImm(value=value)):
            return value > 0
        case _:
            return False


def _conjuncts(condition: Expr) -> list[Expr]:
    if isinstance(condition, And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]
