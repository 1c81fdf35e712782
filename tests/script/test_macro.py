"""Macros: their statements are read where they are called, as TVM reads them."""

import pytest

from relaxlab.errors import DiagnosticError
from relaxlab.script import from_source
from relaxlab.script import relax as R
from relaxlab.script import tirx as T

FACTOR = 4


@R.macro
def soften(x):
    """Explain itself."""
    y = R.add(x, R.const(1, "float32"))
    return R.exp(y)


@R.macro(hygienic=False)
def plus_z(x):
    y = R.add(x, z)  # noqa: F821  # the caller's
    return y  # noqa: RET504  # a variable of the program


@T.macro
def scaled(buffer, index, value):
    buffer[index] = value * T.float32(FACTOR)


@T.macro(hygienic=False)
def clear(count):
    for k in range(count):
        A[k] = T.float32(0)  # noqa: F821  # the caller's


def test_statements_and_names_are_tvms():
    @R.function
    def f(x: R.Tensor((4,), "float32")):
        z = R.exp(x)
        a = soften(x)
        b = plus_z(a)
        c = R.add(soften(b), z)
        return c  # noqa: RET504  # a variable of the program

    head, *lines = f.script().splitlines()[3:]
    assert head == 'def f(x: R.Tensor((4,), dtype="float32")) -> R.Tensor((4,), dtype="float32"):'
    assert [line.strip().replace(': R.Tensor((4,), dtype="float32")', "") for line in lines] == [
        "z = R.exp(x)",
        'y = R.add(x, R.const(1.0, "float32"))',
        "gv2 = R.exp(y)",
        "a = gv2",
        "y_1 = R.add(a, z)",
        "b = y_1",
        'y_2 = R.add(b, R.const(1.0, "float32"))',
        "gv7 = R.exp(y_2)",
        "gv8 = gv7",
        "c = R.add(gv8, z)",
        "return c",
    ]


def test_in_kernels():
    @T.prim_func(s_tir=True)
    def g(A: T.Buffer((4,), "float32")):
        for i in range(4):
            scaled(A, i, A[i])
            clear(2)

    assert g.script().endswith(
        "    for i in range(4):\n"
        "        A[i] = A[i] * T.float32(4.0)\n"
        "        for k in range(2):\n"
        "            A[k] = T.float32(0.0)"
    )


TEXT = """
@R.macro
def soften(x, times=2):
    y = R.multiply(x, R.const(times, "float32"))
    return y

@R.macro
def endless(x):
    y = endless(x)
    return y

@R.macro
def early(x):
    return x
    y = R.exp(x)

@R.macro
def silent(x):
    y = R.exp(x)

@R.function
def f(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        v = BODY
        R.output(v)
    return v
"""


def test_a_text_may_hold_macros():
    func = from_source(TEXT.replace("BODY", "soften(x, times=3)"))
    (block,) = func.body.blocks
    assert [str(binding.value) for binding in block.bindings] == [
        'R.multiply(x, R.const(3.0, "float32"))',
        "y",
    ]


@pytest.mark.parametrize(
    ("body", "message", "line"),
    [
        ("soften()", "soften: missing a required argument: 'x'", 24),
        ("soften(x, 1, 2)", "soften: too many positional arguments", 24),
        ("soften(x, 'a')", "could not convert string to float", 4),
        ("endless(x)", "macro endless is nested more than 64 deep", 9),
        ("early(x)", "'return' should be the last statement", 14),
        ("silent(x)", "a NoneType cannot be bound to a variable", 24),
    ],
)
def test_refusals_show_the_place(body, message, line):
    with pytest.raises(DiagnosticError) as error:
        from_source(TEXT.replace("BODY", body))
    assert message in str(error.value)
    assert f"--> <str>:{line}:" in str(error.value)


def test_no_python_function():
    with pytest.raises(TypeError, match=r"R\.macro soften is no Python function"):
        soften(1)
