"""A program as DOT text."""

import re

import pytest

from relaxlab.relax import transform
from relaxlab.script import from_source
from relaxlab.trace.graphs import call_dot, dataflow_dot
from tests.widgets.programs import network

BRANCHES = """
@I.ir_module
class Module:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")):
        if c:
            y = R.exp(x)
            z = y
        else:
            w = R.add(x, x)
            z = w
        return z
"""


def edges(dot):
    labels = {
        name: label.replace("\\n", " ")
        for name, label in re.findall(r'^  (n\d+) \[label="([^"]*)"', dot, re.MULTILINE)
    }
    found = re.findall(r"^  (n\d+) -> (n\d+)$", dot, re.MULTILINE)
    return {(labels[one], labels[other]) for one, other in found}


def test_values_flow_from_parameters_to_the_result():
    found = edges(dataflow_dot(network(), "main"))
    assert ("x", "lv matmul") in found
    assert ("h nn.relu", "lv2 matmul") in found
    assert ("d matmul", "return") in found
    assert not any(one == "return" for one, _ in found)


def test_branches_are_followed():
    found = edges(dataflow_dot(from_source(BRANCHES), "main"))
    assert ("x", "y exp") in found
    assert ("x", "w add") in found
    assert any(other == "return" for _, other in found)


def test_a_long_program_says_what_is_left_out():
    body = "\n".join(f"        y{i + 1} = R.exp(y{i})" for i in range(400))
    mod = from_source(
        "@I.ir_module\nclass Module:\n    @R.function\n"
        f'    def main(y0: R.Tensor((2,), "float32")):\n{body}\n        return y400\n'
    )
    assert "101 more bindings are left out" in dataflow_dot(mod, "main")


def test_calls_and_unknown_functions():
    lowered = transform.LegalizeOps()(network())
    found = edges(call_dot(lowered))
    assert ("main", "softmax") in found
    assert ("twice", "add1") in found
    with pytest.raises(KeyError, match="there are: main, twice"):
        dataflow_dot(network(), "nope")
    with pytest.raises(KeyError, match="no Relax function"):
        dataflow_dot(lowered, "softmax")
