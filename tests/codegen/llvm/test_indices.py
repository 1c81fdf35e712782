"""Index polynomials: equal where they say so, inside where they say so."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from relaxlab.codegen.llvm.indices import Indices, constant
from relaxlab.ir import Expr, IntImm, TensorLoad, Var, prim_ops
from relaxlab.tirx import decl_buffer

SIZES = (1, 2, 3, 4, 5, 6, 12)


def value_of(expr: Any, values: dict[Var, int]) -> int:
    """Compute an expression with Python's integers."""
    if isinstance(expr, IntImm):
        return expr.value
    if isinstance(expr, Var):
        return values[expr]
    a, b = value_of(expr.a, values), value_of(expr.b, values)
    return {
        "Add": lambda: a + b,
        "Sub": lambda: a - b,
        "Mul": lambda: a * b,
        "FloorDiv": lambda: a // b,
        "FloorMod": lambda: a % b,
        "Min": lambda: min(a, b),
        "Max": lambda: max(a, b),
    }[type(expr).__name__]()


@st.composite
def subscripts(draw: Any) -> tuple[Expr, dict[Var, int], list[tuple[Var, int]], Var]:
    """Return an index expression, the loops it is in, and a size."""
    size = Var("n", "int64")
    extents = draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3))
    loops = [(Var(f"i{k}", "int64"), e) for k, e in enumerate(extents)]
    n = draw(st.integers(0, 7))

    def build(depth: int) -> Expr:
        kind = draw(st.integers(0, 7)) if depth else draw(st.integers(0, 1))
        if kind == 0:
            return draw(st.sampled_from([*(v for v, _ in loops), size]))
        if kind == 1:
            return IntImm("int64", draw(st.integers(-3, 12)))
        a = build(depth - 1)
        if kind == 2:
            return prim_ops.floordiv(a, draw(st.sampled_from(SIZES[1:])))
        if kind == 3:
            return prim_ops.floormod(a, draw(st.sampled_from(SIZES[1:])))
        b = build(depth - 1)
        operators = (prim_ops.add, prim_ops.subtract, prim_ops.multiply, prim_ops.min)
        return operators[kind - 4](a, b)

    return build(4), {size: n}, loops, size


def entered(case: tuple[Expr, dict[Var, int], list[tuple[Var, int]], Var]) -> Indices:
    indices = Indices()
    indices.declare_size(case[3])
    for var, extent in case[2]:
        indices.enter(var, {}, constant(extent))
    return indices


def places(case: tuple[Expr, dict[Var, int], list[tuple[Var, int]], Var]) -> list[dict[Var, int]]:
    found = [dict(case[1])]
    for var, extent in case[2]:
        found = [{**values, var: k} for values in found for k in range(extent)]
    return found


@given(subscripts())
def test_a_polynomial_has_the_value_of_its_expression(case: Any) -> None:
    indices = entered(case)
    back = indices.expression(indices.of(case[0]))
    for values in places(case):
        assert value_of(back, values) == value_of(case[0], values)


@given(subscripts(), st.integers(1, 60))
def test_what_is_proven_inside_is_inside(case: Any, extent: int) -> None:
    indices = entered(case)
    poly = indices.of(case[0])
    lower, upper = indices.is_inside(poly, constant(extent))
    lower = lower or indices.at_least(case[0], 0)
    upper = upper or indices.below(case[0], constant(extent))
    for values in places(case):
        value = value_of(case[0], values)
        assert not lower or value >= 0
        assert not upper or value < extent


@given(subscripts())
def test_a_coefficient_is_the_step_of_a_loop(case: Any) -> None:
    indices = entered(case)
    poly = indices.of(case[0])
    var, extent = case[2][0]
    parts = indices.coefficient(poly, var)
    if parts is None:
        return
    step = indices.expression(parts[0])
    for values in places(case):
        if values[var] + 1 < extent:
            after = {**values, var: values[var] + 1}
            moved = value_of(case[0], after) - value_of(case[0], values)
            assert moved == value_of(step, values)


def test_reshapes_become_linear() -> None:
    indices = Indices()
    i, j, f, n = (Var(name, "int64") for name in "ijfn")
    indices.declare_size(n)
    indices.enter(i, {}, indices.of(n))
    indices.enter(j, {}, constant(12))
    indices.enter(f, {}, indices.of(n * 12))
    flat = i * 12 + j
    assert indices.of((flat // 4) * 4 + flat % 4) == indices.of(flat)
    assert indices.of(flat // 12) == indices.of(i)
    assert indices.of(flat % 12) == indices.of(j)
    three = (f // 12) * 12 + (f // 4) % 3 * 4 + f % 4
    assert indices.of(three) == indices.of(f)
    assert indices.is_inside(indices.of(f // 12), indices.of(n)) == (True, True)


def test_a_guard_is_a_fact_only_while_it_holds() -> None:
    indices = Indices()
    i, n = Var("i", "int64"), Var("n", "int64")
    indices.declare_size(n)
    indices.enter(i, {}, indices.of(n + 3))
    shifted = indices.of(i - n)
    mark = indices.assume([shifted])
    assert indices.is_inside(shifted, constant(3)) == (True, True)
    indices.forget(mark)
    assert indices.is_inside(shifted, constant(3)) == (False, True)


def test_numbers_from_memory_keep_their_width() -> None:
    indices = Indices()
    rows = decl_buffer((4,), "int32", "rows")
    read = TensorLoad(rows, (IntImm("int32", 0),))
    poly = indices.of(read + read)
    (product,) = poly
    # one factor that is not taken apart: the sum may wrap around
    assert len(product) == 1
    assert indices.reads(poly)
