"""Names are unique where they are visible, and valid Python."""

import keyword

from hypothesis import given
from hypothesis import strategies as st

from relaxlab.ir import Var
from relaxlab.script.printer.names import Names


def test_taken_hints_get_numbers():
    names = Names()
    assert [names.define(Var("x"), "x") for _ in range(3)] == ["x", "x_1", "x_2"]


def test_a_name_is_free_again_behind_its_scope():
    names = Names()
    names.define(Var("x"), "x")
    with names.scope():
        inner = Var("x")
        assert names.define(inner, "x") == "x_1"
        assert names.find(inner) == "x_1"
    assert names.find(inner) is None
    assert names.define(Var("x"), "x") == "x_1"


def test_a_numbered_hint_counts_as_that_name():
    names = Names()
    names.define(Var("x_1"), "x_1")
    assert [names.define(Var("x"), "x") for _ in range(3)] == ["x", "x_2", "x_3"]


def test_the_languages_and_the_class_are_taken():
    names = Names()
    names.reserve("Module")
    assert [names.define(Var(n), n) for n in ("T", "R", "I", "cls", "Module")] == [
        "T_1",
        "R_1",
        "I_1",
        "cls_1",
        "Module_1",
    ]


def test_hints_that_are_no_names():
    names = Names()
    assert names.define(Var(""), "") == "v"
    assert names.define(Var("a.b c"), "a.b c") == "a_b_c"
    assert names.define(Var("é"), "é") == "__"
    assert names.define(Var("if"), "if") == "if_1"
    assert names.define(Var("1x"), "1x") == "_1x"


@given(st.lists(st.text(max_size=4), max_size=30))
def test_every_name_is_valid_and_once(hints):
    names = Names()
    given_names = [names.define(Var(hint), hint) for hint in hints]
    assert len(set(given_names)) == len(given_names)
    assert all(name.isidentifier() and not keyword.iskeyword(name) for name in given_names)
