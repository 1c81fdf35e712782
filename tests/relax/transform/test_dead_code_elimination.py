"""DeadCodeElimination: what nobody can see goes, effects and checks stay."""

import pytest

from relaxlab.relax.transform import DeadCodeElimination
from tests.relax.transform.checks import assert_becomes, assert_unchanged, module

LIBRARY = """
@R.function(private=True)
def used(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    return x

@R.function(private=True)
def only_by_dead_code(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    return x

@R.function(private=True)
def unused(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    y = Module.unused(x)
    return y
"""


def test_functions_and_bindings():
    result = assert_becomes(
        DeadCodeElimination(),
        LIBRARY
        + """
@R.function(pure=False)
def main(x: R.Tensor((2,), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
    n = T.int64()
    dead = Module.only_by_dead_code(x)
    deader = R.exp(dead)
    check = R.match_cast(y, R.Tensor((n,), "float32"))
    effect = R.call_packed("f", x)
    with R.dataflow():
        a = R.exp(x)
        b = R.exp(a)
        R.output(a, b)
    c = Module.used(a)
    return c
""",
        LIBRARY.split("@R.function(private=True)\ndef only")[0]
        + """
@R.function(pure=False)
def main(x: R.Tensor((2,), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
    n = T.int64()
    check = R.match_cast(y, R.Tensor((n,), "float32"))
    effect = R.call_packed("f", x)
    with R.dataflow():
        a = R.exp(x)
        R.output(a)
    c = Module.used(a)
    return c
""",
    )
    assert {g.name_hint for g in result.functions} == {"used", "main"}


def test_entry_functions_are_kept():
    result = DeadCodeElimination(["unused"])(module(LIBRARY))
    assert [g.name_hint for g in result.functions] == ["unused"]


def test_an_unknown_entry_function():
    with pytest.raises(ValueError, match="no function 'nope'"):
        DeadCodeElimination(["nope"])(module(LIBRARY))


def test_an_if_with_effects_stays():
    assert_unchanged(
        DeadCodeElimination(),
        """
        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")):
            if c:
                R.print(x)
                y = x
            else:
                y = x
            return x
        """,
    )
