"""Operators of many families against TVM: the kernels to the letter, and what they compute."""

import re

import numpy as np
import pytest

from relaxlab import relax
from relaxlab.errors import DiagnosticError, InternalError
from relaxlab.ir import Target
from relaxlab.relax.backend import DispatchSampling, DispatchSortScan
from relaxlab.relax.transform.legalize_ops import LegalizeOps
from relaxlab.runtime import cpu
from relaxlab.script import from_source
from tests.golden_compiler import document
from tests.op_calls import inputs_of, source_of

CASES = document("op_values")["cases"]


def name_of(case):
    return f"{case['call']}-{case['params'][0]}"[:90]


def legalize(case):
    target = Target("llvm")
    with target:
        mod = from_source(source_of(case["params"], case["call"]))
        return LegalizeOps()(DispatchSortScan()(DispatchSampling()(mod)))


#: Kernels that differ from TVM's in text, and why.
OTHER_TEXT = {
    "R.nn.adaptive_avg_pool2d(x, output_size=(3, 2))": "the extent of a window is longer",
    "R.nn.adaptive_avg_pool3d(x, output_size=(2, 2, 2))": "the extent of a window is longer",
}
#: Sums over nothing; TVM's kernel is called ``full`` there.
EMPTY_SUM = ("R.sum(x, axis=0)", ["x: float32[0, 3]"])
#: Values that differ from TVM's, and why; each has its own test.
OTHER_VALUES: dict[str, str] = {}
#: What TVM refuses or cannot run, and we can.
ONLY_HERE = {
    "R.sort(x, axis=-1, descending=True)": "TVM's sort knows no 8-bit integers",
}


@pytest.mark.parametrize("case", [c for c in CASES if "script" in c], ids=name_of)
def test_kernel_is_tvms(case):
    if case["call"] in OTHER_TEXT or (case["call"], case["params"]) == EMPTY_SUM:
        assert legalize(case).script().rstrip() != case["script"].rstrip()
        return
    assert numbered(legalize(case).script()) == numbered(case["script"])


def numbered(text):
    """Number the offsets by their use: TVM's numbers follow addresses."""
    names: dict[str, str] = {}
    body = text[text.index("@I.ir_module") :].rstrip()
    return re.sub(
        r"\belem_offset(_\d+)?\b(?!=)",
        lambda found: names.setdefault(found.group(), f"offset_{len(names)}"),
        body,
    )


def run(case):
    mod = from_source(source_of(case["params"], case["call"]))
    vm = relax.VirtualMachine(relax.build(mod, "numpy"), cpu())
    result = vm["main"](*inputs_of(case["params"], case["call"]))
    return [each.numpy() for each in (result if isinstance(result, tuple | list) else [result])]


@pytest.mark.parametrize("case", [c for c in CASES if "outputs" in c], ids=name_of)
def test_values_are_tvms(case):
    outputs = run(case)
    assert len(outputs) == len(case["outputs"])
    for ours, theirs in zip(outputs, case["outputs"], strict=True):
        assert str(ours.dtype) == theirs["dtype"]
        assert list(ours.shape) == theirs["shape"]
        values = [float(v) if isinstance(v, str) else v for v in theirs["values"]]
        expected = np.array(values).astype(theirs["dtype"]).reshape(theirs["shape"])
        if case["call"] in OTHER_VALUES:
            assert not np.array_equal(ours, expected)
            continue
        tolerance = 2e-3 if theirs["dtype"] == "float16" else 2e-5
        np.testing.assert_allclose(ours, expected, tolerance, tolerance)


@pytest.mark.parametrize("case", [c for c in CASES if "error" in c], ids=name_of)
def test_what_tvm_refuses(case):
    if case["call"] in ONLY_HERE:
        assert run(case)
        return
    with pytest.raises((DiagnosticError, InternalError, ValueError, TypeError)):
        run(case)
