"""Slots of the shape heap: what gets one, and in which order."""

import pytest

from relaxlab.errors import InternalError
from relaxlab.ir import IntImm, Var
from relaxlab.relax.transform.shape_slots import SlotTable, collect_slots, is_size
from tests.relax.transform.checks import module


def slots(functions):
    return [str(expr) for expr in collect_slots(module(functions)["main"]).exprs]


def test_equal_expressions_share_a_slot():
    n, m = Var("n", "int64"), Var("m", "int64")
    table = SlotTable()
    for expr in (n * m, m, n * m, n * 2, n):
        table.add(expr)
    assert [table.slot(expr) for expr in (n * m, n, m, n * 2)] == [0, 1, 2, 3]
    assert len(table) == 4
    assert table.find(m * n) is None
    assert table.find(Var("n", "int64")) is None
    with pytest.raises(InternalError, match="n - "):
        table.slot(n - 1)


def test_literals_and_other_dtypes_need_none():
    table = SlotTable()
    for expr in (Var("b", "bool"), Var("i", "int32"), IntImm("int64", 4)):
        assert not is_size(expr)
        table.add(expr)
    assert len(table) == 0


def test_order_of_appearance():
    found = slots(
        """
        @R.function(pure=False)
        def main(
            x: R.Tensor(("n", "n * 2"), "float32"),
            t: R.Tuple(R.Shape(["k"]), R.Tensor(("m + n",), "float32"), R.Object),
            m: R.Prim("int64"),
        ) -> R.Tensor(ndim=1, dtype="float32"):
            n = T.int64()
            a = T.int64()
            y = R.call_packed("f", R.shape([n * 3, 4]), ty_args=R.Object)
            z = R.match_cast(y, R.Tensor((a,), "float32"))
            w = R.zeros((a + 1,), "float32")
            return w
        """
    )
    assert found == [
        "n",
        "n * T.int64(2)",
        "k",
        "m + n",
        "m",
        "n * T.int64(3)",
        "a",
        "a + T.int64(1)",
    ]


def test_a_function_type_has_sizes_of_its_own():
    assert (
        slots(
            """
            @R.function(pure=False)
            def main(f: R.Callable((R.Tensor(("k",), "float32"),), R.Tensor(("k",), "float32"))):
                return f
            """
        )
        == []
    )


def test_a_scalar_value_gets_one_if_the_result_depends_on_it():
    program = """
        @R.function(pure=False)
        def main(p: R.Prim("int64"), q: R.Prim("int64"), c: R.Tensor((), "bool")):
            unused = R.call_packed("f", p)
            if c:
                used = R.call_packed("f", q)
            else:
                used = R.call_packed("g", c)
            return used
        """
    assert slots(program) == ["q"]
    assert slots(program.replace("return used", "return unused")) == ["p"]


def test_branches_count_too():
    assert slots(
        """
        @R.function(pure=False)
        def main(x: R.Tensor(ndim=1), c: R.Tensor((), "bool")):
            a = T.int64()
            b = T.int64()
            if c:
                y = R.match_cast(x, R.Tensor((a,)))
                r = R.call_packed("f", y)
            else:
                y = R.match_cast(x, R.Tensor((b,)))
                r = R.call_packed("f", y)
            return r
        """
    ) == ["a", "b"]
