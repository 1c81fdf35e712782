"""What the parser accepts, and how it refuses the rest: 45 recorded answers of TVM."""

import pytest

from relaxlab.errors import DiagnosticError
from relaxlab.script import from_source
from tests.golden_compiler import document, without_check

CASES = {case["name"]: case for case in document("misc_cases")["parse"]}
ACCEPTED = [name for name, case in CASES.items() if "script" in case]
#: Ours say what is not supported, TVM's name their own classes.
OWN_WORDS = {
    "for_loop": "For is not supported in a Relax function",
    "match_cast_bare": "Unsupported Expr stmt type Cast: assign it to a name",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name):
    case = CASES[name]
    # a target of ours has no triple of the host
    expected = case["script"].replace('"mtriple": "<triple>", ', "")
    assert from_source(case["source"]).script() == expected


@pytest.mark.parametrize("name", sorted(set(CASES) - set(ACCEPTED)))
def test_refused(name):
    case = CASES[name]
    with pytest.raises(DiagnosticError) as error:
        from_source(case["source"])
    recorded = without_check(case["message"].removeprefix("error: "))
    message, place, *_ = str(error.value).split("\n --> ")
    assert message.startswith(f"error: {OWN_WORDS.get(name, recorded)}")
    assert place.startswith("<str>:")
