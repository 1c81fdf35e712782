"""What the analyzer knows of integers: bounds, residues, intervals, conditions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.ir import Expr, IntImm, Range, Var, prim_ops
from relaxlab.ir.sym import Analyzer, ConstIntBound, IntervalSet, ModularSet
from relaxlab.tirx import scalar

x, y, z = Var("x", "int64"), Var("y", "int64"), Var("z", "int64")
n, m = Var("n", "int64"), Var("m", "int64")
INF = ConstIntBound.POS_INF


def known() -> Analyzer:
    """Return an analyzer with 0 <= x < 10, -3 <= y < 5 and z, never negative."""
    analyzer = Analyzer()
    analyzer.bind(x, Range(prim_ops.const(0, "int64"), prim_ops.const(10, "int64")))
    analyzer.bind(y, Range(prim_ops.const(-3, "int64"), prim_ops.const(8, "int64")))
    analyzer.mark_global_non_neg_value(z)
    return analyzer


@pytest.mark.parametrize(
    ("expr", "low", "high"),
    [
        (n, -INF, INF),
        (x + y, -3, 13),
        (x - y, -4, 12),
        (x * y, -27, 36),
        (x // 3, 0, 3),
        (y // 3, -1, 1),
        (y // -2, -2, 1),
        (z // 2, 0, INF),
        (y % 3, 0, 2),
        (n % 4, 0, 3),
        (n * 4 % 8, 0, 4),
        ((n * 4 + 1) % 8, 1, 5),
        (x % 20, 0, 9),
        (prim_ops.truncdiv(y, 3), -1, 1),
        (prim_ops.truncmod(n, 5), -4, 4),
        (prim_ops.min(x, y), -3, 4),
        (prim_ops.max(n, 3), 3, INF),
        (x & prim_ops.const(3, "int64"), 0, 3),
        (x << 2, 0, 36),
        (x >> 1, 0, 4),
        (prim_ops.cast("int32", n), -(2**31), 2**31 - 1),
        (prim_ops.cast("int32", x), 0, 9),
        (z * -1, -INF, 0),
    ],
    ids=str,
)
def test_bounds(expr: Expr, low: int, high: int) -> None:
    assert known().const_int_bound(expr) == ConstIntBound(low, high)


@pytest.mark.parametrize(
    ("expr", "coeff", "base"),
    [(n * 4 + 3, 4, 3), (n * 6 + m * 4, 2, 0), (n * 8 // 4, 2, 0), ((n * 4 + 6) % 8, 4, 2)],
    ids=str,
)
def test_residues(expr: Expr, coeff: int, base: int) -> None:
    assert Analyzer().modular_set(expr) == ModularSet(coeff, base)


def test_a_range_of_one_value_is_that_value() -> None:
    analyzer = Analyzer()
    analyzer.bind(x, Range(m, prim_ops.const(1, "int64")))
    assert str(analyzer.simplify(x + 1)) == "m + T.int64(1)"


def test_a_second_meaning_of_a_variable_needs_permission() -> None:
    analyzer = Analyzer()
    analyzer.bind(x, m + 1)
    with pytest.raises(ValueError, match="'x'"):
        analyzer.bind(x, m + 2)
    analyzer.bind(x, m + 2, allow_override=True)
    assert analyzer.can_prove_equal(x, m + 2)
    ranged = known()
    with pytest.raises(ValueError, match="already bound"):
        ranged.bind(x, Range(prim_ops.const(0, "int64"), prim_ops.const(11, "int64")))


def test_what_is_never_negative() -> None:
    analyzer = Analyzer()
    assert not analyzer.can_prove_greater_equal(n, 0)
    analyzer.mark_global_non_neg_value(n)
    assert analyzer.can_prove_greater_equal(n * 3 + 1, 1)
    analyzer.mark_global_non_neg_value(n - 3)
    assert analyzer.const_int_bound(n).min_value == 3


def test_conditions_hold_inside_their_scope_only() -> None:
    analyzer = Analyzer()
    with analyzer.constraint_scope(prim_ops.logical_and(n < 4, n >= 0)):
        assert analyzer.const_int_bound(n) == ConstIntBound(0, 3)
        assert int(analyzer.simplify(n // 4)) == 0
        assert analyzer.can_prove(n < 5)
    assert analyzer.const_int_bound(n) == ConstIntBound(-INF, INF)
    assert not analyzer.can_prove(n < 5)


def test_a_branch_may_assume_its_condition() -> None:
    expr = prim_ops.if_then_else(n < 4, prim_ops.min(n, 4), 0)
    assert str(Analyzer().simplify(expr)) == "T.if_then_else(n < T.int64(4), n, T.int64(0))"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (n * m, m * n),
        ((n + 1) * m, n * m + m),
        (n // 4 * 4 + n % 4, n),
        (prim_ops.max(n, m) + prim_ops.min(m, n), n + m),
        ((n * 4 + 2) // 2, 2 * n + 1),
    ],
    ids=str,
)
def test_equalities_that_shape_inference_needs(a: Expr, b: Expr) -> None:
    assert Analyzer().can_prove_equal(a, b)
    assert not Analyzer().can_prove_equal(a, b + 1)


def test_intervals_keep_what_is_not_bounded() -> None:
    zero, ten = IntImm("int64", 0), IntImm("int64", 10)
    analyzer = Analyzer()
    analyzer.mark_global_non_neg_value(m)
    result = analyzer.int_set(n * m + 1, {n: IntervalSet(zero, ten)})
    assert str(result.max_value) == "m * T.int64(10) + T.int64(1)"
    assert str(result.min_value) == "T.int64(1)"
    half = analyzer.int_set(prim_ops.min(n, m) // 2, {n: IntervalSet(zero, None)})
    assert str(half.max_value) == "m // T.int64(2)"
    assert analyzer.int_set(m).is_point


def test_intervals_of_bound_variables() -> None:
    analyzer = Analyzer()
    analyzer.bind(x, Range(prim_ops.const(0, "int64"), n))
    assert str(analyzer.int_set(x * 2).max_value) == "n * T.int64(2) - T.int64(2)"


# ---------------------------------------------------------------- it never lies

_LEAVES = st.sampled_from([x, y, z, n, *(prim_ops.const(v, "int64") for v in (-2, 1, 2, 3, 4, 8))])
_SUMS = [prim_ops.add, prim_ops.subtract, prim_ops.multiply, prim_ops.min, prim_ops.max]
_QUOTIENTS = [prim_ops.floordiv, prim_ops.floormod, prim_ops.truncdiv, prim_ops.truncmod]


def _grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    divisors = st.sampled_from([2, 3, 4, 6, 8, -2, -3])
    return st.one_of(
        st.builds(lambda f, a, b: f(a, b), st.sampled_from(_SUMS), inner, inner),
        st.builds(lambda f, a, d: f(a, d), st.sampled_from(_QUOTIENTS), inner, divisors),
    )


expressions = st.recursive(_LEAVES, _grow, max_leaves=7)


def value(expr: Expr, places: dict[Expr, int]) -> int:
    """Compute an expression with the interpreter's arithmetic."""
    if isinstance(expr, Var):
        return places[expr]
    if isinstance(expr, IntImm):
        return expr.value
    a, b = (value(part, places) for part in (expr.a, expr.b))  # type: ignore[attr-defined]
    result: int = scalar.binary(type(expr).__name__, a, b, expr.dtype)
    return result


@given(expressions, st.integers(0, 9), st.integers(-3, 4), st.integers(0, 40), st.integers(-9, 9))
def test_simplifying_with_bounds_keeps_the_value(
    expr: Expr, px: int, py: int, pz: int, pn: int
) -> None:
    places: dict[Expr, int] = {x: px, y: py, z: pz, n: pn}
    analyzer = known()
    expected = value(expr, places)
    bound, residue = analyzer.const_int_bound(expr), analyzer.modular_set(expr)
    assert bound.min_value <= expected <= bound.max_value
    assert (
        expected == residue.base
        if residue.coeff == 0
        else ((expected - residue.base) % residue.coeff == 0)
    )
    for simplified in (
        analyzer.simplify(expr),
        analyzer.rewrite_simplify(expr),
        analyzer.canonical_simplify(expr),
    ):
        assert value(simplified, places) == expected
    assert analyzer.can_prove_equal(expr, analyzer.simplify(expr))


@given(expressions, st.integers(-20, 20))
def test_comparisons_are_proved_only_when_they_hold(expr: Expr, limit: int) -> None:
    analyzer = known()
    places: dict[Expr, int] = {x: 3, y: -1, z: 7, n: 2}
    actual = value(expr, places)
    if analyzer.can_prove(expr < limit):
        assert actual < limit
    if analyzer.can_prove(prim_ops.equal(expr, limit)):
        assert actual == limit
