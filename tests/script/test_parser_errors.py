"""Every mistake in a text is a DiagnosticError that shows its place; nothing in it runs."""

import pytest

from relaxlab.errors import DiagnosticError
from relaxlab.script import from_source

HEAD = '@R.function\ndef f(x: R.Tensor((4,), "float32")):\n'


def refused(text):
    with pytest.raises(DiagnosticError) as error:
        from_source(text)
    return str(error.value)


def test_the_place_and_the_advice():
    assert refused(f"{HEAD}    y = R.nn.reluu(x)\n    return y\n") == (
        "error: R.nn has no 'reluu'\n"
        " --> <str>:3:9\n"
        "   |\n"
        " 3 |      y = R.nn.reluu(x)\n"
        "   |          ^^^^^^^^^^\n"
        "   = help: did you mean 'relu'?"
    )


def test_a_name_for_the_text():
    with pytest.raises(DiagnosticError, match=r"--> demo.txt:1:"):
        from_source("x =", name="demo.txt")


BODIES = {
    "y = x.__class__": "private",
    "y = R.exp.__globals__": "private",
    "y = open('x')": "Undefined variable: open",
    "y = eval('1')": "Undefined variable: eval",
    "y = R.const(10**10**10)": "64 bits",
    "y = R.const(1 << 10**9)": "64 bits",
    "y = R.const(99999999999999999999)": "64 bits",
    "y = R.const('a' * 10**9)": "expected numbers",
    "y = R.const([1] * 10**9)": "expected numbers",
    "y = [z for z in (1, 2)]": "ListComp is not supported",
    "y = f'{x}'": "JoinedStr is not supported",
    "y = R.exp(*x)": "needs a tuple that is written out",
    "y = R.exp(**x)": "not supported in a call",
    "y = R.exp(x, x)": "takes 1 positional argument but 2 were given",
    "y = x + 1": "Please convert 1 with `const` first",
    "y = x == x": "operator equal is not supported on Relax expressions",
    "y = x.shape": "shape is only available on a Var with BufferType",
    "y = R.Tensor((4,))": "cannot be bound to a variable",
    "y: R.Foo = x": "R has no 'Foo'",
    "y: R.Tensor((5,), 'float32') = x": "Invalid annotation",
    "x[0] = x": "only a name can be assigned to",
    "y = z = x": "Assign is not supported",
    "import os": "Import is not supported",
    "raise x": "Raise is not supported",
    "R.output(x)": "R.output stands last",
    "with R.dataflow() as d:\n        pass": "expected `with R.dataflow():`",
    "y = R.match_cast(x, R.Tensor(('n',)))": "String-defined shape expr is only allowed",
    "y = R.match_cast(x, R.Shape([2]))": "It is impossible to match cast",
    "y = R.add(x, R.zeros((5,), 'float32'))": "not broadcastable",
    "y = x(x)": "cannot be called",
    "a, b = x": "only a tuple can be unpacked",
    "@R.function\n    def g(y):\n        return y": "Type annotation is required",
    "def g(y):\n        return y": "needs a decorator",
}


@pytest.mark.parametrize("body", BODIES)
def test_function_bodies(body):
    text = refused(f"{HEAD}    {body}\n    return y\n")
    assert BODIES[body] in text.splitlines()[0]
    assert "^" in text


PROGRAMS = {
    "": "there is no program",
    "x = 1": "there is no program",
    "class A:\n    pass": "needs the decorator @I.ir_module",
    "@I.ir_module\nclass A:\n    x = 1": "expected R.ExternFunc",
    "@I.ir_module\nclass A:\n    pass\n@I.ir_module\nclass B:\n    pass": "one module or one",
    "print(1)": "not part of a program",
    "@R.function(foo=1)\ndef f(x: R.Tensor((4,))):\n    return x": "no option 'foo'",
    "@R.function\ndef f(x: R.Tensor((4,)), *a):\n    return x": "plain parameters",
    "@R.function\ndef f(x: R.Tensor(('a+',))):\n    return x": "is no expression",
    "@R.function\ndef f(x: R.Tensor(('open(1)',))):\n    return x": "name 'open' is not defined",
    "@R.function\ndef f(x: 'R.Tensor'):\n    return x": "expected a type",
    "@T.prim_func\ndef f(A: T.Buffer((4,))):\n    A[0, 1] = 1.0": "is 1-dimensional",
    "@T.prim_func\ndef f(A: T.Buffer((4,))):\n    A[0] = B[0]": "Undefined variable: B",
    "@T.prim_func\ndef f(A: T.Buffer((4,))):\n    for i in A:\n        pass": "expected range",
    "@T.prim_func\ndef f(A: T.Buffer((4,))):\n    A[0] = A[0] % 2.0": "integer operands",
    "@T.prim_func\ndef f(A: T.Buffer((4,), 'int32')):\n    A[0] = A[0] / 2": "divide in several",
    "@T.prim_func\ndef f(A: T.Buffer((4,))):\n    with T.sblock('b'):\n        "
    "v = T.axis.remap('S', [3])": "needs loop variables",
    "@T.prim_func\ndef f(A: R.Tensor((4,))):\n    pass": "no parameter of type",
    "(" * 5000: "nested",
    "x = 1 +": "invalid syntax",
    "\0": "",
}


@pytest.mark.parametrize("text", PROGRAMS, ids=range(len(PROGRAMS)))
def test_programs(text):
    assert PROGRAMS[text] in refused(text)


def test_a_refused_program_leaves_nothing_behind():
    for _ in range(2):
        refused(f"{HEAD}    return q\n")
    assert from_source(f"{HEAD}    return x\n").ret_ty.ndim == 1
