"""TopologicalSort: four orders, all of them valid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.relax.analysis import used_vars, well_formed
from relaxlab.relax.transform import TopologicalSort
from tests.relax.transform.checks import module

ORDERS = [
    (order, direction)
    for order in ("depth-first", "breadth-first")
    for direction in ("from-inputs", "from-outputs")
]


def program(lines, outputs):
    inside = "\n        ".join(lines)
    return f"""
@R.function
def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
    with R.dataflow():
        {inside}
        R.output({", ".join(outputs)})
    return ({", ".join(outputs)},)
"""


def order_of(mod):
    return [binding.var.name for binding in mod["main"].body.blocks[0].bindings]


#: What the real TVM makes of one block.
RECORDED = {
    ("depth-first", "from-inputs"): "v0 v1 v2 v4 v6 v5 v7 v3",
    ("depth-first", "from-outputs"): "v0 v1 v3 v5 v2 v6 v7 v4",
    ("breadth-first", "from-inputs"): "v3 v0 v5 v7 v1 v2 v4 v6",
    ("breadth-first", "from-outputs"): "v0 v2 v4 v7 v6 v5 v3 v1",
}


@pytest.mark.parametrize(("order", "direction"), ORDERS)
def test_recorded_orders(order, direction):
    lines = [
        "v0 = R.add(y, x)",
        "v1 = R.exp(v0)",
        "v2 = R.exp(v0)",
        'v3 = R.ones(R.shape([2]), "float32")',
        "v4 = R.add(y, v2)",
        "v5 = R.exp(y)",
        "v6 = R.add(v2, v0)",
        "v7 = R.exp(y)",
    ]
    mod = module(program(lines, ["v7", "v4"]))
    result = TopologicalSort(order, direction)(mod)
    assert order_of(result) == RECORDED[order, direction].split()
    if (order, direction) != ("breadth-first", "from-outputs"):  # whose own result it turns again
        assert TopologicalSort(order, direction)(result) is result


@st.composite
def blocks(draw):
    names, lines = ["x", "y"], []
    for i in range(draw(st.integers(1, 9))):
        a, b = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        lines.append(f"v{i} = {draw(st.sampled_from([f'R.exp({a})', f'R.add({a}, {b})']))}")
        names.append(f"v{i}")
    return program(lines, draw(st.lists(st.sampled_from(names[2:]), min_size=1, unique=True)))


@given(blocks(), st.sampled_from(ORDERS))
def test_every_order_keeps_bindings_and_what_they_need(text, how):
    mod = module(text)
    result = TopologicalSort(*how)(mod)
    before = set(mod["main"].body.blocks[0].bindings)
    bindings = result["main"].body.blocks[0].bindings
    assert set(bindings) == before
    seen = set(result["main"].params)
    for binding in bindings:
        assert seen.issuperset(used_vars(binding.value))
        seen.add(binding.var)


def test_a_size_is_defined_before_it_is_used():
    """TVM moves the use to the front."""
    mod = module(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
            m = T.int64()
            with R.dataflow():
                a = R.match_cast(y, R.Tensor((m,), "float32"))
                z = R.zeros(R.shape([m]), "float32")
                b = R.exp(x)
                R.output(a, z, b)
            return (a, z, b)
        """
    )
    for how in ORDERS:
        well_formed(TopologicalSort(*how)(mod))


@pytest.mark.parametrize("options", [{"order": "random"}, {"direction": "sideways"}])
def test_words_that_nobody_knows(options):
    with pytest.raises(ValueError, match="must be one of"):
        TopologicalSort(**options)
