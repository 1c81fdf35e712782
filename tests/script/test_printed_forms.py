"""Statements and expressions, one by one, as TVM prints them; and back."""

import json
from pathlib import Path

import pytest

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
