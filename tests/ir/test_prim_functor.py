"""Walks over expressions and kernels."""

from relaxlab.ir import Let, TensorLoad, Var, free_vars, post_order_visit, structural_equal
from relaxlab.ir import substitute as replace_vars
from relaxlab.ir.prim_functor import defined_vars, post_order_map
from relaxlab.ir.prim_ops import const
from relaxlab.tirx import BufferStore, For, ForKind, buffer_type, decl_buffer

n, m, k = Var("n", "int64"), Var("m", "int64"), Var("k", "int64")


def test_substitution_replaces_everywhere() -> None:
    assert structural_equal(replace_vars(n * n + m, {n: k}), k * k + m)


def test_substitution_takes_plain_numbers() -> None:
    assert str(replace_vars(n + m, {n: 3})) == "T.int64(3) + m"


def test_substitution_that_replaces_nothing_returns_the_same_object() -> None:
    expr = n + m
    assert replace_vars(expr, {k: n}) is expr
    assert replace_vars(expr, {}) is expr


def test_buffers_whose_shape_changes_become_one_new_buffer() -> None:
    x, i = decl_buffer((n, 4), name="x"), Var("i", "int64")
    store = BufferStore(x, TensorLoad(x, (i, const(0, "int64"))), (i, const(1, "int64")))
    changed = replace_vars(store, {n: m})
    assert changed.buffer is not x
    assert changed.value.buffer is changed.buffer
    assert buffer_type(changed.buffer).shape[0] is m


def test_long_sums_are_no_deep_recursion() -> None:
    total = n
    for _ in range(5000):
        total = total + m
    changed = replace_vars(total, {m: k})
    assert free_vars(changed) == [n, k]


def test_free_variables_come_in_visiting_order_and_leave_out_defined_ones() -> None:
    inner = Let(k, m + 1, k * n)
    assert free_vars(inner) == [m, n]
    assert free_vars(n + m, known=[n]) == [m]
    assert free_vars(n, known=[n]) == []
    assert free_vars(const(1)) == []


def test_loops_define_their_variable() -> None:
    x, i = decl_buffer((4,), name="x"), Var("i", "int64")
    loop = For(i, const(0, "int64"), n, ForKind.SERIAL, BufferStore(x, const(0.0), (i,)))
    assert defined_vars(loop) == [i]
    assert free_vars(loop) == [n, x]


def test_visits_go_from_the_inside_out_and_once() -> None:
    shared = n + m
    seen: list[object] = []
    post_order_visit(shared * shared, seen.append)
    assert [type(node).__name__ for node in seen] == ["Var", "Var", "Add", "Mul"]


def test_mapping_rebuilds_from_the_inside_out() -> None:
    result = post_order_map(n + m, lambda node: k if node is m else node)
    assert str(result) == "n + k"
