"""Calls of operators print as TVM prints them: every attribute, in order, defaults included."""

import re

import pytest

from relaxlab.relax import op
from relaxlab.script import from_source
from tests.golden_compiler import document


def declared(call):
    """Whether the operator of a recorded call exists."""
    path = re.match(r"R\.([\w.]+)\(", call)
    value = op
    for name in path.group(1).split(".") if path else ["missing"]:
        value = getattr(value, name, None)
    return value is not None


def parameter(name, text):
    """Write a recorded parameter ``float32[2,3]`` as an annotation."""
    dtype, _, rest = text.partition("[")
    if not rest:
        return f"{name}: {text}"
    dims = "".join(f"{dim}, " for dim in rest.rstrip("]").split(",") if dim)
    return f'{name}: R.Tensor(({dims}), "{dtype}")'


CASES = [
    case
    for case in document("op_cases")["cases"]
    if "printed_call" in case and declared(case["call"])
]


def test_most_recorded_operators_exist():
    assert len(CASES) > 130


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["call"])
def test_printed_call(case):
    params = ", ".join(parameter(name, text) for name, text in case["params"].items())
    mod = from_source(
        "@I.ir_module\nclass Module:\n    @R.function\n"
        f"    def main({params}):\n        gv = {case['call']}\n        return gv\n"
    )
    assert case["printed_call"] in [line.strip() for line in mod.script().splitlines()]
