"""ToMixedPrecision against recorded answers of TVM, and against what float32 computes."""

import numpy as np
import pytest

from relaxlab import relax
from relaxlab.relax.analysis import well_formed
from relaxlab.relax.transform import ToMixedPrecision
from relaxlab.runtime import cpu
from relaxlab.script import from_source
from tests.golden_compiler import document
from tests.relax.transform.checks import assert_unchanged

CASES = document("mixed_precision")["cases"]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_recorded(case):
    mod = ToMixedPrecision(**case["options"])(from_source(case["before"]))
    well_formed(mod)
    assert mod.script().rstrip() == case["after"].rstrip()


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_values(case):
    before = from_source(case["before"])
    after = ToMixedPrecision(**case["options"])(before)
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, s).astype("float32") for s in ((2, 3), (3, 4), (4,))]
    names = case["options"].get("fp16_input_names", ())
    narrow = [a.astype("float16") if n in names else a for n, a in zip("xwb", arrays, strict=True)]
    results = []
    for mod, args in ((before, arrays), (after, narrow)):
        vm = relax.VirtualMachine(relax.build(mod, "numpy"), cpu())
        results.append(vm["main"](*args).numpy())
    assert results[0].dtype == results[1].dtype
    np.testing.assert_allclose(results[0], results[1], 1e-2, 1e-2)


def test_no_products():
    assert_unchanged(
        ToMixedPrecision(),
        '@R.function\ndef main(x: R.Tensor((4,), "float32")):\n'
        "    with R.dataflow():\n        y = R.exp(x)\n        R.output(y)\n    return y\n",
    )
