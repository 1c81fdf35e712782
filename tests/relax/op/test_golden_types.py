"""Type inference against TVM's answers, good and bad, word for word."""

from typing import Any

import pytest

from relaxlab import relax
from relaxlab.ir import Op
from relaxlab.relax import op
from tests.golden_compiler import Operators, document, parameters, without_check

CASES = document("op_cases")["types"]

#: Where our message says more than TVM's.
LONGER = {"R.dynamic_strided_slice(x, b, b, b)"}


def exists(call: str) -> bool:
    """Say whether the operator of a call is one of ours yet."""
    target: object = op
    for part in call.removeprefix("R.").split("(")[0].split("."):
        target = getattr(target, part, None)
    return target is not None


PRESENT = [case for case in CASES if exists(case["call"])]


#: Detection of objects: not part of any model that is run here.
ABSENT = {
    "relax.vision.all_class_non_max_suppression",
    "relax.vision.get_valid_counts",
    "relax.vision.multibox_transform_loc",
    "relax.vision.non_max_suppression",
    "relax.vision.roi_align",
    "relax.vision.roi_pool",
}


def test_all_operators_of_the_recorded_cases_exist_but_for_vision() -> None:
    assert [case["call"] for case in CASES if not exists(case["call"])] == []
    recorded = {case["op"] for case in document("op_cases")["cases"]}
    assert {name for name in recorded if Op.find(name) is None} == ABSENT


def infer(case: dict[str, str]) -> relax.Type:
    params = parameters(case["params"])
    builder = relax.BlockBuilder()
    builder.begin_scope(params)
    builder.begin_block(is_dataflow=True)
    scope = {"R": Operators(), **{p.name: p for p in params}}
    expr = builder.normalize(eval(case["call"], scope))  # noqa: S307  # our own recorded data
    assert expr.ty is not None
    return expr.ty


@pytest.mark.parametrize("case", PRESENT, ids=lambda c: f"{c['call']}-{c['params']}"[:80])
def test_type_is_tvms(case: dict[str, str]) -> None:
    if "type" in case:
        assert str(infer(case)) == case["type"]
        return
    with pytest.raises(Exception) as caught:  # noqa: PT011  # the class is compared below
        infer(case)
    assert type(caught.value).__name__ == case["error"]
    expected = without_check(case["message"])
    if case["call"] in LONGER:
        assert str(caught.value).startswith(expected)
        assert "shape" in str(caught.value)
        assert "match_cast" in str(caught.value)
    else:
        assert str(caught.value) == expected


# --- whole calls --------------------------------------------------------------------------------

CALLS = [
    case
    for case in document("op_cases")["cases"]
    if "printed_call" in case and case["call"].startswith("R.") and exists(case["call"])
]


def test_most_operators_of_the_recorded_calls_exist() -> None:
    assert len(CALLS) >= 110


@pytest.mark.parametrize("case", CALLS, ids=lambda c: c["call"])
def test_call_prints_as_tvms(case: dict[str, Any]) -> None:
    """The arguments, the attributes with their defaults, their order, and the type."""
    scope: dict[str, Any] = {"R": Operators()}
    for name, text in case["params"].items():
        dtype, _, shape = text.removesuffix("]").partition("[")
        dims = [int(dim) for dim in shape.split(",") if dim.strip()]
        scope[name] = relax.Var(name, relax.TensorType(dims, dtype))
    builder = relax.BlockBuilder()
    builder.begin_block(is_dataflow=False)
    builder.emit(eval(case["call"], scope))  # noqa: S307  # our own recorded data
    binding = builder.end_block().bindings[-1]
    # free variables are declared on lines of their own; the parser names the result itself
    printed = str(binding).splitlines()[-1]
    assert printed.partition(": ")[2] == case["printed_call"].partition(": ")[2]
