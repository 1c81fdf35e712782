"""UpdateParamType: other parameters, and all that follows."""

import pytest

from relaxlab.relax import TensorType
from relaxlab.relax.analysis import well_formed
from relaxlab.relax.transform import UpdateParamType
from tests.relax.transform.checks import assert_becomes, assert_unchanged, module

PROGRAM = """
@R.function(private=True)
def sub(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    y = R.add(x, w)
    return y

@R.function
def main(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((2,), "float32"):
    y = R.exp(x)
    if c:
        r = Module.sub(y, y)
    else:
        r = R.sin(y)
    t = (r, c)
    s = t[0]
    return s

@R.function
def other(q: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    return q
"""


def half(*names):
    return UpdateParamType(lambda var: TensorType([2], "float16") if var.name in names else None)


def test_functions_change_together():
    """TVM fails: it has the old type of the callee in mind."""
    after, _, unchanged = PROGRAM.rpartition("@R.function\ndef other")
    after = after.replace("float32", "float16") + "@R.function\ndef other" + unchanged
    result = assert_becomes(half("x", "w"), PROGRAM, after, once=True)
    well_formed(result)


def test_the_input_keeps_its_types():
    mod = module(PROGRAM)
    half("x", "w")(mod)
    assert mod.get_global_var("sub").ty.ret.dtype == "float32"
    well_formed(mod)


def test_nothing_changes():
    assert_unchanged(half(), PROGRAM)
    assert_unchanged(UpdateParamType(lambda var: var.ty), PROGRAM)


def test_types_that_an_operator_does_not_take():
    with pytest.raises(TypeError, match="same datatype"):
        half("w")(module(PROGRAM))
