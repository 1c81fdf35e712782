"""``z: T = value``: what a written type means, as TVM 0.27 answers."""

import pytest

from relaxlab.errors import DiagnosticError
from relaxlab.script import from_source

HEAD = '@R.function(pure=False)\ndef f(x: R.Tensor("float32", ndim=2), s: R.Shape(ndim=1)):\n'


def type_of(statement, before=""):
    func = from_source(f"{HEAD}{before}    y: {statement}\n    return y\n")
    (*_, last) = func.body.blocks[-1].bindings
    return str(last.var.ty)


# a call takes over the written type ...
CALLS = [
    ('R.Tensor((4, 5), "float32") = R.exp(x)', 'R.Tensor((4, 5), dtype="float32")'),
    ('R.Tensor((4,), "float32") = R.reshape(x, s)', 'R.Tensor((4,), dtype="float32")'),
    ('R.Tensor((4,), "int8") = R.call_packed("f", x)', 'R.Tensor((4,), dtype="int8")'),
    ("R.Any = R.exp(x)", "R.Any"),
    # ... unless its arguments had to be bound first
    ("R.Tensor(ndim=2) = R.exp(R.exp(x))", 'R.Tensor(dtype="float32", ndim=2)'),
]
# of every other value the type is known
OTHERS = [
    ('R.Tensor((5, 4), "float32") = x', 'R.Tensor(dtype="float32", ndim=2)'),
    ("R.Any = x", 'R.Tensor(dtype="float32", ndim=2)'),
    ("R.Shape(ndim=1) = R.shape([3])", "R.Shape([3])"),
    ("R.Tuple(R.Any) = (s,)", "T.Tuple(R.Shape(ndim=1))"),
]


@pytest.mark.parametrize(("statement", "ty"), CALLS + OTHERS)
def test_accepted(statement, ty):
    assert type_of(statement) == ty


REFUSED = {
    'R.Tensor((4,), "float32") = R.exp(x)': "All information in Type annotations must be correct",
    'R.Tensor((4, 5), "int8") = R.exp(x)': "All information in Type annotations must be correct",
    'R.Tensor((4, 5), "int8") = R.exp(R.exp(x))': "Invalid annotation. Got rhs value type",
    'R.Tensor((4,), "float32") = x': "Invalid annotation. Got rhs value type",
    "R.Shape([4]) = R.shape([3])": "Invalid annotation. Got rhs value type",
    "R.Any = R.match_cast(x, R.Tensor((4, 5)))": "Cannot specify inconsistent annotation",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_refused(statement):
    with pytest.raises(DiagnosticError, match=REFUSED[statement]):
        type_of(statement)


def test_a_written_type_is_used_by_what_follows():
    func = from_source(f'{HEAD}    y: R.Tensor((4, 5), "float32") = R.exp(x)\n    return y + y\n')
    assert str(func.ret_ty) == 'R.Tensor((4, 5), dtype="float32")'


def test_the_check_can_be_left_out():
    text = f'{HEAD}    y: R.Tensor((4, 5), "int8") = R.exp(x)\n    return y\n'
    with pytest.raises(DiagnosticError, match="not well-formed"):
        from_source(text)
    func = from_source(text, check_well_formed=False)
    assert str(func.ret_ty) == 'R.Tensor((4, 5), dtype="int8")'
