"""Statements and expressions, one by one, as TVM prints them; and back."""

import json
from pathlib import Path

import pytest

from relaxlab.errors import DiagnosticError
from relaxlab.ir import IRModule, structural_equal
from relaxlab.script import from_source
from relaxlab.script.printer import script

RECORDED = json.loads(
    (Path(__file__).parents[1] / "golden" / "script" / "printed_forms.json").read_text()
)


def parse(text):
    """Parse without the check that a program is well-formed."""
    for decorator in ("@I.ir_module\n", "@R.function\n", "@R.function(pure=False)\n"):
        if text.lstrip().startswith(decorator) or f"\n{decorator}" in text:
            option = "check_well_formed=False"
            head = decorator.rstrip("\n)")
            joined = f"{head}, {option})\n" if "(" in head else f"{head}({option})\n"
            return from_source(text.replace(decorator, joined, 1))
    return from_source(text)


@pytest.mark.parametrize("case", RECORDED, ids=range(len(RECORDED)))
def test_prints_as_recorded(case):
    assert script(parse(case["source"])) == case["script"]


def has_renamed_root(case):
    """Whether a root block of another name is written out: it prints as ``root``, as in TVM."""
    return any(f'  with T.sblock("{name}")' in case["source"] for name in ("x", "root2"))


@pytest.mark.parametrize("case", RECORDED, ids=range(len(RECORDED)))
def test_reads_back(case):
    if has_renamed_root(case):
        return
    first = parse(case["source"])
    second = parse(script(first))
    if isinstance(first, IRModule):
        assert first.structural_equal(second)
    else:
        assert structural_equal(first, second)


def kernel(body, head='x: T.Buffer((8,), "int32"), c: T.bool'):
    return f"@T.prim_func(s_tir=True)\ndef main({head}):\n    {body}\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (kernel("x[0] = T.Add(1)"), r"T\.Add\(\) missing 1 required positional argument: 'b'"),
        (
            kernel("x[0] = T.Cast('int32', T.And(x[0], c))"),
            "T.And takes booleans, got one of dtype",
        ),
        (kernel("x[0] = T.Cast('int32', T.Not(x[0]))"), "T.Not takes booleans, got one of dtype"),
        (kernel("x[0] = T.Cast('int32', not x[0])"), "expected a boolean operand of 'not'"),
        (kernel('T.func_attr({"global_symbol": 3})'), "global_symbol is a name, got 3"),
        (kernel("pass", 'x: T.Buffer((8,), "int32", offset_factor=-1)'), "from 0 on, got -1"),
        (kernel("pass", 'x: T.Buffer((8,), "int32", offset_factor="a")'), "from 0 on, got 'a'"),
        (kernel("pass", 'x: T.Buffer(("n +",), "int32")'), "'n \\+' is no expression"),
        (
            kernel('T.func_attr({"global_symbol": "g"})').replace("s_tir", "private"),
            "a private function has no global_symbol, but 'g' is given as it",
        ),
    ],
)
def test_what_a_kernel_cannot_say_is_refused_in_words(source, message):
    with pytest.raises(DiagnosticError, match=message):
        from_source(source)


@pytest.mark.parametrize("name", ["FloorDiv", "FloorMod", "Div"])
def test_what_an_operator_refuses_prints_as_the_node_it_is(name):
    """A division by zero may stand in a program that never does it."""
    func = from_source(kernel(f"x[0] = T.{name}(x[1], 0)"))
    assert f"x[0] = T.{name}(x[1], 0)" in script(func)
    assert structural_equal(func, from_source(script(func)))


@pytest.mark.parametrize("made", ['T.shared_scalar("int32")', 'T.alloc_scalar("int32", "shared")'])
def test_a_shared_variable_keeps_its_scope(made):
    """TVM prints it as if it were local."""
    func = from_source(kernel(f"a = {made}\n    a = a + 1\n    x[0] = a"))
    assert 'a = T.alloc_shared((1,), "int32")\n    a[0] = a[0] + 1\n    x[0] = a[0]' in script(func)
