"""NormalizeGlobalVar: public functions are called what their symbols say."""

from relaxlab.relax.transform import NormalizeGlobalVar
from tests.relax.transform.checks import assert_unchanged, module

PROGRAM = """
@R.function(private=True)
def f1(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    return x

@R.function
def f(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    y = Module.f1(x)
    return y
"""


def test_the_public_one_takes_the_name():
    mod = module(PROGRAM)
    mod["f"] = mod["f"].with_attr("global_symbol", "f1")
    result = NormalizeGlobalVar()(mod)
    assert sorted(g.name_hint for g in result.functions) == ["f1", "f1_1"]
    assert result["f1"].attrs["global_symbol"] == "f1"
    assert "cls.f1_1(x)" in result.script()
    assert NormalizeGlobalVar()(result) is result


def test_nothing_to_do():
    assert_unchanged(NormalizeGlobalVar(), PROGRAM)
