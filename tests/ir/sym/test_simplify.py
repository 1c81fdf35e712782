"""Simplified integer expressions: their text is TVM's, their value that of the original."""

from itertools import product
from random import Random
from types import CodeType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.ir import IntImm, Var, prim_ops
from relaxlab.ir.sym import Analyzer
from tests.golden_compiler import document

VARIABLES = {name: Var(name, "int64") for name in "stuvw"}
LITERALS = SimpleNamespace(
    int64=lambda value: IntImm("int64", value), min=prim_ops.min, max=prim_ops.max
)
PLACES = Random(3).sample(list(product(range(-7, 9), repeat=5)), 40)


def evaluate(text: str | CodeType, **names: Any) -> Any:
    """Return what the text of an expression gives where its names mean ``names``."""
    return eval(text, names)  # noqa: S307 - the text is recorded, or printed by this package


def values(text: str) -> list[Any]:
    """Return what an expression is for some values of its variables."""
    code = compile(text, "<expression>", "eval")
    numbers = SimpleNamespace(int64=int, min=min, max=max)
    return [
        evaluate(code, T=numbers, **dict(zip(VARIABLES, place, strict=True))) for place in PLACES
    ]


@pytest.mark.parametrize(("text", "expected"), document("simplify")["cases"])
def test_simplified_text_is_that_of_tvm(text: str, expected: str) -> None:
    assert str(Analyzer().simplify(evaluate(text, T=LITERALS, **VARIABLES))) == expected


def test_an_expression_keeps_its_value() -> None:
    for text, _ in document("simplify")["cases"]:
        term = evaluate(text, T=LITERALS, **VARIABLES)
        for simplified in (
            Analyzer().rewrite_simplify(term),
            Analyzer().canonical_simplify(term),
            Analyzer().simplify(term),
        ):
            assert values(str(simplified)) == values(text), text


@given(
    st.sampled_from("su"),
    st.integers(1, 8),
    st.integers(-8, 8),
    st.integers(-9, 9),
    st.integers(1, 12),
    st.sampled_from(["//", "%"]),
    st.sampled_from(["//", "%"]),
)
def test_nested_divisions_keep_their_value(
    name: str, inner: int, scale: int, offset: int, outer: int, first: str, second: str
) -> None:
    # a negative factor between two divisions turns the inner floor into a ceiling
    text = (
        f"(({name} {first} T.int64({inner})) * T.int64({scale}) + T.int64({offset}))"
        f" {second} T.int64({outer})"
    )
    simplified = str(Analyzer().simplify(evaluate(text, T=LITERALS, **VARIABLES)))
    assert values(simplified) == values(text)
