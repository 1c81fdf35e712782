"""Every recorded operator call, compiled, built and run by the machine: TVM's values."""

from typing import Any

import numpy as np
import pytest

import relaxlab
from relaxlab import runtime
from relaxlab.ir import Op
from relaxlab.relax import VirtualMachine
from relaxlab.script import from_source
from tests.golden_compiler import decode, document


def source_of(case: dict[str, Any]) -> str:
    params = []
    for name, spec in case["params"].items():
        dtype, _, shape = spec.removesuffix("]").partition("[")
        inside = "".join(f"{d}, " for d in shape.split(",") if d.strip())
        params.append(f"{name}: R.Tensor(({inside}), {dtype!r})")
    # TVM has no word for these operators
    call = case["call"].replace("relax.inspect.", "R.inspect.")
    return (
        "@I.ir_module\nclass Module:\n    @R.function\n"
        f"    def main({', '.join(params)}):\n        gv = {call}\n        return gv\n"
    )


CASES = [
    case
    for case in document("op_cases")["cases"]
    if "output" in case and Op.find(case["op"]) is not None
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["call"])
def test_recorded_values(case: dict[str, Any]) -> None:
    machine = VirtualMachine(relaxlab.compile(from_source(source_of(case))), runtime.cpu())
    inputs = [runtime.tensor(decode(value)) for value in case["inputs"]]
    same(machine["main"](*inputs), decode(case["output"]))


def same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, runtime.ShapeTuple | int):
        assert ours == theirs
    elif isinstance(theirs, tuple):
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
    else:
        assert str(ours.dtype) == str(theirs.dtype)
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5, atol=1e-5)


def test_enough_operators_are_run() -> None:
    assert len(CASES) >= 207
