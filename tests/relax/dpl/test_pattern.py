"""Patterns: what they match, what each part stands for, what is replaced."""

import pytest

from relaxlab import relax
from relaxlab.ir import GlobalVar
from relaxlab.relax import TensorType, dpl, op
from relaxlab.relax.analysis import get_var2val
from relaxlab.script import from_source

X = relax.Var("x", TensorType([2, 4], "float32"))
Y = relax.Var("y", TensorType([4], "float16"))
PAIR = relax.Tuple((X, Y))

MATCHES = {
    "anything": (dpl.wildcard(), X),
    "a variable": (dpl.is_var(), X),
    "a variable of a name": (dpl.is_var("x"), X),
    "a function": (dpl.is_gv("f"), GlobalVar("f")),
    "a constant": (dpl.is_const(), relax.const(1.0)),
    "a shape": (dpl.is_shape([2, 4]), relax.ShapeExpr((2, 4))),
    "a call": (dpl.is_op("relax.exp")(dpl.wildcard()), op.exp(X)),
    "nested": (dpl.is_op("relax.exp")(dpl.is_op("relax.exp")(dpl.is_var("x"))), op.exp(op.exp(X))),
    "either": (dpl.is_var("z") | dpl.is_var("x"), X),
    "both": (dpl.is_var("x") & dpl.has_dtype("float32"), X),
    "not": (~dpl.is_const(), X),
    "a dtype": (dpl.wildcard().has_dtype("float16"), Y),
    "of a shape": (dpl.wildcard().has_shape([2, 4]), X),
    "of a type": (dpl.wildcard().has_ty(TensorType(ndim=2)), X),
    "attributes": (dpl.has_attr({"axis": [1], "keepdims": False}), op.sum(X, axis=1)),
    "a tuple": (dpl.is_tuple([dpl.is_var("x"), dpl.is_var("y")]), PAIR),
    "a tuple in any order": (dpl.is_tuple([dpl.is_var("y"), dpl.is_var("x")], True), PAIR),
    "a field": (dpl.is_tuple_get_item(dpl.wildcard(), 1), relax.TupleGetItem(PAIR, 1)),
    "a kernel call": (
        dpl.is_call_tir("k", [dpl.is_var("x")]),
        op.call_tir(GlobalVar("k"), (X,), out_ty=TensorType([2], "float32")),
    ),
    "a packed call": (dpl.is_call_packed("f", [dpl.is_var("x")]), op.call_packed("f", X)),
}
DIFFERENT = {
    "another name": (dpl.is_var("y"), X),
    "another operator": (dpl.is_op("relax.log")(dpl.wildcard()), op.exp(X)),
    "fewer arguments": (dpl.is_op("relax.add")(dpl.wildcard()), op.add(X, X)),
    "another shape": (dpl.is_shape([2, 5]), relax.ShapeExpr((2, 4))),
    "another attribute": (dpl.has_attr({"keepdims": True}), op.sum(X, axis=1)),
    "a missing attribute": (dpl.has_attr({"foo": 1}), op.sum(X, axis=1)),
    "another type": (dpl.wildcard().has_ty(TensorType(ndim=3)), X),
    "another field": (dpl.is_tuple_get_item(dpl.wildcard(), 0), relax.TupleGetItem(PAIR, 1)),
    "not that": (~dpl.is_var("x"), X),
}


@pytest.mark.parametrize("name", MATCHES)
def test_matches(name):
    pattern, expr = MATCHES[name]
    assert pattern.match(expr)
    assert pattern.dup().match(expr)


@pytest.mark.parametrize("name", DIFFERENT)
def test_does_not_match(name):
    pattern, expr = DIFFERENT[name]
    assert not pattern.match(expr)
    assert pattern.extract_matched_expr(expr) is None


def test_one_pattern_is_one_expression():
    some = dpl.wildcard()
    twice = dpl.is_op("relax.add")(some, some)
    other = relax.Var("z", X.ty)
    assert twice.match(op.add(X, X))
    assert not twice.match(op.add(X, other))
    assert dpl.is_op("relax.add")(some, some.dup()).match(op.add(X, other))


FUNC = from_source(
    """
@R.function
def f(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 4), "float32")):
    a = R.matmul(x, w)
    b = R.nn.relu(a)
    c = R.add(b, R.const(1, "float32"))
    d = R.add(c, b)
    return d
"""
)


def test_variables_stand_for_their_values():
    product = dpl.is_op("relax.matmul")(dpl.wildcard(), dpl.is_var("w"))
    pattern = dpl.is_op("relax.nn.relu")(product)
    values = get_var2val(FUNC)
    relu = FUNC.body.blocks[0].bindings[1].value
    assert not pattern.match(relu)
    found = pattern.extract_matched_expr(relu, values)
    assert found[product] is FUNC.body.blocks[0].bindings[0].value
    assert found[pattern] is relu


def test_calls_are_replaced():
    some = dpl.wildcard()
    pattern = dpl.is_op("relax.add")(some, dpl.is_const())
    new = dpl.rewrite_call(pattern, lambda call, found: op.exp(found[some]), FUNC)
    assert [str(binding.value) for binding in new.body.blocks[0].bindings] == [
        "R.matmul(x, w, out_dtype=None)",
        "R.nn.relu(a)",
        "R.exp(b)",
        "R.add(c, b)",
    ]
    assert dpl.rewrite_call(pattern, lambda call, found: call, FUNC) is FUNC


def test_bias_and_activation():
    pattern = dpl.make_fused_bias_activation_pattern("relax.matmul", True, "relax.nn.relu")
    w = relax.Var("w", TensorType([4, 4], "float32"))
    assert pattern.match(op.nn.relu(op.add(op.matmul(X, w), X)))
    assert not pattern.match(op.nn.relu(op.matmul(X, w)))
