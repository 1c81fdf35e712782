"""Random well-typed modules: the text reads back, and every way of running gives the same."""

import numpy as np
from hypothesis import given, settings

from relaxlab import relax
from relaxlab.ir import Target
from relaxlab.relax.analysis import well_formed
from relaxlab.relax.pipeline import get_default_pipeline
from relaxlab.runtime import cpu
from relaxlab.script import from_source
from tests.strategies import modules


@given(modules())
def test_what_is_printed_reads_back(program):
    mod = from_source(program.source())
    text = mod.script()
    again = from_source(text)
    assert again.script() == text
    assert mod.structural_equal(again)


def flat(value):
    if isinstance(value, tuple | list):
        return [array for item in value for array in flat(item)]
    return [value.numpy()]


@settings(max_examples=25)
@given(modules())
def test_all_ways_agree(program):
    mod = from_source(program.source())
    fused = get_default_pipeline(Target("llvm"))
    tolerance = 1e-2 if "float16" in mod.script() else 1e-5
    results = []
    for pipeline in ("default", fused):
        executable = relax.build(mod, "numpy", relax_pipeline=pipeline)
        for mode in ("bytecode", "compiled"):
            vm = relax.VirtualMachine(executable, cpu(), exec_mode=mode)
            results.append(flat(vm["main"](*program.arguments())))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(
                a.astype("float64"), b.astype("float64"), tolerance, tolerance
            )


@settings(max_examples=10)
@given(modules())
def test_passes_leave_well_formed_modules(program):
    mod = from_source(program.source())
    with Target("llvm"):
        for step in get_default_pipeline(Target("llvm")).passes[:7]:
            mod = step(mod)
            well_formed(mod)
