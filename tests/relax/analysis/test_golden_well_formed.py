"""Well-formedness against TVM's answers."""

import pytest

from relaxlab import relax
from tests.golden_compiler import document, names, without_check

CASES = document("misc_cases")["well_formed"]

#: Ours call the function by its name, or say what is wrong.
OURS = {
    "impure_in_pure": "Function f is annotated as pure but contains an impure call: "
    'R.print(x, format=R.str("{}")).  Please set relax.force_pure to true or use a pure operator '
    "variant (e.g., call_pure_packed) if it is necessary to override this judgment.",
    "force_pure_but_impure": "Function f has true for relax.force_pure but false for is_pure; "
    "relax.force_pure should be true only if is_pure is also true.",
    "missing_type": "Var v does not have type.",
}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_verdict_and_message_are_tvms(case: dict[str, object]) -> None:
    scope = {**names(), "bb": relax.BlockBuilder()}
    expected = OURS.get(str(case["name"]), without_check(str(case.get("message", ""))))
    if "construct_error" in case:
        with pytest.raises(Exception) as caught:  # noqa: PT011  # the class is compared below
            exec(str(case["code"]), scope)
        assert type(caught.value).__name__ == case["construct_error"]
        assert str(caught.value) == expected
        return
    exec(str(case["code"]), scope)
    mod = scope["mod"]
    assert relax.analysis.check_well_formed(mod) is case["well_formed"]
    if case["well_formed"]:
        relax.analysis.well_formed(mod)
        return
    with pytest.raises(Exception) as caught:  # noqa: PT011  # the class is compared below
        relax.analysis.well_formed(mod)
    assert type(caught.value).__name__ == case["error"]
    assert str(caught.value) == expected
