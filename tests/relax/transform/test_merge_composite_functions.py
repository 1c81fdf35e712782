"""MergeCompositeFunctions: which composites join, and that the values stay."""

import numpy as np

from relaxlab import relax
from relaxlab.relax.analysis import well_formed
from relaxlab.relax.dpl import is_op, wildcard
from relaxlab.relax.transform import FuseOpsByPattern, LambdaLift, MergeCompositeFunctions
from relaxlab.runtime import cpu
from tests.relax.transform.checks import assert_unchanged, module

PATTERNS = [
    ("one.exp", is_op("relax.exp")(wildcard())),
    ("one.add", is_op("relax.add")(wildcard(), wildcard())),
    ("two.tanh", is_op("relax.tanh")(wildcard())),
]


def merged(lines, result):
    body = "".join(f"            {line}\n" for line in lines)
    mod = module(
        '@R.function\ndef main(x: R.Tensor(("n", 4), "float32")):\n'
        f"        with R.dataflow():\n{body}            R.output({result})\n"
        f"        return {result}\n"
    )
    new = MergeCompositeFunctions()(FuseOpsByPattern(PATTERNS)(mod))
    well_formed(new)
    x = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
    values = []
    for each in (mod, LambdaLift()(new)):
        vm = relax.VirtualMachine(relax.build(each, "numpy"), cpu())
        value = vm["main"](x)
        values.append(
            [v.numpy() for v in value] if not hasattr(value, "numpy") else [value.numpy()]
        )
    for before, after in zip(*values, strict=True):
        np.testing.assert_allclose(before, after, 1e-6)
    return sorted(g.name_hint for g, f in new.functions.items() if "Codegen" in f.func_attrs)


def test_a_chain_of_one_library():
    assert merged(["a = R.exp(x)", "b = R.add(a, x)"], "b") == ["fused_relax_exp_relax_add_one"]


def test_two_libraries():
    assert merged(["a = R.exp(x)", "b = R.tanh(a)", "c = R.exp(b)"], "c") == [
        "fused_relax_exp_one",
        "fused_relax_tanh_two",
    ]


def test_nothing_may_stand_in_between():
    lines = ["a = R.exp(x)", "b = R.negative(a)", "c = R.add(a, b)"]
    assert merged(lines, "c") == ["fused_relax_add_one", "fused_relax_exp_one"]


def test_a_value_of_a_group_that_is_used_elsewhere():
    lines = ["a = R.exp(x)", "b = R.negative(a)", "c = R.exp(a)", "d = R.subtract(b, c)"]
    assert merged(lines, "d") == ["fused_relax_exp_relax_exp_one"]


def test_no_composites():
    assert_unchanged(
        MergeCompositeFunctions(),
        '@R.function\ndef main(x: R.Tensor((4,), "float32")):\n'
        "    with R.dataflow():\n        y = R.exp(x)\n        R.output(y)\n    return y\n",
    )
